// GPU vocabulary of paged attention: keys and values on their way from pages to shared memory.
#pragma once
#include "page_attention/page_shares.h"
#include "device/attention/page_tile.h"
#include "device/tile/read_once.h"

// A cache of keys or values: [pages, kv heads, slots, features], or with slots before heads. Strides in bytes.
struct PageCache {
  const char* data;
  int64_t page_stride, head_stride, slot_stride;
};

// The copies of a team of warps, which has the tiles `team`, `team` + TEAMS, ... of each stream of the block's walk. PAGE: the slots of a
// page, a multiple of 16; or 1: any number, `page_size`. Places in shared memory: [STAGES] of a K and a V tile.
template <class T, int TILE, int FEATURES, int FILLED, int STAGES, int TEAMS, int TEAM_WARPS, int PAGE> struct PageCopies {
  using Tile = PageTile<T, TILE, FEATURES>;
  static constexpr int THREADS = TEAM_WARPS * WARP, CHUNKS = Tile::CHUNKS, COPIES = (TILE * CHUNKS + THREADS - 1) / THREADS;
  static constexpr int FILLED_BYTES = FILLED * static_cast<int>(sizeof(T));  // of a row; the rest is zeros
  static constexpr int STAGE_BYTES = 2 * Tile::BYTES;
  static constexpr int RUN = PAGE < TILE ? PAGE : TILE;             // rows of a tile that surely lie in one page
  static constexpr int LOOK_UPS = PAGE == 1 ? 1 : TILE / RUN;       // PAGE 1: a lane looks up a row
  static constexpr bool STAYS = PAGE > 1 && THREADS % CHUNKS == 0 && TILE * CHUNKS % THREADS == 0 && RUN % (THREADS / CHUNKS) == 0;

  const PageCache &keys, &values;
  const int32_t* tables;
  int64_t table_stride;
  int page_size, streams_a_kv_head;
  SharedPointer memory;                // of the team
  int team, thread;                    // the team's number, and the thread's in it
  Walk<TILE> ahead;
  const char *key_base, *value_base;   // of its kv head; STAYS: of the thread's chunk, in the first row that it has
  int page[LOOK_UPS], slot[LOOK_UPS];  // of the next tile's keys 0, RUN, ...; PAGE 1: of its key lane % TILE

  Tile k_tile(int stage) const { return {memory + stage * STAGE_BYTES}; }
  Tile v_tile(int stage) const { return {memory + stage * STAGE_BYTES + Tile::BYTES}; }

  int first_key() const { return (ahead.keys.first_tile() + ahead.tile + team) * TILE; }
  bool has_tile() const { return ahead.tile + team < ahead.end; }

  // Reads the page table for the next tile, long before its pages are asked for.
  void look_up() {
#pragma unroll
    for (int i = 0; i < LOOK_UPS; ++i) {
      page[i] = slot[i] = 0;
      const int key = first_key() + (PAGE == 1 ? lane() % TILE : i * RUN);
      if (!has_tile() || key >= ahead.keys.end || key + RUN <= ahead.keys.first) continue;
      const unsigned size = PAGE == 1 ? page_size : PAGE, number = static_cast<unsigned>(key) / size;
      slot[i] = key - static_cast<int>(number * size);
      page[i] = tables[ahead.sequence * table_stride + number];
    }
  }

  const char* base_of(const PageCache& cache, int kv_head) const {
    const char* head = cache.data + kv_head * cache.head_stride;
    return STAYS ? head + thread / CHUNKS * cache.slot_stride + thread % CHUNKS * 16 : head;
  }
  // To the first stream from here on that has tiles.
  void enter_stream() {
    while (!ahead.is_over() && ahead.tile >= ahead.end) ahead.next_stream();
    const int kv_head = ahead.stream / streams_a_kv_head;
    key_base = base_of(keys, kv_head);
    value_base = base_of(values, kv_head);
  }

  // A warp that is a team has all query rows of the kv head: no other warp reads its keys.
  static void copy_16(SharedPointer to, const char* from, bool wanted) {
    if constexpr (TEAM_WARPS == 1)
      copy_once_16(to, from, wanted);
    else
      copy_async_16(to, from, wanted);
  }

  void copy(const PageCache& cache, const char* base, const Tile& to) const {
    const int key = first_key();
    if constexpr (STAYS) {  // a thread stays in its column
      constexpr int STEP = THREADS / CHUNKS;
      const int row = thread / CHUNKS, chunk = thread % CHUNKS;
      const int before = key + row - ahead.keys.first;  // keys that are visible before this thread's first
      const unsigned visible = FILLED == FEATURES || chunk * 16 < FILLED_BYTES ? ahead.keys.end - ahead.keys.first : 0;
      const int64_t stride = cache.slot_stride * STEP;
      const SharedPointer first = to.at(row, chunk);
#pragma unroll
      for (int run = 0; run < LOOK_UPS; ++run) {
        const char* from = base + page[run] * cache.page_stride + slot[run] * cache.slot_stride;
#pragma unroll
        for (int i = run * RUN; i < (run + 1) * RUN; i += STEP, from += stride)
          copy_16(Tile::template below<STEP>(first, i), from, static_cast<unsigned>(before + i) < visible);
      }
    } else {
#pragma unroll
      for (int i = 0; i < COPIES; ++i) {
        const int number = thread + i * THREADS, row = number / CHUNKS % TILE, chunk = number % CHUNKS;
        int row_page = page[0], row_slot = slot[0] + row % RUN;
        if (PAGE == 1) row_page = shuffle(page[0], row), row_slot = shuffle(slot[0], row);
        if (LOOK_UPS > 1 && row >= RUN) row_page = page[LOOK_UPS - 1], row_slot = slot[LOOK_UPS - 1] + row % RUN;
        const char* from = base + row_page * cache.page_stride + row_slot * cache.slot_stride + chunk * 16;
        const bool wanted = ahead.keys.has(key + row) && chunk * 16 < FILLED_BYTES;
        if (number < TILE * CHUNKS) copy_16(to.at(row, chunk), from, wanted);
      }
    }
  }

  // Starts copying the next tile, if there is one, and moves on.
  void start(int stage) {
    if (has_tile()) {
      copy(keys, key_base, k_tile(stage));
      copy(values, value_base, v_tile(stage));
    }
    copy_async_commit();
    if (ahead.is_over()) return;
    ahead.tile += TEAMS;
    if (ahead.tile >= ahead.end) enter_stream();
    look_up();
  }
};
