// The warp of Hopper's mla_decode of bytes in registers that copies keys which lie one after the other. A part of decode_raw_bytes.sm90.cu, whose constants it uses.
#pragma once

// Lane n copies the n-th `box_rows` keys of each tile, which lie in one page.
struct Copier {
  const Places& at;
  const uint8_t* cache;
  uint32_t page_stride;  // in units of 16 bytes
  const int32_t* table;  // of the sequence
  int page_keys, box_rows, left;

  // Whether the lane has keys of a tile from which on so many are left.
  bool has(int keys) const { return lane() * box_rows < (keys < KEYS ? keys : KEYS); }

  void run(int key) const {
    key += lane() * box_rows;
    Turn<STAGES> turn;
    int column = key / page_keys, inner = key - column * page_keys, page = has(left) ? table[column] : 0;
#pragma unroll 1
    for (int keys = left; keys > 0; keys -= KEYS) {
      const bool some = has(keys);
      const int boxes = __popc(lanes_where(some));
      int next = page, next_inner = inner + KEYS;
      while (next_inner >= page_keys) next_inner -= page_keys, ++column;
      if (has(keys - KEYS)) next = table[column];  // it is there when it is wanted
      const uint32_t full = at.full(turn.at);
      barrier_wait(at.empty(turn.at), turn.parity ^ 1);
      if (lane() == 0) barrier_arrive_expect(full, boxes * box_rows * KEY_ROW);
      sync_warp();
      if (some) load_bytes(at.keys(turn.at) + lane() * box_rows * KEY_ROW, cache + (uint64_t{static_cast<uint32_t>(page)} * page_stride * 16 + inner * KEY_ROW), box_rows * KEY_ROW, full);
      page = next, inner = next_inner;
      turn.next();
    }
  }
};
