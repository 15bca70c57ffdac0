// The warpgroup of Hopper's mla_decode of whole features that copies keys which no tensor map does, row by row. A part of decode_pair.sm90.cu, whose constants it uses.
#pragma once

// A warp copies 16 of a tile's keys. Keys that are not there become zeros.
struct Gatherer {
  static constexpr int KEYS_A_WARP = 16, ROW_BYTES = (R + ROPE) * 2;
  static constexpr Places at{};
  const Element* cache;
  int64_t page_stride, token_stride;
  const int32_t* entries;  // slots of the query token, from the part's first key on; or pages of the sequence
  bool listed;
  int page_keys, begin, left;  // the part's first key, and how many it has

  // What says where key `number` of the part lies: its slot, or its page. It is asked for a tile before it is needed.
  int entry(int number) const {
    if (number >= left) return -1;
    return entries[listed ? number : static_cast<unsigned>(begin + number) / static_cast<unsigned>(page_keys)];
  }
  // Where it lies; null: there is none.
  const Element* row(int number, int entry) const {
    if (entry < 0) return nullptr;
    const int slot = listed ? entry : begin + number, page = static_cast<unsigned>(slot) / static_cast<unsigned>(page_keys);
    return cache + (listed ? page : entry) * page_stride + (slot - page * page_keys) * token_stride;
  }
  static int own_lane() { return static_cast<int>(keep_here(thread_x())) % WARP; }
  static int first_row() { return static_cast<int>(keep_here(thread_x())) / WARP * KEYS_A_WARP; }
  static const Element* of_lane(const Element* x, int from) { return reinterpret_cast<const Element*>(shuffle(reinterpret_cast<int64_t>(x), from)); }

  // Boxes [first, first + COUNT), lane i's own being row i.
  template <int COUNT> static void copy(uint32_t stage, int first, const Element* own) {
    const int l = own_lane();
#pragma unroll 1
    for (int i = 0; i < KEYS_A_WARP; i += 4) {
      const Element* const from = of_lane(own, i + l / 8);
      const int r = first_row() + i + l / 8;
#pragma unroll
      for (int box = 0; box < COUNT; ++box)
        copy_async_16(at.keys(stage) + (first + box) * BOX + r * 128 + (l % 8 ^ r % 8) * 16, from + (first + box) * 64 + l % 8 * 8, from != nullptr);
    }
#pragma unroll
    for (int box = 0; box < COUNT; ++box) barrier_arrive_after_copies(at.full(stage, first + box));
  }

  void run() const {
    Turn<STAGES> turn;
    int number = first_row() + own_lane() % KEYS_A_WARP;  // of the own row
    const Element* own = row(number, entry(number));
    int next_entry = entry(number + KEYS);
#pragma unroll 1
    for (int seen = left; seen > 0; seen -= KEYS) {
      number += KEYS;
      const Element* const next = row(number, next_entry);
      next_entry = entry(number + KEYS);
      barrier_wait(at.empty(turn.at, ROPE_PIECE), turn.parity ^ 1);
      const uint32_t some = lanes_where(own != nullptr);
      if (own_lane() == 0) {
        store_shared_2(at.seen(turn.at) + first_row() / 8, static_cast<uint16_t>(some));
        barrier_arrive(at.full(turn.at, ROPE_BOX));
      }
      copy<1>(turn.at, ROPE_BOX, own);
#pragma unroll 1
      for (int piece = OWN_PIECE; piece < PIECES; ++piece) {
        barrier_wait(at.empty(turn.at, piece), turn.parity ^ 1);
        copy<HALF_BOXES>(turn.at, static_cast<int>(piece == OWN_PIECE ? turn.at : turn.at ^ 1) * HALF_BOXES, own);
      }
      own = next;
      turn.next();
    }
  }
};
