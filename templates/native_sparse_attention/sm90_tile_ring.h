// Hopper vocabulary: the ring of tiles of 64 keys and values that tokens of a block of threads go through, and the warp that copies them: tiles
// of blocks that any of the tokens selects, then tiles of means. Part of a template, which has defined before: Element, D and DV (multiples of
// 64), TOKENS, GROUPS (warpgroups of consumers) and STAGES.
#pragma once
#include "device/sm90/sm90_uniform.h"
#include "native_sparse_attention/select_blocks_gpu.h"

constexpr int KEYS_A_TILE = 64, ROW_HEADS = 16;                // keys; query heads of a token
constexpr uint32_t PANEL = KEYS_A_TILE * 128;                  // 64 features of a tile's keys or values
constexpr uint32_t QUERY_PANEL = TOKENS * ROW_HEADS * 128;     // 64 features of all queries
constexpr uint32_t STAGE_BYTES = PANEL * (D + DV) / 64;
enum TileKind { TILE_OF_BLOCKS, TILE_OF_MEANS, NO_TILE };
constexpr uint32_t WHOLE_TILE = 1u << 23;  // among the bits of tokens that want a tile: each of them sees all of it

// In shared memory beside the tiles, stage i of which begins i * STAGE_BYTES behind the first: keys, then values.
struct TileRing {
  uint32_t wanted[STAGES];                        // the tokens that see keys of the tile, a bit each, and its kind from bit 24 on
  int first[STAGES];                              // its first key
  uint64_t full[STAGES], empty[STAGES], queries;  // barriers

  // By one thread, before a barrier of the block.
  void start() {
#pragma unroll 1
    for (uint32_t i = 0; i < STAGES; ++i) {
      barrier_init(shared_pointer(&full[i]), 1);
      barrier_init(shared_pointer(&empty[i]), 4 * GROUPS);
    }
    barrier_init(shared_pointer(&queries), 1);
    fence_barrier_init();
  }
};

struct Producer {
  uint32_t tiles;  // the first stage
  TileRing& ring;
  const uint32_t* bits;  // [TOKENS][words], in shared memory
  int words, block_size, first_token, tokens;
  int kv_head, batch;
  Turn<STAGES> turn;
$if packed
  int start;  // the row of the sequence's first token; other tokens and keys are numbers in the sequence
$end

  int token() const { return first_token + lane(); }
  bool there() const { return lane() < TOKENS && token() < tokens; }

  // The tile is empty, and lane 0 writes what it will be.
  void open(TileKind kind, uint32_t wanted, int first) const {
    barrier_wait_all(shared_pointer(&ring.empty[turn.at]), turn.parity ^ 1);
    if (lane() == 0) ring.wanted[turn.at] = wanted | kind << 24, ring.first[turn.at] = first;
  }
  uint32_t full() const { return shared_pointer(&ring.full[turn.at]); }
  void next() {
    sync_warp();
    turn.next();
  }

  // The rows of 16 heads of each token, as FEATURES / 64 panels; `bytes` arrive in all.
  void expect_queries(uint32_t bytes) const {
    if (lane() == 0) barrier_arrive_expect(shared_pointer(&ring.queries), bytes);
    sync_warp();
  }
  template <int FEATURES> void copy_queries(uint32_t to, const TensorMap& map, int first_head) const {
    if (lane() != 0) return;
#pragma unroll
    for (int panel = 0; panel < FEATURES / 64; ++panel)
      load_tile(to + panel * QUERY_PANEL, map, shared_pointer(&ring.queries), {64 * panel, first_head, ${packed ? 'start + first_token' : 'first_token'}, batch});
  }
  void copy_keys(const TensorMap& k_map, const TensorMap& v_map, uint32_t wanted, int first) {
    open(TILE_OF_BLOCKS, first + KEYS_A_TILE <= first_token + 1 ? wanted | WHOLE_TILE : wanted, first);
    if (lane() == 0) {
      barrier_arrive_expect(full(), STAGE_BYTES);
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel) load_tile(tiles + turn.at * STAGE_BYTES + panel * PANEL, k_map, full(), {64 * panel, kv_head, ${packed ? 'start + first' : 'first'}, batch});
#pragma unroll
      for (int panel = 0; panel < DV / 64; ++panel) load_tile(tiles + turn.at * STAGE_BYTES + PANEL * D / 64 + panel * PANEL, v_map, full(), {64 * panel, kv_head, ${packed ? 'start + first' : 'first'}, batch});
    }
    next();
  }
  void copy_blocks(const TensorMap& k_map, const TensorMap& v_map) {
    const int last = first_token + TOKENS < tokens ? first_token + TOKENS - 1 : tokens - 1;
#pragma unroll 1
    for (int word = 0; word <= last / block_size / 32; ++word) {
      const uint32_t mine = there() ? bits[lane() * words + word] : 0;
      uint32_t any = static_cast<uint32_t>(uniform(static_cast<int>(mine)));
#pragma unroll 1
      for (; any != 0; any &= any - 1) {
        const int bit = __ffs(any) - 1, begin = (word * 32 + bit) * block_size;
#pragma unroll 1
        for (int first = begin; first < begin + block_size && first <= last; first += KEYS_A_TILE)
          copy_keys(k_map, v_map, lanes_where((mine >> bit & 1) != 0 && token() >= first), first);
      }
    }
  }
  // Of the kv head's means, each tile as it lies in a stage.
  void copy_means(const char* mean_tiles, int64_t tile_bytes) {
    const int past = there() ? (token() + 1) / block_size : 0;  // means that the token sees
#pragma unroll 1
    for (int first = 0;; first += KEYS_A_TILE, mean_tiles += tile_bytes) {
      const uint32_t wanted = lanes_where(past > first);
      if (wanted == 0) break;
      open(TILE_OF_MEANS, first + KEYS_A_TILE <= (first_token + 1) / block_size ? wanted | WHOLE_TILE : wanted, first);
      if (lane() == 0) {
        barrier_arrive_expect(full(), STAGE_BYTES);
        load_bytes(tiles + turn.at * STAGE_BYTES, mean_tiles, STAGE_BYTES, full());
      }
      next();
    }
  }
  void finish() {
    open(NO_TILE, 0, 0);
    if (lane() == 0) barrier_arrive(full());
    next();
  }
};
