// The warpgroups of Hopper's mla_decode of bytes that bring keys of a cache of bytes: features in e4m3 are exact in 16 bits, and become those on their way; scales
// go beside them. A part of decode_bytes.sm90.cu, whose constants it uses.
#pragma once
#include "device/number/bytes_to_halves.h"

// Of a warpgroup, for the keys of the consumer of the same number; a warp has 16 of 64 keys. Keys that are not there become zeros.
struct Widener {
  static constexpr int ROWS = 16, EARLY = 8, SCALES_BYTES = R / 128 * 4, ROW_BYTES = R + SCALES_BYTES + 2 * ROPE;
  const Places& at;
  const uint8_t* cache;
  int64_t page_stride, token_stride;
  const int32_t* entries;  // slots of the query token; or pages of the sequence
  bool listed;
  int page_keys;

  // Where key `number` lies; null: there is none.
  const uint8_t* row(int number, int end) const {
    if (number >= end) return nullptr;
    const int slot = listed ? entries[number] : number;
    if (slot < 0) return nullptr;
    const int page = static_cast<unsigned>(slot) / static_cast<unsigned>(page_keys);
    return cache + (listed ? page : entries[page]) * page_stride + (slot - page * page_keys) * token_stride;
  }
  static const uint8_t* of_lane(const uint8_t* x, int from) { return reinterpret_cast<const uint8_t*>(shuffle(reinterpret_cast<int64_t>(x), from)); }
  static Pack<uint32_t, 4> load(const uint8_t* from) { return from ? load_pack<4>(reinterpret_cast<const uint32_t*>(from)) : Pack<uint32_t, 4>{}; }
  // Lines of 128 bytes in which a row lies, by two lanes, to L2.
  static void tell(const uint8_t* row) {
    if (!row) return;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const int at = (lane() / 16 * 3 + i) * 128;
      fetch(row + (at < ROW_BYTES ? at : ROW_BYTES - 1));
    }
  }

  // Eight features.
  static void widen(uint32_t low, uint32_t high, Pack<uint32_t, 4>& x) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t two[2];
      widen_bytes<float8_e4m3>(i == 0 ? low : high, two[0], two[1]);
#pragma unroll
      for (int j = 0; j < 2; ++j)
        x.at[2 * i + j] = pack_pair<Element>(to_float(half{static_cast<uint16_t>(two[j])}), to_float(half{static_cast<uint16_t>(two[j] >> 16)}));
    }
  }
  // 16 features of row i, which are lane * 16 on. Lanes beside each other begin with different halves: they would else meet in banks.
  void store_latents(const Pack<uint32_t, 4>& bytes, int group, int i) const {
    const int l = lane(), second = l / 4 % 2;
    const uint32_t to = at.keys(group) + l / 4 * BOX + i * 128;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int which = h ^ second;
      Pack<uint32_t, 4> x;
      widen(which ? bytes.at[2] : bytes.at[0], which ? bytes.at[3] : bytes.at[1], x);
      store_shared_16(to + ((l % 4 * 2 + which) ^ i % 8) * 16, x);
    }
  }

  // Keys of `group` among those from `first` to before `end`.
  void run(int group, int first, int end) const {
    const int l = lane(), warp_row = warp() % 4 * ROWS;
    int number = first + group * KEYS + warp_row + l % ROWS;
    const uint8_t* own = row(number, end);
    uint32_t parity = 1;
#pragma unroll 1
    for (first += group * KEYS; first < end; first += GROUPS * KEYS, parity ^= 1) {
      number += GROUPS * KEYS;
      const uint8_t* const next = row(number, end);
      tell(next);
      const uint32_t some = lanes_where(own != nullptr);
      // Most of a tile is on its way while the last one is at work, the rest while that is widened.
      Pack<uint32_t, 4> latents[EARLY];
      const auto load_latents = [&](int i) {
        const uint8_t* const from = of_lane(own, i);
        latents[i % EARLY] = load(from ? from + l * 16 : nullptr);
      };
#pragma unroll
      for (int i = 0; i < EARLY; ++i) load_latents(i);
      barrier_wait(at.empty(group), parity);
#pragma unroll
      for (int i = 0; i < ROWS / 4; ++i) {
        const uint8_t* const from = of_lane(own, i * 4 + l / 8);
        const int r = warp_row + i * 4 + l / 8;
        copy_async_16(at.keys(group) + R / 64 * BOX + r * 128 + (l % 8 ^ r % 8) * 16, from + R + SCALES_BYTES + l % 8 * 16, from != nullptr);
      }
      if (l < ROWS) copy_async_16(at.scales(group) + (warp_row + l) * 16, own + R, own != nullptr);
      copy_async_commit();
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        store_latents(latents[i % EARLY], group, warp_row + i);
        if (i + EARLY < ROWS) load_latents(i + EARLY);
      }
      copy_async_wait<0>();
      if (l == 0) store_shared_2(at.seen(group) + warp() % 4 * 2, static_cast<uint16_t>(some));
      fence_async();
      sync_warp();
      if (l == 0) barrier_arrive(at.full(group));
      own = next;
    }
  }
};
