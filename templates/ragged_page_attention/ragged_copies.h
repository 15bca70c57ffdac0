// GPU vocabulary of ragged_page_attention: keys and values on their way from pages to shared memory, by all threads of a block.
#pragma once
#include "device/attention/page_tile.h"
#include "ragged_page_attention/ragged_shares.h"

// Slots of pages: [pages, slots, 2 * kv head + (0: key, 1: value), features]. Strides in bytes.
struct RaggedCache {
  const char* data;
  int64_t page_stride, slot_stride, row_stride;
  const int32_t* tables;
  int64_t table_stride;
  int page_size;
};

// PAGE: the slots of a page, a power of two from 16 on; or 1: any number, cache.page_size. Places in shared memory: [STAGES] of a K and a V tile.
template <class T, class Shares, int TILE, int FEATURES, int FILLED, int THREADS, int PAGE> struct RaggedCopies {
  using Tile = PageTile<T, TILE, FEATURES>;
  static constexpr int CHUNKS = Tile::CHUNKS, COPIES = (TILE * CHUNKS + THREADS - 1) / THREADS, STEP = THREADS / CHUNKS;
  static constexpr int FILLED_BYTES = FILLED * static_cast<int>(sizeof(T));  // of a row; the rest is zeros
  static constexpr int STAGE_BYTES = 2 * Tile::BYTES;
  static constexpr int RUN = PAGE < TILE ? PAGE : TILE;  // rows of a tile that surely lie in one page
  // A thread stays in its column, and its rows of a run follow one another; else a lane looks up a row, or several.
  static constexpr bool STAYS = PAGE > 1 && THREADS % CHUNKS == 0 && TILE * CHUNKS % THREADS == 0 && RUN % (STEP > 0 ? STEP : 1) == 0;
  static constexpr bool RUN_IS_PAGE = STAYS && PAGE == RUN;  // a run begins with slot 0
  static constexpr int LOOK_UPS = STAYS ? TILE / RUN : (TILE + WARP - 1) / WARP;

  const RaggedCache& cache;
  int groups;                        // of query heads of a kv head
  SharedPointer memory;
  RaggedWalk<Shares> ahead;
  const char* base;                  // of its kv head's keys; STAYS: of the thread's chunk, in the first row that it has
  int page[LOOK_UPS], slot[LOOK_UPS];  // of the next tile's keys 0, RUN, ...; else of its keys lane, WARP + lane, ...

  Tile k_tile(int stage) const { return {memory + stage * STAGE_BYTES}; }
  Tile v_tile(int stage) const { return {memory + stage * STAGE_BYTES + Tile::BYTES}; }
  int first_key() const { return (ahead.first_tile + ahead.tile) * TILE; }

  // Reads the page table for the next tile, long before its pages are asked for.
  void look_up() {
#pragma unroll
    for (int i = 0; i < LOOK_UPS; ++i) {
      page[i] = 0;
      if (!RUN_IS_PAGE) slot[i] = 0;
      const int key = first_key() + (STAYS ? i * RUN : i * WARP + lane()), run = STAYS ? RUN : 1;
      if (ahead.tile >= ahead.end || key >= ahead.end_key || key + run <= ahead.first_key) continue;
      const unsigned size = PAGE == 1 ? cache.page_size : PAGE, number = static_cast<unsigned>(key) / size;
      if (!RUN_IS_PAGE) slot[i] = key - static_cast<int>(number * size);
      page[i] = cache.tables[ahead.sequence * cache.table_stride + number];
    }
  }
  // To the first stream from here on that has tiles.
  void enter_stream() {
    while (!ahead.over && ahead.tile >= ahead.end) ahead.next_stream();
    if (ahead.over) return;
    base = cache.data + 2 * quotient(ahead.pass, groups) * cache.row_stride;
    if (STAYS) base += thread_x() / CHUNKS * cache.slot_stride + thread_x() % CHUNKS * 16;
  }

  void copy(int stage) const {
    const Tile k = k_tile(stage), v = v_tile(stage);
    const int key = first_key();
    const unsigned visible = ahead.end_key - ahead.first_key;
    const int before = key - ahead.first_key;  // keys that somebody sees before the tile's first
    if constexpr (STAYS) {
      const int row = thread_x() / CHUNKS, chunk = thread_x() % CHUNKS;
      const bool filled = FILLED == FEATURES || chunk * 16 < FILLED_BYTES;
      const int64_t stride = cache.slot_stride * STEP;
#pragma unroll
      for (int run = 0; run < LOOK_UPS; ++run) {
        const char* from = base + page[run] * cache.page_stride + (RUN_IS_PAGE ? 0 : slot[run] * cache.slot_stride);
#pragma unroll
        for (int i = run * RUN; i < (run + 1) * RUN; i += STEP, from += stride) {
          const bool wanted = filled && static_cast<unsigned>(before + row + i) < visible;
          copy_async_16(k.at(row + i, chunk), from, wanted);
          copy_async_16(v.at(row + i, chunk), from + cache.row_stride, wanted);
        }
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < COPIES; ++i) {
        const int number = thread_x() + i * THREADS, row = number / CHUNKS % TILE, chunk = number % CHUNKS;
        int row_page = 0, row_slot = 0;
#pragma unroll
        for (int u = 0; u < LOOK_UPS; ++u) {
          const int other_page = shuffle(page[u], row % WARP), other_slot = shuffle(slot[u], row % WARP);
          if (row / WARP == u) row_page = other_page, row_slot = other_slot;
        }
        if (number >= TILE * CHUNKS) continue;
        const char* from = base + row_page * cache.page_stride + row_slot * cache.slot_stride + chunk * 16;
        const bool wanted = static_cast<unsigned>(before + row) < visible && chunk * 16 < FILLED_BYTES;
        copy_async_16(k.at(row, chunk), from, wanted);
        copy_async_16(v.at(row, chunk), from + cache.row_stride, wanted);
      }
    }
  }

  // Starts copying the next tile, if there is one, and moves on.
  void start(int stage) {
    if (ahead.tile < ahead.end) copy(stage);
    copy_async_commit();
    if (ahead.over) return;
    ++ahead.tile;
    if (ahead.tile >= ahead.end) enter_stream();
    look_up();
  }
};
