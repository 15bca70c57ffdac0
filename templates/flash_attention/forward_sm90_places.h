// Where queries, keys and values of Hopper's forward attention lie in shared memory, with their barriers, and how they get there. A part of forward.sm90.cu, whose constants it uses.
#pragma once

// Barriers come in pairs: full, then empty. Each warpgroup has its own queries of a tile.
struct Places {  // in shared memory
  static constexpr uint32_t QUERIES = Q_STAGES * GROUPS, KEYS_AND_VALUES = QUERIES + 2 * STAGES, BARRIERS = KEYS_AND_VALUES + ADJUST_STAGES;
  static constexpr uint32_t K_AT = QUERIES * Q_BYTES, V_AT = K_AT + STAGES * K_BYTES, ADJUST_AT = V_AT + STAGES * V_BYTES;
  static constexpr uint32_t OUT_AT = ADJUST_AT + ADJUST_STAGES * ScoreTile::BYTES;
  static constexpr uint32_t BARRIERS_AT = OUT_AT + (STAGED ? GROUPS * 4 * SENT_BYTES : 0);
  uint32_t base;
  uint32_t q(uint32_t i, int part) const { return base + (i * GROUPS + part) * Q_BYTES; }
  uint32_t k(uint32_t i) const { return base + K_AT + i * K_BYTES; }
  uint32_t v(uint32_t i) const { return base + V_AT + i * V_BYTES; }
  uint32_t adjust(uint32_t i) const { return base + ADJUST_AT + i * ScoreTile::BYTES; }
  uint32_t out(int part) const { return base + OUT_AT + (part * 4 + warp() % 4) * SENT_BYTES; }  // of this warp
  uint32_t barrier(uint32_t i) const { return base + BARRIERS_AT + 16 * i; }
  uint32_t q_full(uint32_t i, int part) const { return barrier(i * GROUPS + part); }
  uint32_t k_full(uint32_t i) const { return barrier(QUERIES + i); }
  uint32_t v_full(uint32_t i) const { return barrier(QUERIES + STAGES + i); }
  uint32_t adjust_full(uint32_t i) const { return barrier(KEYS_AND_VALUES + i); }
  uint32_t found() const { return barrier(BARRIERS); }  // a tile is known
  uint32_t wanted() const { return found() + 8; }       // the one before it is being copied (and its bits made)
$if bits_apart
  // A warp that makes bits has 32 rows of a tile, those of two warps of consumers.
  static constexpr uint32_t BITS_BYTES = 32 * 16, BITS_AT = BARRIERS_AT + 16 * (BARRIERS + 1 + 4 * BITS_STAGES);
  uint32_t bits_full(uint32_t i, int maker) const { return barrier(BARRIERS + 1 + 4 * i + maker); }
  uint32_t bits(uint32_t i, int row) const { return base + BITS_AT + 4 * BITS_BYTES * i + 16 * row; }
  uint32_t chunks(int maker) const { return base + BITS_AT + 4 * BITS_STAGES * BITS_BYTES + maker * RowBits<BLOCK_N>::CHUNK_BYTES; }
$end
};
// Tiles are known Q_STAGES + 1 ahead, and to consumers until their outputs are stored.
constexpr uint32_t TILES = Q_STAGES + 3;
__shared__ AttentionTile known[TILES];
$if by_blocks
__shared__ int first_number[TILES];  // of a tile that is known: of its first step
__shared__ int step_number[2 * STAGES];  // of the steps whose keys are in shared memory; twice as many as there are, so that none is overwritten that someone has yet to read
static inline uint32_t step_place(const Turn<STAGES>& keys) { return 2 * keys.at + keys.parity; }
$end
static inline uint32_t empty(uint32_t full) { return full + 8; }

// Box i of 64 features, `token` of the sequence's row of the batch.
static inline void copy_box(uint32_t to, const TensorMap& map, uint32_t full, int i, int head, int token, int batch) {
  if constexpr (PACKED)
    load_tile(to, map, full, {64 * i, head, token});
  else
    load_tile(to, map, full, {64 * i, head, token, batch});
}
// COUNT boxes of a step's keys or values. Of a cluster, which goes through the same steps, each block copies its share of the tokens, to all.
template <int COUNT> static inline void copy_step(uint32_t to, const TensorMap& map, uint32_t full, int head, int token, int batch) {
$if cluster > 1
  constexpr int SHARE = BLOCK_N / CLUSTER;
  static_assert(SHARE % 8 == 0 && !PACKED);  // whole turns of the swizzle
  const int first = cluster_rank() * SHARE;
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    load_tile_multicast(to + i * KEY_BOX + first * 128, map, full, {64 * i, head, token + first, batch}, (1 << CLUSTER) - 1);
$else
#pragma unroll
  for (int i = 0; i < COUNT; ++i) copy_box(to + i * KEY_BOX, map, full, i, head, token, batch);
$end
}
// What a block of the cluster says to all: that it has read what lies where they copy to.
static inline void release_to_all(uint32_t full) {
#pragma unroll
  for (int to = 0; to < CLUSTER; ++to) barrier_release<CLUSTER>(empty(full), to);
}
