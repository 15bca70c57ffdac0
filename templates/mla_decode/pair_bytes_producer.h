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
  static constexpr int KEYS_A_WARP = KEYS / (COPIERS / WARP), EARLY = 2, SCALES_BYTES = SCALES * 4, ROW_BYTES = R + SCALES_BYTES + 2 * ROPE;
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
  Pack<uint32_t, 4> load(uint32_t row, int offset) const { return row != NONE ? load_pack<4>(reinterpret_cast<const uint32_t*>(address(row) + offset)) : Pack<uint32_t, 4>{}; }
  // Lines of 128 bytes in which a row lies, to L2, by all lanes that have it.
  void tell(uint32_t row) const {
    if (row == NONE) return;
#pragma unroll 1
    for (int at = lane() / KEYS_A_WARP * 128; at < ROW_BYTES; at += WARP / KEYS_A_WARP * 128) fetch(address(row) + at);
    if (lane() < KEYS_A_WARP) fetch(address(row) + ROW_BYTES - 1);
  }

  // 16 features of a row's half, which are lane % 16 * 16 on. Lanes beside each other begin with different halves of those: they would else meet in banks.
  static void store_latents(const Pack<uint32_t, 4>& bytes, uint32_t stage, int half, int row) {
    const int l = own_lane() % 16, second = l / 4 % 2;
    const uint32_t to = at.keys(stage) + (half * HALF_BOXES + l / 4) * BOX + row * 128;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int which = h ^ second;
      uint32_t x[4];
      widen_bytes<float8_e4m3>(which ? bytes.at[2] : bytes.at[0], x[0], x[1]);
      widen_bytes<float8_e4m3>(which ? bytes.at[3] : bytes.at[1], x[2], x[3]);
      store_shared_16(to + ((l % 4 * 2 + which) ^ row % 8) * 16, {{halves_to_elements(x[0]), halves_to_elements(x[1]), halves_to_elements(x[2]), halves_to_elements(x[3])}});
    }
  }
  void copy_scales(uint32_t own, uint32_t stage, int first_row) const {
    const int l = own_lane();
    if (l < KEYS_A_WARP)
#pragma unroll 1
      for (int i = 0; i < SCALES; ++i) copy_async_4(at.scales(stage, i, first_row + l), address(own != NONE ? own : 0) + R + i * 4, own != NONE);
  }
  void copy_rope(uint32_t own, uint32_t stage, int first_row) const {
    const int l = own_lane();
#pragma unroll 1
    for (int i = 0; i < KEYS_A_WARP / 4; ++i) {
      const uint32_t from = shuffle(own, i * 4 + l / 8);
      const int r = first_row + i * 4 + l / 8;
      copy_async_16(at.keys(stage) + ROPE_BOX * BOX + r * 128 + (l % 8 ^ r % 8) * 16, address(from != NONE ? from : 0) + R + SCALES_BYTES + l % 8 * 16, from != NONE);
    }
  }
  static int own_lane() { return static_cast<int>(keep_here(thread_x())) % WARP; }

  // Keys from `first` to before `end`. A piece takes STEPS steps, of two half rows each; those of EARLY steps are on their way always.
  void run(int first, int end) const {
    constexpr int STEPS = KEYS_A_WARP / 2;
    const int warp_row = uniform(warp()) * KEYS_A_WARP;
    uint32_t own = row(first + warp_row + own_lane() % KEYS_A_WARP, end);
    uint32_t tile = 0;
    Pack<uint32_t, 4> latents[EARLY];
    const auto load_step = [&](int k, uint32_t rows, int step, int half) {
      latents[k] = load(shuffle(rows, step * 2 + own_lane() / 16), half * HALF + own_lane() % 16 * 16);
    };
#pragma unroll
    for (int k = 0; k < EARLY; ++k) load_step(k, own, k, 0);
#pragma unroll 1
    for (; first < end; first += KEYS, ++tile) {
      const uint32_t stage = tile % STAGES;
      const uint32_t next = row(first + KEYS + warp_row + own_lane() % KEYS_A_WARP, end);
      tell(next);
#pragma unroll 1
      for (int piece = 0; piece < PIECES; ++piece) {
        const int half = static_cast<int>(stage) ^ piece;
        barrier_wait(at.empty(stage, piece), tile / STAGES % 2 ^ 1);
        if (piece == OWN_PIECE)
          copy_scales(own, stage, warp_row);
        else
          copy_rope(own, stage, warp_row);
        copy_async_commit();
#pragma unroll 1
        for (int step = 0; step < STEPS; step += EARLY) {
          const bool last = step + EARLY == STEPS;  // what is loaded then is of the next piece; that of the next tile has the same half
          const uint32_t from = last && piece == OTHER_PIECE ? next : own;
#pragma unroll
          for (int k = 0; k < EARLY; ++k) {
            store_latents(latents[k], stage, half, warp_row + (step + k) * 2 + own_lane() / 16);
            load_step(k, from, last ? k : step + EARLY + k, last && piece == OWN_PIECE ? half ^ 1 : half);
          }
        }
        copy_async_wait<0>();
        const uint32_t some = lanes_where(own != NONE);
        if (own_lane() == 0) store_shared_1(at.seen(stage) + warp(), some);
        fence_async();
        sync_warp();
        if (own_lane() == 0) barrier_arrive(at.full(stage, piece));
      }
      own = next;
    }
  }
};
