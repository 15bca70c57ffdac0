// mla_decode on matrix instructions of a warp (mma.sync). A block takes up to 64 heads of a query token through a part of its keys, a tile at a time, which is
// read once for all of them and serves as keys and as values; a second launch puts the parts together. How many parts there are does not depend on lengths.
//
// Features in e4m3 are exact in 16 bits: the tile has them as stored. Their scales, one for 128 features of a key, multiply the sums of products of these
// features in scores, and the weights that meet their values.
//
// All rows of a block see the same keys, so that what is hidden is never copied: zeros stand in its place. Warps share the scores by keys and rows, then
// the softmax by rows, then the outputs by features, each of which stays in its registers; between these steps scores and weights are in shared memory.
#include "mla_decode/finish_parts.h"
#include "device/number/float8.h"
#include "device/tile/tile.h"

$require C != 'u8' or 128 % (R / warps) == 0
$require R % (16 * warps) == 0 and (R + Dr) % 16 == 0 and Dr % 8 == 0 and keys_a_tile % 32 == 0
using Element = ${ctype(E)};
using Cached = ${ctype(C)};
#include "mla_decode/latent_keys.h"
$if latent  // mla_attention
#include "mla_attention/head_views.h"
#include "mla_attention/latent_call.h"
$end
constexpr int R = ${R}, ROPE = ${Dr}, WIDTH = R + ROPE;
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int ROW_TILES = ${row_tiles}, ROWS = 16 * ROW_TILES;  // heads
constexpr int KEYS = ${keys_a_tile};                            // of a tile
constexpr int STAGES = ${stages};                               // tiles in shared memory
constexpr int FEATURES = R / WARPS;                             // of outputs, a warp
constexpr bool CAPPED = ${capped};                              // a soft cap
constexpr int BLOCKS = ${C == 'u8' ? R / 128 : 1};                // of features that share a scale
using RowTile = Tile<Element, ROWS, WIDTH>;
using KeyTile = Tile<Element, KEYS, WIDTH>;
using WeightTile = Tile<Element, ROWS, KEYS>;
typedef float Outputs[ROW_TILES][FEATURES / 8][4];

// Shared memory: queries, tiles of keys, weights (by the scales of each block of features), scores, softmaxes of rows, what their outputs are multiplied
// by, scales [KEYS][BLOCKS] of each tile.
constexpr int KEYS_AT = RowTile::BYTES, WEIGHTS_AT = KEYS_AT + STAGES * KeyTile::BYTES, SCORES_AT = WEIGHTS_AT + BLOCKS * WeightTile::BYTES;
constexpr int SCORE_PITCH = KEYS + 4, STATES_AT = SCORES_AT + ROWS * SCORE_PITCH * 4, FACTORS_AT = STATES_AT + ROWS * 8;
constexpr int SCALES_AT = FACTORS_AT + ROWS * 4, SCALES_BYTES = ${C == 'u8' ? 'KEYS * BLOCKS * 4' : '0'};
static_assert(SCALES_AT + STAGES * SCALES_BYTES == ${shared}, "the spec has another size");

// Tiles of the keys [begin, end), copied from where they lie.
struct LatentTiles {
  const LatentKeys& keys;
  char* memory;
  int begin, end;

  KeyTile tile(int number) const { return {shared_pointer(memory) + KEYS_AT + number % STAGES * KeyTile::BYTES}; }

  // Starts copying; a warp copies a key. Every key of a tile gets its features, or zeros.
  void start(int number) const {
#pragma unroll 1
    for (int k = warp(); k < KEYS; k += WARPS) {
      const int key = begin + number * KEYS + k;
      const LatentRow row = key < end ? keys[key] : LatentRow{nullptr, nullptr};
$if C == 'u8'
      widen(number, k, row);
$else
#pragma unroll
      for (int chunk = lane(); chunk < WIDTH / 8; chunk += WARP) {
        const Element* from = chunk < R / 8 ? row.latent + chunk * 8 : row.rope + (chunk - R / 8) * 8;
        copy_async_16(tile(number).at(k, chunk * 8), row.latent ? from : keys.cache.latents, row.latent != nullptr);
      }
$end
    }
  }
  const float* scales(int number) const { return reinterpret_cast<float*>(memory + SCALES_AT + number % STAGES * SCALES_BYTES); }

$if C == 'u8'
  // Bytes become Elements on the way. No key: zeros, by scales of 0.
  void widen(int number, int k, const LatentRow& row) const {
    Element* const to = reinterpret_cast<Element*>(memory + KEYS_AT + number % STAGES * KeyTile::BYTES) + k * KeyTile::PITCH;
#pragma unroll 1
    for (int chunk = lane(); chunk < WIDTH / 8; chunk += WARP) {
      Pack<Element, 8> pack;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int d = chunk * 8 + i;
        pack.at[i] = from_float<Element>(!row.latent ? 0 : d < R ? to_float(float8_e4m3{row.latent[d]}) : rope_of(row.rope, d - R));
      }
      store_pack(to + chunk * 8, pack);
    }
    if (lane() < BLOCKS) const_cast<float*>(scales(number))[k * BLOCKS + lane()] = row.latent ? latent_scale(row.latent, lane() * 128, R) : 0;
  }
$end
};

// s += the products of features [from, to) of 16 rows and 16 keys.
static inline void multiply_features(float (&s)[2][4], const RowTile& queries, const KeyTile& keys, int row, int key, int from, int to) {
#pragma unroll 4
  for (int d = from; d < to; d += 16) {
    uint32_t a[4], b[4];
    queries.load_a(a, row, d);
    keys.load_b(b, key, d);
    mma_16x8x16<Element>(s[0], a, b[0], b[1]);
    mma_16x8x16<Element>(s[1], a, b[2], b[3]);
  }
}

// Scores of the tile's keys, unscaled: a warp takes 16 rows and 16 keys at a time.
static inline void multiply(const RowTile& queries, const KeyTile& keys, const float* scales, float* scores) {
#pragma unroll 1
  for (int job = warp(); job < ROW_TILES * (KEYS / 16); job += WARPS) {
    const int row = job % ROW_TILES * 16, key = job / ROW_TILES * 16;
    float s[2][4] = {};
$if C == 'u8'
#pragma unroll 1
    for (int block = 0; block < BLOCKS; ++block) {
      float part[2][4] = {};
      multiply_features(part, queries, keys, row, key, block * 128, block * 128 + 128);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[n][i] += part[n][i] * scales[(key + n * 8 + lane() % 4 * 2 + i % 2) * BLOCKS + block];
    }
    multiply_features(s, queries, keys, row, key, R, WIDTH);
$else
    multiply_features(s, queries, keys, row, key, 0, WIDTH);
$end
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[(row + lane() / 4 + i / 2 * 8) * SCORE_PITCH + key + n * 8 + lane() % 4 * 2 + i % 2] = s[n][i];
  }
}

// Scores become weights relative to the rows' references, which follow the largest. `seen`: of this lane's keys, a bit each.
static inline void weigh(const float* scores, const float* scales, Element* weights, Softmax* states, float* factors, uint32_t seen, float scale,
                         float cap) {
#pragma unroll 1
  for (int row = warp(); row < ROWS; row += WARPS) {
    float s[KEYS / WARP], largest = -INFINITE, sum = 0;
#pragma unroll
    for (int i = 0; i < KEYS / WARP; ++i) {
      s[i] = scores[row * SCORE_PITCH + i * WARP + lane()] * scale;
      if (CAPPED) s[i] = cap * tanh_of(s[i] / cap);
      s[i] = seen >> i & 1 ? s[i] * LOG2_E : -INFINITE;
      largest = larger_of(largest, s[i]);
    }
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
    const Softmax before = states[row];
    const float reference = larger_of(before.reference, largest), factor = factor_of(before, reference);
#pragma unroll
    for (int i = 0; i < KEYS / WARP; ++i) {
      const float weight = exp2_of(s[i] - reference);
      Element* const to = weights + row * WeightTile::PITCH + i * WARP + lane();
$if C == 'u8'
#pragma unroll
      for (int block = 0; block < BLOCKS; ++block)
        to[block * WeightTile::BYTES / 2] = from_float<Element>(weight * scales[(i * WARP + lane()) * BLOCKS + block]);
$else
      *to = from_float<Element>(weight);
$end
      sum += weight;
    }
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    sync_warp();  // every lane has read the state
    if (lane() == 0) states[row] = {reference, before.sum * factor + sum}, factors[row] = factor;
  }
}

// The warp's features of the outputs: times the factors, plus weights times values.
static inline void add_values(Outputs& o, const WeightTile& weights, const KeyTile& keys, const float* factors) {
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
    for (int half_rows = 0; half_rows < 2; ++half_rows) {
      const float factor = factors[m * 16 + half_rows * 8 + lane() / 4];
#pragma unroll
      for (int f = 0; f < FEATURES / 8; ++f) o[m][f][2 * half_rows] *= factor, o[m][f][2 * half_rows + 1] *= factor;
    }
#pragma unroll 1
  for (int key = 0; key < KEYS; key += 16) {
    uint32_t a[ROW_TILES][4];
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) weights.load_a(a[m], m * 16, key);
#pragma unroll
    for (int f = 0; f < FEATURES / 16; ++f) {
      uint32_t b[4];
      keys.load_b_transposed(b, key, warp() * FEATURES + f * 16);
#pragma unroll
      for (int m = 0; m < ROW_TILES; ++m) {
        mma_16x8x16<Element>(o[m][2 * f], a[m], b[0], b[1]);
        mma_16x8x16<Element>(o[m][2 * f + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Block (x, y): part x % parts of the keys of query token x / parts (of all sequences); heads y * ROWS ...
KERNEL(THREADS, 1) decode(${parameters('decode')}) {
$if latent
#include "mla_attention/absorbed_arguments.h"
$end
  const int part_count = static_cast<int>(parts), token = block_x() / part_count, part = block_x() % part_count;
  const int queries = static_cast<int>(q_latent_view.shape[1]), heads = static_cast<int>(q_latent_view.shape[2]);
  const int sequence = token / queries, i = token % queries, first_head = block_y() * ROWS;
  char* const memory = dynamic_shared();
  const RowTile query_tile{shared_pointer(memory)};
  const WeightTile weight_tile{shared_pointer(memory) + WEIGHTS_AT + warp() * FEATURES / (R / BLOCKS) * WeightTile::BYTES};  // of its features
  Element* const weights = reinterpret_cast<Element*>(memory + WEIGHTS_AT);
  float *const scores = reinterpret_cast<float*>(memory + SCORES_AT), *const factors = reinterpret_cast<float*>(memory + FACTORS_AT);
  Softmax* const states = reinterpret_cast<Softmax*>(memory + STATES_AT);

  const bool listed = is_given(indices_view);
  const LatentCache rows{cache ? cache : kv_latent, cache ? cache + rope_at : k_rope, latent_outer, latent_inner, rope_outer, rope_inner, page_size};
  const LatentKeys keys{rows, block_tables ? block_tables + sequence * table_row : nullptr,
                        listed ? static_cast<const int32_t*>(indices_view.data) + sequence * indices_view.strides[0] + i * indices_view.strides[1] : nullptr,
                        sequence};
$if latent
  const View no_segments = no_view();
  const SeenKeys visible =
      LatentCall{no_segments, no_segments, context_lens, queries, tokens, offset_given, offset, Visibility{causal, window_left, window_right}}.keys(sequence, i);
  const int first_key = static_cast<int>(visible.first), count = static_cast<int>(visible.end);
  const int all_tiles = (count - first_key + KEYS - 1) / KEYS, first_tile = static_cast<int>(int64_t{all_tiles} * part / part_count);
$else
  const int count = static_cast<int>(
      listed ? indices_view.shape[2] : visible_tokens(context_lens ? context_lens[sequence] : tokens, queries, i));
  const int all_tiles = (count + KEYS - 1) / KEYS, first_tile = static_cast<int>(int64_t{all_tiles} * part / part_count);
$end
  const int tiles = static_cast<int>(int64_t{all_tiles} * (part + 1) / part_count) - first_tile;
  const LatentTiles latents{keys, memory, ${latent ? 'first_key + ' : ''}first_tile * KEYS, count};

  const Element* const q = static_cast<const Element*>(q_latent_view.data) + sequence * q_latent_view.strides[0] + i * q_latent_view.strides[1];
  const Element* const q_rope = static_cast<const Element*>(${latent ? 'rope_rows' : 'q_rope_view'}.data) + sequence * ${latent ? 'rope_rows' : 'q_rope_view'}.strides[0] + i * ${latent ? 'rope_rows' : 'q_rope_view'}.strides[1];
#pragma unroll 1
  for (int copy = thread_x(); copy < ROWS * (WIDTH / 8); copy += THREADS) {
    const int row = copy / (WIDTH / 8), d = copy % (WIDTH / 8) * 8, head = first_head + row < heads ? first_head + row : heads - 1;
    copy_async_16(query_tile.at(row, d), d < R ? q + head * q_latent_view.strides[2] + d : q_rope + head * ${latent ? 'rope_rows' : 'q_rope_view'}.strides[2] + (d - R), true);
  }
  for (int row = thread_x(); row < ROWS; row += THREADS) states[row] = {LOWEST, 0};

  Outputs o = {};
  if (STAGES == 2 && tiles > 0) latents.start(0);
  copy_async_commit();
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int ahead = tile + STAGES - 1;
    if (ahead < tiles) latents.start(ahead);
    copy_async_commit();
    copy_async_wait<STAGES - 1>();
    sync_block();  // the tile is there
    multiply(query_tile, latents.tile(tile), latents.scales(tile), scores);
    uint32_t seen = 0;
#pragma unroll
    for (int k = 0; k < KEYS / WARP; ++k) {
      const int key = latents.begin + tile * KEYS + k * WARP + lane();
      if (key < count && (!keys.list || keys.list[key] >= 0)) seen |= 1u << k;
    }
    sync_block();  // all scores are there
    weigh(scores, latents.scales(tile), weights, states, factors, seen, softmax_scale, logits_soft_cap);
    sync_block();  // all weights are there
    add_values(o, weight_tile, latents.tile(tile), factors);
    sync_block();  // the tile has been read
  }
  copy_async_wait<0>();

#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
    for (int half_rows = 0; half_rows < 2; ++half_rows) {
      const int head = first_head + m * 16 + half_rows * 8 + lane() / 4;
      if (head >= heads) continue;
      float* const to = partial + ((int64_t{token} * heads + head) * parts + part) * R + warp() * FEATURES + lane() % 4 * 2;
#pragma unroll
      for (int f = 0; f < FEATURES / 8; ++f) store_pack(to + f * 8, Pack<float, 2>{{o[m][f][2 * half_rows], o[m][f][2 * half_rows + 1]}});
    }
  for (int row = thread_x(); row < ROWS && first_head + row < heads; row += THREADS)
    reinterpret_cast<Softmax*>(partial_softmax)[(int64_t{token} * heads + first_head + row) * parts + part] = states[row];
}

// Block x: head x % heads of query token x / heads.
KERNEL(FINISH_THREADS, 1) finish(${parameters('finish')}) {
$if latent
#include "mla_attention/absorbed_results.h"
$end
  finish_row<Element, R>(out_view, lse_view, partial, reinterpret_cast<const Softmax*>(partial_softmax), static_cast<int>(parts));
}
$if latent

#include "mla_attention/absorbed_entries.h"
$end
