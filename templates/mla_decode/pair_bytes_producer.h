// The warpgroups of Hopper's mla_decode of bytes and 64 heads a block that bring keys: features in e4m3 are exact in bfloat16, and become that on their way; scales
// go beside them. A part of decode_pair_bytes.sm90.cu, whose constants it uses.
#pragma once
#include "device/number/bytes_to_halves.h"

// Two halves, as bfloat16.
static inline uint32_t halves_to_elements(uint32_t x) {
  return pack_pair<Element>(to_float(half{static_cast<uint16_t>(x)}), to_float(half{static_cast<uint16_t>(x >> 16)}));
}

// A warp has KEYS_A_WARP of a tile's keys. Keys that are not there become zeros.
struct Widener {
  static constexpr uint32_t KEYS_A_WARP = KEYS / (COPIERS / WARP), SCALES_BYTES = SCALES * 4, ROW_BYTES = R + SCALES_BYTES + 2 * ROPE;
  static constexpr Places at{};
  const uint8_t* cache;
  uint32_t page_stride, token_stride;  // in units of 16 bytes
  const int32_t* entries;              // slots of the query token; or pages of the sequence
  bool listed;
  int page_keys;
  static constexpr uint32_t NONE = ~0u;

  // Where key `number` lies, in units of 16 bytes.
  uint32_t row(int number, int end) const {
    if (number >= end) return NONE;
    const int slot = listed ? entries[number] : number;
    if (slot < 0) return NONE;
    const int page = static_cast<unsigned>(slot) / static_cast<unsigned>(page_keys);
    return static_cast<uint32_t>(listed ? page : entries[page]) * page_stride + static_cast<uint32_t>(slot - page * page_keys) * token_stride;
  }
  const uint8_t* address(uint32_t row) const { return cache + uint64_t{row} * 16; }
  // Lines of 128 bytes in which a row lies, to L2, by all lanes that have it.
  void tell(uint32_t row) const {
    if (row == NONE) return;
    const uint32_t l = own_lane();
#pragma unroll 1
    for (uint32_t at = l / KEYS_A_WARP * 128; at < ROW_BYTES; at += WARP / KEYS_A_WARP * 128) fetch(address(row) + at);
    if (l < KEYS_A_WARP) fetch(address(row) + ROW_BYTES - 1);
  }

  static uint32_t own_lane() { return keep_here(thread_x()) % WARP; }
  static uint32_t first_row() { return keep_here(thread_x()) / WARP * KEYS_A_WARP; }

  // Where in a piece 16 features of its row lane / 16 go, which are lane % 16 * 16 on, in two chunks of 8. Lanes beside each other begin with different ones: they
  // would else meet in banks.
  static uint32_t first_chunk() {
    const uint32_t l = own_lane(), row = l / 16, box = l / 4 % 4, chunk = l % 4 * 2 + box % 2;
    return box * BOX + (first_row() + row) * 128 + (chunk ^ row) * 16;
  }
  // Of a row 2 * STEP further.
  template <uint32_t STEP> static void store_latents(const Pack<uint32_t, 4>& bytes, uint32_t to) {
    const bool second = own_lane() / 4 % 2;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const bool upper = second != (h == 1);
      uint32_t x[4];
      widen_bytes<float8_e4m3>(upper ? bytes.at[2] : bytes.at[0], x[0], x[1]);
      widen_bytes<float8_e4m3>(upper ? bytes.at[3] : bytes.at[1], x[2], x[3]);
      store_shared_16((to ^ (STEP * 32 + h * 16)) + STEP * 256, {{halves_to_elements(x[0]), halves_to_elements(x[1]), halves_to_elements(x[2]), halves_to_elements(x[3])}});
    }
  }
  void copy_scales(uint32_t own, uint32_t stage) const {
    const uint32_t block = own_lane() / KEYS_A_WARP;
    copy_async_4(at.scales(stage, block, first_row() + own_lane() % KEYS_A_WARP), address(own != NONE ? own : 0) + R + block * 4, own != NONE);
  }
  void copy_rope(uint32_t own, uint32_t stage) const {
    const uint32_t l = own_lane();
#pragma unroll 1
    for (uint32_t i = l / 8; i < KEYS_A_WARP; i += 4) {
      const uint32_t from = shuffle(own, i);
      copy_async_16(at.keys(stage) + ROPE_BOX * BOX + (first_row() + i) * 128 + (l % 8 ^ i) * 16, address(from != NONE ? from : 0) + R + SCALES_BYTES + l % 8 * 16, from != NONE);
    }
  }
  // Features of half rows 2 * step and the next of `rows`, which lanes have.
  Pack<uint32_t, 4> load_step(uint32_t rows, uint32_t step, uint32_t half) const {
    const uint32_t row = shuffle(rows, step * 2 + own_lane() / 16);
    return row != NONE ? load_pack<4>(reinterpret_cast<const uint32_t*>(address(row + half * (HALF / 16) + own_lane() % 16))) : Pack<uint32_t, 4>{};
  }

  // Keys from `first` to before `end`. A piece takes four steps, of two half rows each; those of two are on their way always.
  void run(int first, int end) const {
    static_assert(KEYS_A_WARP == 8 && SCALES * KEYS_A_WARP == WARP);
    uint32_t tile = 0, own = row(first + first_row() + own_lane() % KEYS_A_WARP, end);
    Pack<uint32_t, 4> even = load_step(own, 0, 0), odd = load_step(own, 1, 0);
#pragma unroll 1
    for (; first < end; first += KEYS, ++tile) {
      const uint32_t stage = tile % STAGES, next = row(first + KEYS + first_row() + own_lane() % KEYS_A_WARP, end);
      tell(next);
#pragma unroll 1
      for (uint32_t piece = 0; piece < PIECES; ++piece) {
        const uint32_t half = stage ^ piece, after = piece == OWN_PIECE ? half ^ 1 : half;  // the next tile's first piece is of the same half
        const uint32_t to = at.keys(stage) + half * HALF_BOXES * BOX + first_chunk();
        barrier_wait(at.empty(stage, piece), tile / STAGES % 2 ^ 1);
        if (piece == OWN_PIECE)
          copy_scales(own, stage);
        else
          copy_rope(own, stage);
        copy_async_commit();
        store_latents<0>(even, to);
        even = load_step(own, 2, half);
        store_latents<1>(odd, to);
        odd = load_step(own, 3, half);
        const uint32_t from = piece == OWN_PIECE ? own : next;
        store_latents<2>(even, to);
        even = load_step(from, 0, after);
        store_latents<3>(odd, to);
        odd = load_step(from, 1, after);
        copy_async_wait<0>();
        const uint32_t some = lanes_where(own != NONE);
        if (own_lane() == 0) store_shared_1(at.seen(stage) + first_row() / 8, some);
        fence_async();
        sync_warp();
        if (own_lane() == 0) barrier_arrive(at.full(stage, piece));
      }
      own = next;
    }
  }
};
