// The warps of Hopper's mla_decode that copy keys: this block's half of their features. A part of decode.sm90.cu, whose constants it uses.
#pragma once

// Row by row of a cache; a warp copies 16 of a tile's keys. Keys that are not there become zeros.
struct Gatherer {
  const Element* cache;
  int64_t page_stride, token_stride;
  const int32_t* entries;      // slots of the query token, from the part's first key on; or pages of the sequence
  bool listed;
  int page_keys, begin, left;  // the part's first key, and how many it has

  // Where key `number` of the part lies; null: there is none.
  const Element* row(int number) const {
    if (number >= left) return nullptr;
    const int slot = listed ? entries[number] : begin + number;
    if (slot < 0) return nullptr;
    const int page = static_cast<unsigned>(slot) / static_cast<unsigned>(page_keys);
    return cache + (listed ? page : entries[page]) * page_stride + (slot - page * page_keys) * token_stride;
  }

  // Starts the copies of 16 rows, lane i's own being row i: this block's features.
  static void copy(uint32_t to, const Element* own) {
    const int l = keep_here(thread_x()) % WARP, rank = cluster_rank();
    to += keep_here(thread_x()) / WARP * 16 * 128;
#pragma unroll 1
    for (int i = 0; i < 16; ++i) {
      const Element* const from = of_lane(own, i);
      copy_async_16(to + l / 8 * BOX + i * 128 + (l % 8 ^ i % 8) * 16, from + rank * HALF + l * 8, from != nullptr);
    }
    to += ROPE_AT - keep_here(thread_x()) / WARP * 16 * 64;
#pragma unroll 1
    for (int i = l / 4; i < 16; i += 8) {
      const Element* const from = of_lane(own, i);
      copy_async_16(to + i * 64 + (l % 4 ^ i / 2 % 4) * 16, from + R + rank * HALF_ROPE + l % 4 * 8, from != nullptr);
    }
  }
  static const Element* of_lane(const Element* x, int from) {
    return reinterpret_cast<const Element*>(shuffle(reinterpret_cast<int64_t>(x), from));
  }

  void run() const {
    constexpr Places at{};
    Turn<STAGES> turn;
    int number = warp() * 16 + lane() % 16;  // of the own row
    const Element* own = row(number);
#pragma unroll 1
    for (int seen = left; seen > 0; seen -= KEYS) {
      number += KEYS;
      const Element* const next = row(number);  // its address is there when it is wanted
      barrier_wait(at.empty(turn.at), turn.parity ^ 1);
      copy(at.keys(turn.at), own);
      const uint32_t some = lanes_where(own != nullptr);
      if (keep_here(thread_x()) % WARP == 0) {
        store_shared_2(at.seen(turn.at) + keep_here(thread_x()) / WARP * 2, static_cast<uint16_t>(some));
        barrier_arrive(at.full(turn.at));
      }
      barrier_arrive_after_copies(at.full(turn.at));
      own = next;
      turn.next();
    }
  }
};
