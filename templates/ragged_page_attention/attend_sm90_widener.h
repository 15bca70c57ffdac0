// The warpgroup of ragged_page_attention on Hopper that makes 16-bit numbers of 8-bit keys and values, as products take them. Part of attend.sm90.cu, whose
// constants it uses.
#pragma once
#include "device/number/bytes_to_halves.h"

struct Widener {
  static constexpr int PACKS = BLOCK_N * D / 16 / WARPGROUP, AT_ONCE = 2;  // of 16 bytes: a thread's of a step; those that it loads at once, while it widens as many
  static_assert(PACKS % AT_ONCE == 0);
  static_assert(D == 128);  // tile copies with the swizzle of 128 bytes would spread shorter rows
  const Places& at;

  // Where this thread's first pack is. Eight lanes have four packs of each of two rows that are 5 apart in bits, so that they meet in no bank: neither
  // as bytes, 128 of which have the swizzle of tile copies, nor as what becomes of them.
  struct Pack16 {
    static constexpr uint32_t NEXT_FROM = WARPGROUP * 16, NEXT_TO = 2 * NEXT_FROM / HALVES;  // to the next one
    uint32_t from, to[2];
    Pack16() {
      const uint32_t thread = thread_x() % WARPGROUP, lane4 = thread % 4, other_row = thread / 4 % 2, rest = thread / 8;
      const uint32_t row = rest / (4 * HALVES) * 8 + (rest % 4 ^ 5 * other_row), part = rest / 4 % HALVES, at = row * D + part * 64 + lane4 * 16;
      from = at ^ (at >> 3 & 0x70);
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) to[i] = part * KEY_BOX + row * 128 + ((2 * lane4 + i) ^ row % 8) * 16;
    }
  };

  template <class To> static uint32_t of_halves(uint32_t pair) {
    if constexpr (IS_HALF<To>) return pair;
    const auto element = [&](uint32_t bits) { return to_float(__builtin_bit_cast(half, static_cast<uint16_t>(bits))); };
    return pack_pair<To>(element(pair), element(pair >> 16));
  }
  template <class To> static void store(uint32_t to, uint32_t a, uint32_t b) {
    uint32_t w[4] = {};
    widen_bytes<Cached>(a, w[0], w[1]);
    widen_bytes<Cached>(b, w[2], w[3]);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 : : "r"(to), "r"(of_halves<To>(w[0])), "r"(of_halves<To>(w[1])), "r"(of_halves<To>(w[2])), "r"(of_halves<To>(w[3])) : "memory");
  }

  // A step's keys or values, from bytes to numbers; both places have a barrier that says when they are full, and one when they are empty.
  template <class To> void widen(uint32_t from, uint32_t from_full, uint32_t from_parity, uint32_t to, uint32_t to_full, uint32_t to_parity) const {
    const Pack16 own;
    barrier_wait_all(from_full, from_parity);
    uint32_t x[2][AT_ONCE][4];
    const auto load = [&](uint32_t(&to)[AT_ONCE][4], int first) {
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[i][0]), "=r"(to[i][1]), "=r"(to[i][2]), "=r"(to[i][3]) : "r"(from + own.from + (first + i) * Pack16::NEXT_FROM) : "memory");
    };
    load(x[0], 0);
    barrier_wait_all(empty(to_full), to_parity ^ 1);
#pragma unroll
    for (int first = 0; first < PACKS; first += AT_ONCE) {
      const int turn = first / AT_ONCE % 2;
      if (first + AT_ONCE < PACKS) load(x[1 - turn], first + AT_ONCE);
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
        for (int k = 0; k < 2; ++k) store<To>(to + own.to[k] + (first + i) * Pack16::NEXT_TO, x[turn][i][2 * k], x[turn][i][2 * k + 1]);
    }
    fence_async();
    sync_warp();
    if (lane() == 0) {
      barrier_arrive(to_full);
      barrier_arrive(empty(from_full));
    }
  }

  void run() const {
    Turn<ITEMS> place;
    Turn<RAW_STAGES> from;
    Turn<STAGES> to;
    for (int parity = 0;; parity ^= 1) {
      barrier_wait_all(at.found(), parity);
      const KnownItem& now = known[place.at];
      place.next();
      if (uniform(now.number) < 0) return;
      const int steps = uniform(now.item.end) - uniform(now.item.first);
      sync_warp();
      if (lane() == 0) barrier_arrive(at.wanted());
#pragma unroll 1
      for (int i = 0; i < steps; ++i) {
        widen<Element>(at.raw_k(from.at), at.raw_k_full(from.at), from.parity, at.k(to.at), at.k_full(to.at), to.parity);
        widen<Weight>(at.raw_v(from.at), at.raw_v_full(from.at), from.parity, at.v(to.at), at.v_full(to.at), to.parity);
        from.next();
        to.next();
      }
    }
  }
};
