// The warpgroup of Hopper's mla_decode of bytes and 64 heads a block that brings keys: features in e4m3 are exact in bfloat16, and become that on their way; scales
// go beside them. A part of decode_pair_bytes.sm90.cu, whose constants it uses.
#pragma once
#include "mla_decode/cache_bytes.h"

// A warp has KEYS_A_WARP of a tile's keys. Keys that are not there become zeros.
struct Widener {
  static constexpr uint32_t KEYS_A_WARP = KEYS / (COPIERS / WARP), SCALES_BYTES = SCALES * 4, ROW_BYTES = R + SCALES_BYTES + 2 * ROPE;
  static constexpr int STEPS = KEYS_A_WARP / 2, AHEAD = 4;  // of two half rows each, in a piece; those that are on their way always
  static_assert(KEYS_A_WARP == 16 && HALF == 16 * 16);
  typedef Pack<uint32_t, 4> Bytes;
  static constexpr Places at{};
  const uint8_t* cache;
  uint32_t page_stride, token_stride;  // in units of 16 bytes
  bool listed;
  int page_keys;
  static constexpr uint32_t NONE = ~0u;

  // Slots of the query token; or pages of the sequence.
  static const int32_t* entries() {
    uint32_t x[2];
    load_shared_8(at.entries(), x);
    return reinterpret_cast<const int32_t*>(uint64_t{x[1]} << 32 | x[0]);
  }
  // Where key `number` lies, in units of 16 bytes.
  uint32_t row(int number, int end) const {
    if (number >= end) return NONE;
    const int slot = listed ? load_entry(entries() + number) : number;
    if (slot < 0) return NONE;
    const int page = static_cast<unsigned>(slot) / static_cast<unsigned>(page_keys);
    return static_cast<uint32_t>(listed ? page : load_entry(entries() + page)) * page_stride + static_cast<uint32_t>(slot - page * page_keys) * token_stride;
  }
  const uint8_t* address(uint32_t row) const { return cache + uint64_t{row} * 16; }
  // Lines of 128 bytes in which a row lies, to the L2 cache, by all lanes that have it.
  void tell(uint32_t row) const {
    if (row == NONE) return;
    const uint32_t l = own_lane();
#pragma unroll
    for (uint32_t at = 0; at < ROW_BYTES; at += WARP / KEYS_A_WARP * 128) fetch(address(row) + l / KEYS_A_WARP * 128 + at);
    if (l < KEYS_A_WARP) fetch(address(row) + ROW_BYTES - 1);
  }

  static uint32_t own_lane() { return keep_here(thread_x()) % WARP; }
  static uint32_t first_row() { return keep_here(thread_x()) / WARP * KEYS_A_WARP; }
  // In each step lanes have 16 features of one of two rows, and eight lanes beside each other 64 of each: so what they store lies in different banks.
  static uint32_t row_of_step() { return own_lane() / 4 % 2; }
  static uint32_t box() { return own_lane() / 8; }

  // Where the 16 features of the first step go, in two chunks of 8.
  static uint32_t first_chunk() { return box() * BOX + (first_row() + row_of_step()) * 128 + ((own_lane() % 4 * 2) ^ row_of_step()) * 16; }
  template <uint32_t STEP> static void store_latents(const Bytes& bytes, uint32_t to) {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      uint32_t x[4];
      widen_four(bytes.at[2 * h], x[0], x[1]);
      widen_four(bytes.at[2 * h + 1], x[2], x[3]);
      store_shared_16((to ^ (STEP % 4 * 32 + h * 16)) + STEP * 256, {{x[0], x[1], x[2], x[3]}});
    }
  }
  // 16 features of a half of the row that a lane has in a step; lane i has row i of `rows`.
  void load_step(Bytes& bytes, uint32_t rows, uint32_t step, uint32_t half) const {
    const uint32_t row = shuffle(rows, step * 2 + row_of_step());
    load_bytes_16(bytes, address(row + half * (HALF / 16) + box() * 4 + own_lane() % 4), row != NONE);
  }

  void copy_scales(uint32_t own, uint32_t stage) const {
    const uint32_t l = own_lane();
#pragma unroll
    for (uint32_t block = l / KEYS_A_WARP; block < SCALES; block += 2)
      copy_async_4(at.scales(stage, block, first_row() + l % KEYS_A_WARP), address(own != NONE ? own : 0) + R + block * 4, own != NONE);
  }
  void copy_rope(uint32_t own, uint32_t stage) const {
    const uint32_t l = own_lane();
#pragma unroll 1
    for (uint32_t i = l / 8; i < KEYS_A_WARP; i += 4) {
      const uint32_t from = shuffle(own, i);
      copy_async_16(at.keys(stage) + ROPE_BOX * BOX + (first_row() + i) * 128 + (l % 8 ^ i % 8) * 16, address(from != NONE ? from : 0) + R + SCALES_BYTES + l % 8 * 16, from != NONE);
    }
  }

  // Later steps of the half, at last those of the next piece, come to the registers that a step has left.
  template <int STEP = 0> void store_piece(Bytes (&held)[AHEAD], uint32_t to, uint32_t own, uint32_t half, uint32_t from, uint32_t next_half) const {
    if constexpr (STEP < STEPS) {
      store_latents<STEP>(held[STEP % AHEAD], to);
      if constexpr (STEP + AHEAD < STEPS)
        load_step(held[STEP % AHEAD], own, STEP + AHEAD, half);
      else
        load_step(held[STEP % AHEAD], from, STEP + AHEAD - STEPS, next_half);
      store_piece<STEP + 1>(held, to, own, half, from, next_half);
    }
  }

  // Of `entries`, keys from `first` to before `end`. Steps are on their way always; rows of the next tile but one are asked for, and lines of the next
  // one told to the L2 cache.
  void run(const int32_t* entries, int first, int end) const {
    store_shared_8(at.entries(), reinterpret_cast<uint64_t>(entries));  // registers are few
    sync_warp();
    const auto row_from = [&](int key) { return row(key + static_cast<int>(first_row() + own_lane() % KEYS_A_WARP), end); };
    uint32_t tile = 0, own = row_from(first), next = row_from(first + KEYS);
    Bytes held[AHEAD];
#pragma unroll
    for (int step = 0; step < AHEAD; ++step) load_step(held[step], own, step, 0);
#pragma unroll 1
    for (; first < end; first += KEYS, ++tile) {
      const uint32_t stage = tile % STAGES;
      tell(next);
      const uint32_t after = row_from(first + 2 * KEYS);
#pragma unroll 1
      for (uint32_t piece = 0; piece < PIECES; ++piece) {
        const uint32_t half = stage ^ piece, to = at.keys(stage) + half * HALF_BOXES * BOX + first_chunk();
        barrier_wait(at.empty(stage, piece), tile / STAGES % 2 ^ 1);
        if (piece == OWN_PIECE) {
          copy_scales(own, stage);
          const uint32_t some = lanes_where(own != NONE);
          if (own_lane() == 0) store_shared_2(at.seen(stage) + first_row() / 8, static_cast<uint16_t>(some));
        } else {
          copy_rope(own, stage);
        }
        barrier_arrive_after_copies(at.full(stage, piece));
        store_piece(held, to, own, half, piece == OWN_PIECE ? own : next, stage ^ 1);  // the next tile's first piece is of the same half
        sync_warp();
        if (own_lane() == 0) barrier_arrive(at.full(stage, piece));
      }
      own = next, next = after;
    }
  }
};
