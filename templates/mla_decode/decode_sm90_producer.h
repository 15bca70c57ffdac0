// The warps of Hopper's mla_decode that copy keys: this block's half of their features. A part of decode.sm90.cu, whose constants it uses.
#pragma once
$if gathered

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
$else

// By tensor maps: lane n of a warp copies the n-th `box_rows` keys of each tile, which lie in one page.
struct Copier {
  const TensorMap &latents, &ropes;
  const int32_t* table;  // of the sequence; null: its keys lie in one piece
  int sequence, page_keys, box_rows;
  int rope_at;           // of a token's features
  int left;              // keys

  void run(int key) const { copy(key + lane() * box_rows); }

 private:
  // Whether the lane of warp 0 has keys of a tile of which so many are seen.
  bool has(int seen) const { return static_cast<int>(keep_here(thread_x())) * box_rows < (seen < KEYS ? seen : KEYS); }

  void copy(int key) const {
    constexpr Places at{};
    Turn<STAGES> turn;
    int column = table ? key / page_keys : 0, inner = key - column * page_keys, seen = left;
    int page = !table ? sequence : has(seen) ? table[column] : 0;
#pragma unroll 1
    while (seen > 0) {
      const uint32_t full = at.full(turn.at);
      const int boxes = __popc(lanes_where(has(seen)));
      int next = page, next_inner = inner + KEYS;
      if (table) {
        while (next_inner >= page_keys) next_inner -= page_keys, ++column;
        if (has(seen - KEYS)) next = table[column];  // it is there when it is wanted
      }
      barrier_wait(at.empty(turn.at), turn.parity ^ 1);
      if (keep_here(thread_x()) == 0) barrier_arrive_expect(full, boxes * box_rows * (HALF + HALF_ROPE) * 2);
      sync_warp();
      if (has(seen)) {
        const int row = keep_here(thread_x()) * box_rows;
        const uint32_t to = at.keys(turn.at) + row * 128;
#pragma unroll
        for (int box = 0; box < HALF / 64; ++box) load_tile(to + box * BOX, latents, full, {cluster_rank() * HALF + box * 64, inner, page});
        load_tile(at.keys(turn.at) + ROPE_AT + row * HALF_ROPE * 2, ropes, full, {rope_at + cluster_rank() * HALF_ROPE, inner, page});
      }
      page = next, inner = next_inner, seen -= KEYS;
      turn.next();
    }
  }
};
$end
