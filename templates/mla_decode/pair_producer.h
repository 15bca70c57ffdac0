// The warp of Hopper's mla_decode of whole features that copies keys. A part of decode_pair.sm90.cu, whose constants it uses.
#pragma once

// To the second-level cache. (cp.async.bulk.prefetch.tensor)
static inline void fetch_tile(const TensorMap& map, const int (&at)[3]) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" : : "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]) : "memory");
}

// By tensor maps: lane n copies the n-th `box_rows` keys of each tile, which lie in one page.
struct Copier {
  const TensorMap &latents, &ropes;
  const int32_t* table;  // of the sequence; null: its keys lie in one piece
  int sequence, page_keys, box_rows;
  int rope_at;           // of a token's features
  int left;              // keys
  int fetched;           // of the boxes of the next tile: 0 or 1, those of even or odd number, where another block has the same keys; 2: none

  void run(int key) const { copy(key + lane() * box_rows); }

 private:
  // Whether the lane has keys of a tile of which so many are seen.
  bool has(int seen) const { return static_cast<int>(keep_here(thread_x())) * box_rows < (seen < KEYS ? seen : KEYS); }

  // A lane's rows of a tile; the bytes that all lanes copy of a box.
  struct Tile {
    uint32_t to, stage;
    int inner, page, bytes;
    bool some;
  };
  void copy_box(const Tile& tile, int box) const {
    constexpr Places at{};
    const uint32_t full = at.full(tile.stage, box);
    if (keep_here(thread_x()) == 0) barrier_arrive_expect(full, tile.bytes);
    sync_warp();
    if (tile.some) load_tile(tile.to + box * BOX, box == ROPE_BOX ? ropes : latents, full, {box == ROPE_BOX ? rope_at : box * 64, tile.inner, tile.page});
  }

  void copy(int key) const {
    constexpr Places at{};
    Turn<STAGES> turn;
    int column = table ? key / page_keys : 0, inner = key - column * page_keys, seen = left;
    int page = !table ? sequence : has(seen) ? table[column] : 0;
#pragma unroll 1
    while (seen > 0) {
      const int boxes = __popc(lanes_where(has(seen)));
      int next = page, next_inner = inner + KEYS;
      if (table) {
        while (next_inner >= page_keys) next_inner -= page_keys, ++column;
        if (has(seen - KEYS)) next = table[column];  // it is there when it is wanted
      }
      const Tile tile{at.keys(turn.at) + static_cast<uint32_t>(keep_here(thread_x())) * box_rows * 128, turn.at, inner, page, boxes * box_rows * 128, has(seen)};
      if (fetched < 2 && has(seen - KEYS)) {
#pragma unroll
        for (int box = 0; box < BOXES; ++box)
          if (box % 2 == fetched) fetch_tile(box == ROPE_BOX ? ropes : latents, {box == ROPE_BOX ? rope_at : box * 64, next_inner, next});
      }
#pragma unroll
      for (int piece = 0; piece < PIECES; ++piece) {
        barrier_wait(at.empty(turn.at, piece), turn.parity ^ 1);
        const int first = static_cast<int>(piece == OWN_PIECE ? turn.at : turn.at ^ 1) * HALF_BOXES;
        if (piece == ROPE_PIECE)
          copy_box(tile, ROPE_BOX);
        else
#pragma unroll
          for (int box = 0; box < HALF_BOXES; ++box) copy_box(tile, first + box);
      }
      page = next, inner = next_inner, seen -= KEYS;
      turn.next();
    }
  }
};
