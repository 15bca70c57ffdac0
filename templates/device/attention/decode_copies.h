// GPU vocabulary of decoding: keys and values on their way to shared memory. Part of a template that has included
// device/attention/decode_shares.h. The value `paged` says where they lie: in pages that a table names, or in one piece.
#pragma once
#include "device/attention/page_tile.h"
#include "device/tile/read_once.h"

$if paged
// A cache of keys or values: [pages, kv heads, slots, features], or with slots before heads. Strides in bytes.
struct KeyCache {
  const char* data;
  int64_t page_stride, head_stride, token_stride;
};
$else
// Keys or values: [sequences, tokens, kv heads, features]. Strides in bytes.
struct KeyCache {
  const char* data;
  int64_t sequence_stride, head_stride, token_stride;
};
$end

// The copies of a team of warps, which has the tiles `team`, `team` + TEAMS, ... of each stream of the block's walk. Places in shared
// memory: stages of a K and a V tile. FILLED of the FEATURES of a tile are those of a row; the rest is zeros. Of pages, PAGE: the slots of
// one, a multiple of 16; or 1: any number, `page_size`.
template <class T, int TILE, int FEATURES, int FILLED, int TEAMS, int TEAM_WARPS, int PAGE> struct StreamCopies {
  using Tile = PageTile<T, TILE, FEATURES>;
  static constexpr int THREADS = TEAM_WARPS * WARP, CHUNKS = Tile::CHUNKS, COPIES = (TILE * CHUNKS + THREADS - 1) / THREADS;
  static constexpr int FILLED_BYTES = FILLED * static_cast<int>(sizeof(T));
  static constexpr int STAGE_BYTES = 2 * Tile::BYTES;
$if paged
  static constexpr int RUN = PAGE < TILE ? PAGE : TILE;        // rows of a tile that surely lie in one page
  static constexpr int LOOK_UPS = PAGE == 1 ? 1 : TILE / RUN;  // PAGE 1: a lane looks up a row
  static constexpr bool STAYS = PAGE > 1 && THREADS % CHUNKS == 0 && TILE * CHUNKS % THREADS == 0 && RUN % (THREADS / CHUNKS) == 0;
$else
  static constexpr bool STAYS = THREADS % CHUNKS == 0 && TILE % (THREADS / CHUNKS) == 0;
$end

  const KeyCache &keys, &values;
$if paged
  const int32_t* tables;
  int64_t table_stride;
  int page_size;
$end
  int streams_a_kv_head;
  SharedPointer memory;               // of the team
  int team, thread;                   // the team's number, and the thread's in it
  Walk<TILE> ahead;
  const char *key_base, *value_base;  // of its sequence and kv head; STAYS, in its column: of the thread's chunk, in its first row
$if paged
  int page[LOOK_UPS], slot[LOOK_UPS];  // of the next tile's keys 0, RUN, ...; PAGE 1: of its key lane % TILE
$end

  Tile k_tile(int stage) const { return {memory + stage * STAGE_BYTES}; }
  Tile v_tile(int stage) const { return {memory + stage * STAGE_BYTES + Tile::BYTES}; }

  int first_key() const { return (ahead.keys.first_tile() + ahead.tile + team) * TILE; }
  bool has_tile() const { return ahead.tile + team < ahead.end; }

  // Reads the page table for the next tile, long before its pages are asked for.
  void look_up() {
$if paged
#pragma unroll
    for (int i = 0; i < LOOK_UPS; ++i) {
      page[i] = slot[i] = 0;
      const int key = first_key() + (PAGE == 1 ? lane() % TILE : i * RUN);
      if (!has_tile() || key >= ahead.keys.end || key + RUN <= ahead.keys.first) continue;
      const unsigned size = PAGE == 1 ? page_size : PAGE, number = static_cast<unsigned>(key) / size;
      slot[i] = key - static_cast<int>(number * size);
      page[i] = tables[ahead.sequence * table_stride + number];
    }
$end
  }

  const char* base_of(const KeyCache& cache, int kv_head) const {
    const char* head = cache.data + ${paged ? '' : 'ahead.sequence * cache.sequence_stride + '}kv_head * cache.head_stride;
    return STAYS ? head + thread / CHUNKS * cache.token_stride + thread % CHUNKS * 16 : head;
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

  void copy(const KeyCache& cache, const char* base, const Tile& to) const {
    const int key = first_key();
$if not paged
    const char* from = base + key * cache.token_stride;
$end
    if constexpr (STAYS) {
      constexpr int STEP = THREADS / CHUNKS;
      const int row = thread / CHUNKS, chunk = thread % CHUNKS;
      const int before = key + row - ahead.keys.first;  // keys that are visible before this thread's first
      const unsigned visible = FILLED == FEATURES || chunk * 16 < FILLED_BYTES ? ahead.keys.end - ahead.keys.first : 0;
$if paged
      const int64_t stride = cache.token_stride * STEP;
      const SharedPointer first = to.at(row, chunk);
#pragma unroll
      for (int run = 0; run < LOOK_UPS; ++run) {
        const char* from = base + page[run] * cache.page_stride + slot[run] * cache.token_stride;
#pragma unroll
        for (int i = run * RUN; i < (run + 1) * RUN; i += STEP, from += stride)
          copy_16(Tile::template below<STEP>(first, i), from, static_cast<unsigned>(before + i) < visible);
      }
$else
      const SharedPointer first = to.at(row, chunk);
#pragma unroll
      for (int i = 0; i < TILE; i += STEP, from += cache.token_stride * STEP)
        copy_16(Tile::template below<STEP>(first, i), from, static_cast<unsigned>(before + i) < visible);
$end
    } else {
#pragma unroll
      for (int i = 0; i < COPIES; ++i) {
        const int number = thread + i * THREADS, row = number / CHUNKS % TILE, chunk = number % CHUNKS;
$if paged
        int row_page = page[0], row_slot = slot[0] + row % RUN;
        if (PAGE == 1) row_page = shuffle(page[0], row), row_slot = shuffle(slot[0], row);
        if (LOOK_UPS > 1 && row >= RUN) row_page = page[LOOK_UPS - 1], row_slot = slot[LOOK_UPS - 1] + row % RUN;
        const char* from = base + row_page * cache.page_stride + row_slot * cache.token_stride + chunk * 16;
        const bool wanted = ahead.keys.has(key + row) && chunk * 16 < FILLED_BYTES;
        if (number < TILE * CHUNKS) copy_16(to.at(row, chunk), from, wanted);
$else
        const bool wanted = ahead.keys.has(key + row) && chunk * 16 < FILLED_BYTES;
        if (number < TILE * CHUNKS) copy_16(to.at(row, chunk), from + row * cache.token_stride + chunk * 16, wanted);
$end
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
