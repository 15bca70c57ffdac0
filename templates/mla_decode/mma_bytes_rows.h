// How rows of a cache of bytes come to shared memory. A part of decode_mma_bytes.gpu.cu, whose constants it uses.
#pragma once

struct ByteCache {
  const uint8_t* cache;
  int64_t page_stride, token_stride;
  const int32_t* entries;  // slots of the query token; or pages of the sequence
  int page_keys;
  bool listed;

  // Where key `number` lies; null: there is none.
  const uint8_t* row(int number, int end) const {
    if (number >= end) return nullptr;
    const int slot = listed ? entries[number] : number;
    if (slot < 0) return nullptr;
    const int page = static_cast<unsigned>(slot) / static_cast<unsigned>(page_keys);
    return cache + (listed ? page : entries[page]) * page_stride + (slot - page * page_keys) * token_stride;
  }
};

// LANES lanes copy a key of each tile. Where those of the next AHEAD tiles lie is in shared memory. Keys that are not there become zeros.
struct Rows {
  static constexpr int LANES = THREADS / KEYS, AHEAD = Places::AHEAD, CHUNKS = Places::ROW / 16;
  static_assert(THREADS == AHEAD * KEYS);
  const Places& at;
  const ByteCache cache;
  const int first, end, tiles;  // keys

  void look_ahead(int tile) const {
    tile += thread_x() / KEYS;
    *at.known(tile, thread_x() % KEYS) = tile < tiles ? cache.row(first + tile * KEYS + thread_x() % KEYS, end) : nullptr;
  }
  void start(int tile) const {
    if (tile < tiles) {
      const int key = thread_x() / LANES, chunk = thread_x() % LANES;
      const uint8_t* const row = *at.known(tile, key);
      const bool some = row != nullptr;
      const uint8_t* const from = (some ? row : cache.cache) + chunk * 16;
      const SharedPointer to = at.row(tile, key) + chunk * 16;
#pragma unroll
      for (int c = 0; c < CHUNKS; c += LANES)
        if (c + LANES <= CHUNKS || chunk < CHUNKS - c) copy_async_16(to + c * 16, from + c * 16, some);
      if (chunk == 0) at.seen(tile)[key] = some;
    }
    copy_async_commit();
  }
  // When all have started a tile: rows of later ones, if that was the last one that was known.
  void started(int tile) const {
    if (tile % AHEAD == AHEAD - 1) look_ahead(tile + 1);
  }
};
