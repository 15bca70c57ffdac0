// GPU vocabulary of ragged decoding: keys and values on their way from caches in one piece to shared memory.
#pragma once
#include "device/attention/page_tile.h"
#include "device/tile/read_once.h"
#include "ragged_decode_attention/ranges.h"

// Keys or values: [sequences, tokens, kv heads, features]. Strides in bytes.
struct TokenCache {
  const char* data;
  int64_t sequence_stride, head_stride, token_stride;
};

// The copies of a team of warps, which has the tiles `team`, `team` + TEAMS, ... of each stream of the block's walk. Places in shared memory:
// [STAGES] of a K and a V tile. FILLED of the FEATURES of a tile are those of a row; the rest is zeros.
template <class T, int TILE, int FEATURES, int FILLED, int STAGES, int TEAMS, int TEAM_WARPS> struct TokenCopies {
  using Tile = PageTile<T, TILE, FEATURES>;
  static constexpr int THREADS = TEAM_WARPS * WARP, CHUNKS = Tile::CHUNKS, COPIES = (TILE * CHUNKS + THREADS - 1) / THREADS;
  static constexpr int FILLED_BYTES = FILLED * static_cast<int>(sizeof(T));
  static constexpr int STAGE_BYTES = 2 * Tile::BYTES;
  static constexpr bool STAYS = THREADS % CHUNKS == 0 && TILE % (THREADS / CHUNKS) == 0;  // a thread stays in its column

  const TokenCache &keys, &values;
  int streams_a_kv_head;
  SharedPointer memory;  // of the team
  int team, thread;      // the team's number, and the thread's in it
  Walk<TILE> ahead;
  const char *key_base, *value_base;  // of its sequence and kv head; STAYS: of the thread's chunk, in the first row that it has

  Tile k_tile(int stage) const { return {memory + stage * STAGE_BYTES}; }
  Tile v_tile(int stage) const { return {memory + stage * STAGE_BYTES + Tile::BYTES}; }

  int first_key() const { return (ahead.keys.first_tile() + ahead.tile + team) * TILE; }
  bool has_tile() const { return ahead.tile + team < ahead.end; }
  void look_up() {}  // keys lie where they are counted

  const char* base_of(const TokenCache& cache, int kv_head) const {
    const char* head = cache.data + ahead.sequence * cache.sequence_stride + kv_head * cache.head_stride;
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

  void copy(const TokenCache& cache, const char* base, const Tile& to) const {
    const int key = first_key();
    const char* from = base + key * cache.token_stride;
    if constexpr (STAYS) {
      constexpr int STEP = THREADS / CHUNKS;
      const int row = thread / CHUNKS, chunk = thread % CHUNKS;
      const int before = key + row - ahead.keys.first;  // keys that are visible before this thread's first
      const unsigned visible = FILLED == FEATURES || chunk * 16 < FILLED_BYTES ? ahead.keys.end - ahead.keys.first : 0;
      const SharedPointer first = to.at(row, chunk);
#pragma unroll
      for (int i = 0; i < TILE; i += STEP, from += cache.token_stride * STEP)
        copy_16(Tile::template below<STEP>(first, i), from, static_cast<unsigned>(before + i) < visible);
    } else {
#pragma unroll
      for (int i = 0; i < COPIES; ++i) {
        const int number = thread + i * THREADS, row = number / CHUNKS % TILE, chunk = number % CHUNKS;
        const bool wanted = ahead.keys.has(key + row) && chunk * 16 < FILLED_BYTES;
        if (number < TILE * CHUNKS) copy_16(to.at(row, chunk), from + row * cache.token_stride + chunk * 16, wanted);
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
  }
};
