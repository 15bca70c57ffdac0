// The warpgroups of Hopper's mla_decode of bytes that bring keys of a cache of bytes: features in e4m3 are exact in 16 bits, and become those on their way; scales
// go beside them. A part of decode_bytes.sm90.cu, whose constants it uses.
#pragma once
#include "mla_decode/cache_bytes.h"

// Of a warpgroup, for the keys of the consumer of the same number; a warp has ROWS of 64 keys. Keys that are not there become zeros.
struct Widener {
  static constexpr uint32_t ROWS = 16, SCALES_BYTES = SCALES * 4, NONE = ~0u;
  static constexpr int STEPS = ROWS, AHEAD = STEPS / 2;  // steps of two halves of rows each; those that are on their way always
  static_assert(R == 512);
  typedef Pack<uint32_t, 4> Bytes;
  const Places& at;
  const uint8_t* cache;
  uint32_t page_stride, token_stride;  // in units of 16 bytes
  const int32_t* entries;              // slots of the query token; or pages of the sequence
  bool listed;
  int page_keys;

  // Where key `number` lies, in units of 16 bytes.
  uint32_t row(int number, int end) const {
    if (number >= end) return NONE;
    const int slot = listed ? entries[number] : number;
    if (slot < 0) return NONE;
    const int page = static_cast<unsigned>(slot) / static_cast<unsigned>(page_keys);
    return static_cast<uint32_t>(listed ? page : entries[page]) * page_stride + static_cast<uint32_t>(slot - page * page_keys) * token_stride;
  }
  const uint8_t* address(uint32_t row) const { return cache + uint64_t{row} * 16; }

  static uint32_t own_lane() { return keep_here(thread_x()) % WARP; }
  static uint32_t first_row() { return keep_here(thread_x()) / WARP % 4 * ROWS; }
  // In each step lanes have 16 features of one of two rows, and eight lanes beside each other 64 of each: so what they store lies in different banks.
  static uint32_t row_of_step() { return own_lane() / 4 % 2; }
  static uint32_t box() { return own_lane() / 8; }

  // Where the 16 features of the first step go, in two chunks of 8.
  uint32_t first_chunk(int group) const { return at.keys(group) + box() * BOX + (first_row() + row_of_step()) * 128 + ((own_lane() % 4 * 2) ^ row_of_step()) * 16; }
  template <uint32_t STEP> static void store_latents(const Bytes& bytes, uint32_t to) {
    constexpr uint32_t PAIR = STEP % 8, PART = STEP / 8;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      uint32_t x[4];
      widen_four(bytes.at[2 * h], x[0], x[1]);
      widen_four(bytes.at[2 * h + 1], x[2], x[3]);
      store_shared_16((to ^ (PAIR % 4 * 32 + h * 16)) + PAIR * 256 + PART * (4 * BOX), {{x[0], x[1], x[2], x[3]}});
    }
  }
  // 16 features of a half of the row that a lane has in a step; lane i has row i of `rows`.
  void load_step(Bytes& bytes, uint32_t rows, uint32_t step) const {
    const uint32_t row = shuffle(rows, step % 8 * 2 + row_of_step());
    load_bytes_16(bytes, address(row + step / 8 * 16 + box() * 4 + own_lane() % 4), row != NONE);
  }
  // Later steps, at last the next tile's, come to the registers that a step has left.
  template <int STEP = 0> void store_tile(Bytes (&held)[AHEAD], uint32_t to, uint32_t own, uint32_t next) const {
    if constexpr (STEP < STEPS) {
      store_latents<STEP>(held[STEP % AHEAD], to);
      load_step(held[STEP % AHEAD], STEP + AHEAD < STEPS ? own : next, (STEP + AHEAD) % STEPS);
      store_tile<STEP + 1>(held, to, own, next);
    }
  }
  void copy_others(uint32_t own, int group) const {
    const uint32_t l = own_lane();
#pragma unroll 1
    for (uint32_t i = l / 8; i < ROWS; i += 4) {
      const uint32_t from = shuffle(own, i);
      copy_async_16(at.keys(group) + R / 64 * BOX + (first_row() + i) * 128 + (l % 8 ^ i % 8) * 16, address(from != NONE ? from : 0) + R + SCALES_BYTES + l % 8 * 16, from != NONE);
    }
    if (l < ROWS) copy_async_16(at.scales(group) + (first_row() + l) * 16, address(own != NONE ? own : 0) + R, own != NONE);
  }

  // Keys of `group` among those from `first` to before `end`. Steps are on their way always; rows of the next tile but one are asked for.
  void run(int group, int first, int end) const {
    const auto row_from = [&](int key) { return row(key + static_cast<int>(first_row() + own_lane() % ROWS), end); };
    first += group * KEYS;
    uint32_t own = row_from(first), next = row_from(first + GROUPS * KEYS), parity = 1;
    Bytes held[AHEAD];
#pragma unroll
    for (int step = 0; step < AHEAD; ++step) load_step(held[step], own, step);
#pragma unroll 1
    for (; first < end; first += GROUPS * KEYS, parity ^= 1) {
      const uint32_t after = row_from(first + 2 * GROUPS * KEYS);
      barrier_wait(at.empty(group), parity);
      copy_others(own, group);
      barrier_arrive_after_copies(at.full(group));
      const uint32_t some = lanes_where(own != NONE);
      if (own_lane() == 0) store_shared_2(at.seen(group) + first_row() / 8, static_cast<uint16_t>(some));
      store_tile(held, first_chunk(group), own, next);
      sync_warp();
      if (own_lane() == 0) barrier_arrive(at.full(group));
      own = next, next = after;
    }
  }
};
