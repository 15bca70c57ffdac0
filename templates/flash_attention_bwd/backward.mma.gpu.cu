// flash_attention_bwd on matrix instructions of a warp (mma.sync). A block takes BLOCK_N keys of one kv head through all queries that see
// them, BLOCK_M queries of one query head at a time.
//
// Two warps share 16 M_TILES keys. One makes their weights P (from K Q^T) and sums dv = P^T dout; the other makes dP (from V dout^T), then,
// with the first one's weights, dS = P (dP - delta), and sums dk = dS^T Q. So each has one product of keys by queries and one sum to keep
// in registers, operands from both are read once for 16 M_TILES keys, and what goes into the sums never leaves a lane. All warps together
// then add dS K to dq in global memory, with f32 additions of 16 bytes; `finish` makes dq of it. P is kept as 2^SHIFT P, which halves hold
// well.
//
// deterministic: a block takes every copies-th block of keys, and adds to a copy of dq of its own; `finish` adds the copies up in order.
#include "device/gpu.h"
#include "device/later.h"
#include "device/sums.h"
#include "device/tile_transposed.h"
#include "device/attention_backward_plain.h"

$require D % 8 == 0 and Dv % 8 == 0 and block_m % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                     // head dim of q and k; of v and out
constexpr int D16 = ${align(D, 16)}, DV16 = ${align(Dv, 16)}, WIDE = D16 > DV16 ? D16 : DV16;
constexpr bool ADJUSTED = ${adjusted};                  // any of bias, mask, segments, lengths may be given
constexpr bool CAPPED = ${capped}, DROPPED = ${dropped};  // soft cap; dropout
constexpr bool BIAS_GRADIENT = ${bias_gradient};        // dbias is given
constexpr int PAIRS = ${pairs}, WARPS = 2 * PAIRS, THREADS = WARPS * WARP;
constexpr int M_TILES = ${m_tiles};                     // tiles of 16 keys a warp
constexpr int PAIR_KEYS = 16 * M_TILES, BLOCK_N = PAIRS * PAIR_KEYS;
constexpr int BLOCK_M = ${block_m};                     // queries a step
constexpr int N_TILES = BLOCK_M / 8, HALVES = N_TILES / 2;  // tiles of 8, of 16 queries
constexpr int OWN_SLICES = ${own_slices};               // slices of 16 features of a warp's keys, or values, kept in registers
constexpr bool LATE = ${late} == 1;                     // warps that make weights add to dq after them
constexpr int SHIFT = 15;
constexpr bool BROAD = ${E == 'bf16'};                  // Element has f32's range: dS stays scaled by 2^SHIFT
constexpr float SCALED = 1 << SHIFT, DS_SCALED = BROAD ? SCALED : 1;
constexpr int FINISH_THREADS = 128, PREPARE_THREADS = 128;

using KTile = Tile<Element, BLOCK_N, D16>;
using VTile = Tile<Element, BLOCK_N, DV16>;
using QTile = Tile<Element, BLOCK_M, D16>;
using OTile = Tile<Element, BLOCK_M, DV16>;
using STile = Tile<Element, BLOCK_N, BLOCK_M>;  // dS

// Shared memory: K and V; two places each for Q and dout; the same for rows' log-sum-exps, then deltas; weights, and slopes of the soft
// cap, on their way from warp to warp; dS; which weights are kept, of two steps, a bit a key; the block's plan.
constexpr int VALUES = KTile::BYTES, QUERIES = VALUES + VTile::BYTES, DOUTS = QUERIES + 2 * QTile::BYTES, LOGS = DOUTS + 2 * OTile::BYTES;
constexpr int DELTAS = LOGS + 8 * BLOCK_M, WEIGHTS = DELTAS + 8 * BLOCK_M, SHARED_BYTES = BIAS_GRADIENT ? 4 : 2;
constexpr int WEIGHT_BYTES = BLOCK_N * BLOCK_M * SHARED_BYTES;
constexpr int GRADIENTS = WEIGHTS + (CAPPED ? 2 : 1) * WEIGHT_BYTES, KEPT = GRADIENTS + STile::BYTES, KEPT_BYTES = BLOCK_N / 8 * BLOCK_M;
constexpr int PLAN = KEPT + (DROPPED ? 2 * KEPT_BYTES : 0);

// What a warp keeps: [tile of 16 keys][8 queries, or features][fragment of C].
typedef float Scores[M_TILES][N_TILES][4];
typedef float Sums[M_TILES][WIDE / 8][4];
typedef uint32_t Operands[M_TILES][HALVES][4];                             // A: 16 keys by 16 queries
typedef uint32_t Own[M_TILES][OWN_SLICES > 0 ? OWN_SLICES : 1][4];         // A: 16 keys by 16 features

static inline void load_own(Own& own, SharedPointer tile, int row) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int slice = 0; slice < OWN_SLICES; ++slice) Tile<Element, BLOCK_N, WIDE>{tile}.load_a(own[m][slice], row + 16 * m, 16 * slice);
}

// scores = own rows times the step's rows, transposed.
template <int FEATURES>
static inline void multiply(Scores& s, const Own& own, SharedPointer own_tile, SharedPointer step_tile, int row) {
  constexpr int SLICES = FEATURES / 16;
  uint32_t a[M_TILES][4], b[2][4];  // of a slice; of 16 queries and of the next ones
  const auto load_a = [&](int slice, int m) {
#pragma unroll
    for (int i = 0; slice < OWN_SLICES && i < 4; ++i) a[m][i] = own[m][slice][i];
    if (slice >= OWN_SLICES) Tile<Element, BLOCK_N, FEATURES>{own_tile}.load_a(a[m], row + 16 * m, 16 * slice);
  };
  const Tile<Element, BLOCK_M, FEATURES> tile{step_tile};
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
    for (int i = 0; i < 4 * N_TILES; ++i) s[m][i / 4][i % 4] = 0;
    load_a(0, m);
  }
  tile.load_b(b[0], 0, 0);
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
    for (int n = 0; n < HALVES; ++n) {
      const int at = slice * HALVES + n, next = at + 1;
      if (next < SLICES * HALVES) tile.load_b(b[next % 2], next % HALVES * 16, next / HALVES * 16);
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
        mma_16x8x16<Element>(s[m][2 * n], a[m], b[at % 2][0], b[at % 2][1]);
        mma_16x8x16<Element>(s[m][2 * n + 1], a[m], b[at % 2][2], b[at % 2][3]);
        if (n == HALVES - 1 && slice + 1 < SLICES) load_a(slice + 1, m);
      }
    }
}

// sums += a times the step's rows.
template <int FEATURES> static inline void add_products(Sums& sums, const Operands& a, SharedPointer step_tile) {
  constexpr int TILES = FEATURES / 16;
  uint32_t b[2][4];
  const Tile<Element, BLOCK_M, FEATURES> tile{step_tile};
  tile.load_b_transposed(b[0], 0, 0);
#pragma unroll
  for (int n = 0; n < HALVES; ++n)
#pragma unroll
    for (int f = 0; f < TILES; ++f) {
      const int at = n * TILES + f, next = at + 1;
      if (next < HALVES * TILES) tile.load_b_transposed(b[next % 2], next / TILES * 16, next % TILES * 16);
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
        mma_16x8x16<Element>(sums[m][2 * f], a[m][n], b[at % 2][0], b[at % 2][1]);
        mma_16x8x16<Element>(sums[m][2 * f + 1], a[m][n], b[at % 2][2], b[at % 2][3]);
      }
    }
}

// Of a step and this lane's keys: element (m, n, 2 h + i) is of key 16 m + 8 h + lane / 4 of the pair and query 8 n + lane % 4 * 2 + i.
struct Step {
  const float *logs, *deltas;   // of its queries
  const uint8_t* kept;          // [8 keys][query]: bit lane / 4, of this lane's keys and queries
  int head, first_query;
};

// By causality, window and length, the queries that see each of this lane's keys.
struct Seeing {
  RowRange of[M_TILES][2];

  Seeing(const Visibility& rule, const Sequence& sequence, int first_key) {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int key = first_key + 16 * m + 8 * h + lane() / 4;
        of[m][h] = key < sequence.keys ? seeing_queries(rule, key, sequence.offset, sequence.queries) : RowRange{0, 0};
      }
  }
  bool operator()(int m, int h, int query) const { return query >= of[m][h].first && query < of[m][h].end; }
};

// Dot products become scores in units of log 2, -INFINITE where a query does not see a key; slopes are those of the soft cap.
static inline void adjust(Scores& s, Scores& slopes, const ScoreRules& rules, const Sequence& sequence, const Step& step,
                          const Seeing& seeing, int first_key) {
#pragma unroll
  for (int n = 0; n < N_TILES; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int query = step.first_query + 8 * n + lane() % 4 * 2 + i;
      const RowPlace place{query < sequence.queries ? query : static_cast<int>(sequence.queries) - 1, step.head};
      const RowRules row = rules_of<ADJUSTED>(rules, sequence, {0, static_cast<int>(sequence.keys)}, place);
#pragma unroll
      for (int m = 0; m < M_TILES; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& x = s[m][n][2 * h + i];
          if (CAPPED) {
            const float tanh = tanh_of(x * (rules.scale / rules.soft_cap));
            slopes[m][n][2 * h + i] = 1 - tanh * tanh;
          }
          const int key = first_key + 16 * m + 8 * h + lane() / 4;
          x = seeing(m, h, query) ? score_of<ADJUSTED, CAPPED>(x, rules, row, key) : -INFINITE;
        }
    }
}

// Scores become weights, scaled by 2^SHIFT. unit: takes scores to log 2.
static inline void weigh(Scores& s, const Step& step, float unit) {
#pragma unroll
  for (int n = 0; n < N_TILES; ++n) {
    const Pack<float, 2> log = load_pack<2>(step.logs + 8 * n + lane() % 4 * 2);
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = exp2_of(s[m][n][i] * unit - (log.at[i % 2] - SHIFT));
  }
}

// Weights of queries that do not see a key become 0, whatever they are.
static inline void hide(Scores& s, const Step& step, const Seeing& seeing) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!seeing(m, i / 2, step.first_query + 8 * n + lane() % 4 * 2 + i % 2)) s[m][n][i] = 0;
}

static inline bool is_kept(const Step& step, int m, int h, int n, int i) {
  return step.kept[(2 * m + h) * BLOCK_M + 8 * n + i] >> lane() / 4 & 1;
}

static inline void drop(Scores& s, const Step& step) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!is_kept(step, m, i / 2, n, i % 2)) s[m][n][i] = 0;
}

// Operand A: of tile m of keys, half n of the queries.
template <class T> static inline Pack<uint32_t, 4> pack(const Scores& s, int m, int n) {
  Pack<uint32_t, 4> words;
#pragma unroll
  for (int i = 0; i < 4; ++i) words.at[i] = pack_pair<T>(s[m][2 * n + i / 2][i % 2 * 2], s[m][2 * n + i / 2][i % 2 * 2 + 1]);
  return words;
}
template <class T> static inline void pack(Operands& a, const Scores& s) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < HALVES; ++n) {
      const Pack<uint32_t, 4> words = pack<T>(s, m, n);
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][n][i] = later(words.at[i]);  // now: s is not kept
    }
}

// To the other warp of the pair, tile m of keys and half n of the queries: what a lane gives, the same lane there takes. As halves; dbias
// may be of f32, and has the weights as they are.
static inline int place_of(int m, int n) { return ((m * HALVES + n) * WARP + lane()) * 8; }
static inline void give(char* place, const Scores& s) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < HALVES; ++n)
      if (BIAS_GRADIENT) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const Pack<float, 4> floats{{s[m][2 * n + i][0], s[m][2 * n + i][1], s[m][2 * n + i][2], s[m][2 * n + i][3]}};
          store_pack(reinterpret_cast<float*>(place) + place_of(m, n) + 4 * i, floats);
        }
      } else {
        store_pack(reinterpret_cast<uint32_t*>(place + place_of(m, n) * 2), pack<half>(s, m, n));
      }
}
static inline Pack<float, 8> take(const char* place, int m, int n) {
  Pack<float, 8> x;
  if (BIAS_GRADIENT) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Pack<float, 4> floats = load_pack<4>(reinterpret_cast<const float*>(place) + place_of(m, n) + 4 * i);
#pragma unroll
      for (int j = 0; j < 4; ++j) x.at[4 * i + j] = floats.at[j];
    }
    return x;
  }
  const Pack<uint32_t, 4> words = load_pack<4>(reinterpret_cast<const uint32_t*>(place + place_of(m, n) * 2));
#pragma unroll
  for (int i = 0; i < 8; ++i) x.at[i] = to_float(half{static_cast<uint16_t>(words.at[i / 2] >> 16 * (i % 2))});
  return x;
}

// Of a step: where this lane's first key and query add to dbias's sums, and how many keys and queries are left from there on.
struct BiasSums {
  float* first;
  int64_t row;  // floats from query to query
  int keys, queries;

  void add(int m, int h, int n, int i, float x) const {
    const int key = 16 * m + 8 * h, query = 8 * n + i;
    if (key < keys && query < queries && x != 0) add_to_sum(first + query * row + key, x);
  }
};

// dP becomes dS = P (dP - delta), scaled by DS_SCALED, as operand A; a weight of 0 takes nothing from dP if some query does not see some
// key. kept_factor: on dP, of a weight that is not dropped.
static inline void differentiate_scores(Operands& a, const Scores& dp, const Step& step, const char* weights, bool whole, float kept_factor,
                                        const BiasSums& bias) {
#pragma unroll
  for (int n = 0; n < HALVES; ++n) {
    Pack<float, 2> delta[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) delta[i] = load_pack<2>(step.deltas + 16 * n + 8 * i + lane() % 4 * 2);
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      const Pack<float, 8> pair_weights = take(weights, m, n);
      Pack<float, 8> slopes;
      if (CAPPED) slopes = take(weights + WEIGHT_BYTES, m, n);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float ds[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float weight = pair_weights.at[2 * i + j];
          float gradient = dp[m][2 * n + i / 2][i % 2 * 2 + j];
          if (DROPPED) gradient = is_kept(step, m, i % 2, 2 * n + i / 2, j) ? gradient * kept_factor : 0;
          ds[j] = (BROAD ? weight : weight * (1 / SCALED)) * (gradient - delta[i / 2].at[j]);
          if (!whole && weight == 0) ds[j] = 0;
          if (BIAS_GRADIENT) bias.add(m, i % 2, 2 * n + i / 2, j, ds[j] * (1 / DS_SCALED));
          if (CAPPED) ds[j] = weight == 0 ? 0 : ds[j] * slopes.at[2 * i + j];
        }
        a[m][n][i] = pack_pair<Element>(ds[0], ds[1]);
      }
    }
  }
}

// dS, for all warps: keys are the tile's rows.
static inline void store_gradients(char* tile, const Operands& ds, int row) {
  Element* const first = reinterpret_cast<Element*>(tile) + (row + lane() / 4) * STile::PITCH + lane() % 4 * 2;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < HALVES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        *reinterpret_cast<uint32_t*>(first + (16 * m + i % 2 * 8) * STile::PITCH + 16 * n + i / 2 * 8) = ds[m][n][i];
}

// Adds dS K of a step to its rows' sums: BLOCK_M x D16, as tiles of 16 x 16 one after another, each in the order of add_to_sums().
constexpr int Q_WARPS = BLOCK_M / 16 < 2 ? 1 : 2, D_WARPS = WARPS / Q_WARPS;  // warps along queries, along features
constexpr int Q_TILES = BLOCK_M / 16 / Q_WARPS, D_TILES = (D16 / 16 + D_WARPS - 1) / D_WARPS;
static inline void add_to_queries(float* sums, const STile& ds, const KTile& k) {
  const int q_warp = warp() % Q_WARPS, d_warp = warp() / Q_WARPS;
  float c[Q_TILES][D_TILES][2][4];
#pragma unroll
  for (int m = 0; m < Q_TILES; ++m)
#pragma unroll
    for (int d = 0; d < D_TILES; ++d)
#pragma unroll
      for (int i = 0; i < 8; ++i) c[m][d][i / 4][i % 4] = 0;
  uint32_t a[Q_TILES][4], b[D_TILES][4];
  const auto load_a = [&](int n, int m) { load_a_transposed(a[m], ds, 16 * n, 16 * (q_warp * Q_TILES + m)); };
  const auto load_b = [&](int n, int d) {
    if (D16 / 16 % D_WARPS == 0 || d_warp + D_WARPS * d < D16 / 16) k.load_b_transposed(b[d], 16 * n, 16 * (d_warp + D_WARPS * d));
  };
#pragma unroll
  for (int m = 0; m < Q_TILES; ++m) load_a(0, m);
#pragma unroll
  for (int d = 0; d < D_TILES; ++d) load_b(0, d);
#pragma unroll
  for (int n = 0; n < BLOCK_N / 16; ++n)
#pragma unroll
    for (int d = 0; d < D_TILES; ++d) {
#pragma unroll
      for (int m = 0; m < Q_TILES; ++m) {
        mma_16x8x16<Element>(c[m][d][0], a[m], b[d][0], b[d][1]);
        mma_16x8x16<Element>(c[m][d][1], a[m], b[d][2], b[d][3]);
        if (d == D_TILES - 1 && n + 1 < BLOCK_N / 16) load_a(n + 1, m);
      }
      if (n + 1 < BLOCK_N / 16) load_b(n + 1, d);
    }
#pragma unroll
  for (int m = 0; m < Q_TILES; ++m)
#pragma unroll
    for (int d = 0; d < D_TILES; ++d) {
      if (D16 / 16 % D_WARPS != 0 && d_warp + D_WARPS * d >= D16 / 16) continue;
      float* const to = sums + ((q_warp * Q_TILES + m) * (D16 / 16) + d_warp + D_WARPS * d) * 256;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float row[4] = {c[m][d][0][2 * h], c[m][d][0][2 * h + 1], c[m][d][1][2 * h], c[m][d][1][2 * h + 1]};
        add_to_sums(to + 128 * h, row);
      }
    }
}

// Draws which weights of a step are kept, eight keys a thread at a time.
static inline void draw(uint8_t* kept, const ScoreRules& rules, const Sequence& sequence, int head, int first_query, int first_key) {
#pragma unroll 1
  for (int i = thread_x(); i < KEPT_BYTES; i += THREADS) {
    uint32_t words[4] = {static_cast<uint32_t>(first_key / 8 + i / BLOCK_M), static_cast<uint32_t>(first_query + i % BLOCK_M),
                         static_cast<uint32_t>(sequence.index * rules.heads + head), 0};
    philox(words, rules.seed);
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) bits |= static_cast<uint32_t>(static_cast<float>(dropout_lane(words, j)) >= rules.drop_threshold) << j;
    kept[i] = static_cast<uint8_t>(bits);
  }
}

static inline bool finite(const Sums& sums) {
  float zero = 0;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int f = 0; f < WIDE / 8; ++f)
#pragma unroll
      for (int i = 0; i < 4; ++i) zero += sums[m][f][i] * 0;
  return zero == 0;
}

// Block (x, y, z): BLOCK_M rows x (packed: of all sequences) of head y of row z of the batch. Clears the sums of dq.
KERNEL(PREPARE_THREADS, 1) prepare(${parameters('prepare')}) {
  const Heads<const Element> out(out_view), dout(dout_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, out.tokens, 0, true, 0,
                            ADJUSTED ? query_seq_lengths : nullptr};
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = block_x(), items;
  if (cum_seqlens_q && !find_sequence(sequences, item, BLOCK_M, 1, sequence, items)) return;
  const int64_t at = RowSpace{out.heads, space_rows, BLOCK_M, cum_seqlens_q != nullptr}.first(sequence, block_y()) + item * BLOCK_M;
  constexpr int LANES = DV <= 64 ? 8 : DV <= 128 ? 16 : 32;
  prepare_rows<PREPARE_THREADS, LANES, 8>(out, dout, lse_view, sequence, block_y(), item * BLOCK_M, BLOCK_M, DV, row_lse + at,
                                          row_delta + at);
#pragma unroll 1
  for (int64_t copy = 0; copy < copies; ++copy)
#pragma unroll 1
    for (int i = thread_x() * 4; i < BLOCK_M * D16; i += PREPARE_THREADS * 4)
      store_pack(dq_sums + (copy * total_rows + at) * D16 + i, Pack<float, 4>{});
}

// Which steps a block takes, and which of them a pair can do without a look at single keys.
struct Steps {
  int first, count;             // of each head
  int first_whole, end_whole;   // every query sees every key of the pair

  Steps(const Visibility& rule, const Sequence& sequence, int first_key, int pair_key) {
    const int keys = static_cast<int>(sequence.keys), queries = static_cast<int>(sequence.queries);
    const int end_key = first_key + BLOCK_N < keys ? first_key + BLOCK_N : keys;
    const RowRange of_first = seeing_queries(rule, first_key, sequence.offset, queries),
                   of_last = seeing_queries(rule, end_key - 1, sequence.offset, queries);
    const bool some = first_key < keys && of_first.first < of_last.end;
    first = some ? of_first.first / BLOCK_M : 0;
    count = some ? (of_last.end + BLOCK_M - 1) / BLOCK_M - first : 0;
    const RowRange start = seeing_queries(rule, pair_key, sequence.offset, queries),
                   end = seeing_queries(rule, pair_key + PAIR_KEYS - 1, sequence.offset, queries);
    first_whole = (end.first + BLOCK_M - 1) / BLOCK_M;
    end_whole = start.end == queries ? (queries + BLOCK_M - 1) / BLOCK_M : start.end / BLOCK_M;
    if (ADJUSTED || CAPPED || pair_key + PAIR_KEYS > keys) end_whole = first_whole;
  }
};

// Rows of a tensor by query head of the group and query.
template <class T> struct GroupRows {
  T* first;
  int64_t head_stride, token_stride;

  GroupRows(const Heads<T>& x, const Sequence& s, int head)
      : first(x.row(s.batch, s.first_query, head)), head_stride(x.head_stride), token_stride(x.token_stride) {}
  T* row(int head, int query) const { return first + head * head_stride + query * token_stride; }
};

// What a block goes by. It lies in shared memory, so that each turn reads what it needs, and registers are left to the sums.
struct Plan {
  Sequence sequence;
  GroupRows<const Element> q, dout;
  const float *row_lse, *row_delta;  // of the group's first head
  float* dq_sums;
  int64_t space_rows;                // from head to head of these three
  int kv_head, first_head, first_key, first_step, steps, turns;
  int keys;                          // from first_key on, past the last sequence's too
  int first_whole[PAIRS], end_whole[PAIRS];
};

// A turn: its query head of the group, and its first query.
struct Turn {
  int of_head, first_query;

  Turn(const Plan& plan, int turn)
      : of_head(plan.turns == plan.steps ? 0 : turn / plan.steps), first_query((plan.first_step + turn - of_head * plan.steps) * BLOCK_M) {}
};

// Copies what a turn needs.
struct TurnCopy {
  TileReader<Element, BLOCK_M, D16, THREADS, D> q;
  TileReader<Element, BLOCK_M, DV16, THREADS, DV> dout;
  const float* rows;  // log-sum-exps or deltas: this thread's four
  int place;

  static_assert(THREADS >= BLOCK_M / 2);
  static bool copies_logs() { return thread_x() < BLOCK_M / 4; }
  static int local_row() { return thread_x() % (BLOCK_M / 4) * 4; }

  TurnCopy(const Plan& plan, int number) : TurnCopy(plan, number, Turn(plan, number)) {}
  TurnCopy(const Plan& plan, int number, Turn turn)
      : q(plan.q.row(turn.of_head, turn.first_query), plan.q.token_stride, static_cast<int>(plan.sequence.queries) - turn.first_query),
        dout(plan.dout.row(turn.of_head, turn.first_query), plan.dout.token_stride,
             static_cast<int>(plan.sequence.queries) - turn.first_query),
        rows((copies_logs() ? plan.row_lse : plan.row_delta) + turn.of_head * plan.space_rows + turn.first_query + local_row()),
        place(number % 2) {}

  void start(SharedPointer shared) {
    q.copy_async(QTile{shared + QUERIES + place * QTile::BYTES});
    dout.copy_async(OTile{shared + DOUTS + place * OTile::BYTES});
    if (thread_x() < BLOCK_M / 2) copy_async_16(shared + (copies_logs() ? LOGS : DELTAS) + (place * BLOCK_M + local_row()) * 4, rows, true);
  }
};

// The warp's sums, through its own rows of a tile, to the keys of dk or dv.
template <int FEATURES, int FILLED>
static inline void store_sums(const Sums& sums, float factor, char* memory, int first_row, const Heads<Element>& out, const Plan& plan) {
  constexpr int PITCH = Tile<Element, BLOCK_N, FEATURES>::PITCH, CHUNKS = FILLED / 8;
  const int row = static_cast<int>(later(first_row));
  Element* const tile = reinterpret_cast<Element*>(memory) + row * PITCH;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int f = 0; f < FEATURES / 8; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<uint32_t*>(tile + (16 * m + 8 * h + lane() / 4) * PITCH + 8 * f + lane() % 4 * 2) =
            pack_pair<Element>(sums[m][f][2 * h] * factor, sums[m][f][2 * h + 1] * factor);
  sync_warp();
  Element* const to = out.row(plan.sequence.batch, plan.sequence.first_key + plan.first_key, plan.kv_head);
#pragma unroll 1
  for (int i = lane(); i < PAIR_KEYS * CHUNKS; i += WARP)
    if (row + i / CHUNKS < plan.keys)
      store_pack(to + (row + i / CHUNKS) * out.token_stride + i % CHUNKS * 8, load_pack<8>(tile + i / CHUNKS * PITCH + i % CHUNKS * 8));
}

// The block's dk and dv by the definition. Not inlined: it would take registers from the loop beside it.
static __attribute__((noinline)) void differentiate_plainly(const View& q, const View& k, const View& v, const View& dout,
                                                            const ScoreRules& rules, const Visibility& visibility, const Plan& plan,
                                                            const float* row_lse, const float* row_delta, const RowSpace& space,
                                                            const View& dk, const View& dv, float* memory) {
  const Sequence sequence = plan.sequence;
  const int first_key = plan.first_key, keys = plan.keys, kv_head = plan.kv_head;
  const PlainGradients<Element, ADJUSTED, CAPPED, DROPPED> gradients{Heads<const Element>(q),
                                                                     Heads<const Element>(k),
                                                                     Heads<const Element>(v),
                                                                     Heads<const Element>(dout),
                                                                     rules,
                                                                     visibility,
                                                                     sequence,
                                                                     row_lse,
                                                                     row_delta,
                                                                     space,
                                                                     D,
                                                                     DV,
                                                                     memory + warp() * 2 * (D + DV)};
#pragma unroll 1
  for (int key = warp(); key < BLOCK_N && key < keys; key += WARPS)
    gradients.differentiate_key(first_key + key, kv_head, Heads<Element>(dk), Heads<Element>(dv));
}

// Block (x, y, z): the y-th BLOCK_N keys (packed: of all sequences) of the x-th kv head of group z, where the kv heads of all rows of the
// batch are numbered through; then every grid_y()-th ones.
KERNEL(THREADS, ${blocks}) differentiate(${parameters('differentiate')}) {
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q_view.shape[q_view.rank - 3], k_view.shape[k_view.rank - 3],
                            offset_given,  offset,
                            ADJUSTED ? query_seq_lengths : nullptr, ADJUSTED ? key_value_seq_lengths : nullptr};
  const Visibility visibility{causal, window_left, window_right};
  char* const memory = dynamic_shared();
  const SharedPointer all_shared = shared_pointer(memory);
  Plan& plan = *reinterpret_cast<Plan*>(memory + PLAN);
  const int this_warp = shuffle(warp(), 0);  // the same for all its lanes, and the compiler is told
  const bool sums_dv = this_warp < PAIRS;
  const int pair = sums_dv ? this_warp : this_warp - PAIRS, pair_row = pair * PAIR_KEYS;
  char* const pair_weights = memory + WEIGHTS + pair * (PAIR_KEYS * BLOCK_M * SHARED_BYTES);
  const float unit = ADJUSTED || CAPPED ? 1 : softmax_scale * LOG2_E;
  const float kept_factor = drop_threshold < 65536 ? 65536 / (65536 - drop_threshold) : 0;

#pragma unroll 1
  for (int block = block_y(); block < key_blocks; block += grid_y()) {
    {
      const Heads<const Element> q(q_view), k(k_view), v(v_view), dout(dout_view);
      const int kv_heads = static_cast<int>(k.heads), heads_a_kv_head = static_cast<int>(q.heads) / kv_heads;
      const int numbered = static_cast<int>(later(block_z() * grid_x() + block_x()));
      const int batch = cum_seqlens_q ? 0 : numbered / kv_heads, kv_head = numbered - batch * kv_heads;
      if (kv_head >= kv_heads || (!cum_seqlens_q && batch >= sequence_count)) return;  // the last group may be smaller
      Sequence sequence = sequences[batch];
      int64_t item = block, all_keys = ADJUSTED ? k.tokens : sequence.keys;
      if (cum_seqlens_q && !find_keys(sequences, item, BLOCK_N, sequence, all_keys)) return;
      if (ADJUSTED) sequence.queries = sequence.seeing(), sequence.padding = 0;
      const int first_key = static_cast<int>(item) * BLOCK_N, first_head = kv_head * heads_a_kv_head;
      const int keys_left = static_cast<int>(all_keys) - first_key, keys_seen = ADJUSTED ? static_cast<int>(sequence.keys) - first_key : keys_left;
      TileReader<Element, BLOCK_N, D16, THREADS, D>(k.row(sequence.batch, sequence.first_key + first_key, kv_head), k.token_stride,
                                                    keys_seen)
          .copy_async(KTile{all_shared});
      TileReader<Element, BLOCK_N, DV16, THREADS, DV>(v.row(sequence.batch, sequence.first_key + first_key, kv_head), v.token_stride,
                                                      keys_seen)
          .copy_async(VTile{all_shared + VALUES});
      const RowSpace space{q.heads, space_rows, BLOCK_M, cum_seqlens_q != nullptr};
      const int64_t row = space.first(sequence, first_head);
      if (thread_x() < PAIRS) {
        const Steps steps(visibility, sequence, first_key, first_key + thread_x() * PAIR_KEYS);
        plan.first_whole[thread_x()] = steps.first_whole, plan.end_whole[thread_x()] = steps.end_whole;
        if (thread_x() == 0) {
          plan.sequence = sequence;
          plan.q = GroupRows<const Element>(q, sequence, first_head), plan.dout = GroupRows<const Element>(dout, sequence, first_head);
          plan.row_lse = row_lse + row, plan.row_delta = row_delta + row;
          plan.dq_sums = dq_sums + ((copies > 1 ? block_y() * total_rows : 0) + row) * D16;
          plan.space_rows = space_rows;
          plan.kv_head = kv_head, plan.first_head = first_head, plan.first_key = first_key, plan.keys = keys_left;
          plan.first_step = steps.first, plan.steps = steps.count, plan.turns = steps.count * heads_a_kv_head;
        }
      }
    }
    sync_block();
    const int turns = shuffle(plan.turns, 0);
    if (turns > 0) TurnCopy(plan, 0).start(all_shared);
    copy_async_commit();
    const auto rules = [&] {
      return ScoreRules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                        drop_threshold, static_cast<uint64_t>(dropout_seed), q_view.shape[q_view.rank - 2]};
    };
    const auto draw_turn = [&](int turn) {
      const auto [of_head, first_query] = Turn(plan, turn);
      draw(reinterpret_cast<uint8_t*>(memory + KEPT + turn % 2 * KEPT_BYTES), rules(), plan.sequence, plan.first_head + of_head,
           first_query, plan.first_key);
    };
    if (DROPPED && turns > 0) draw_turn(0);

    Own own;
    if (OWN_SLICES > 0) {
      copy_async_wait<0>();
      sync_block();
      load_own(own, all_shared + (sums_dv ? 0 : VALUES), pair_row);
    }
    Sums sums;
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int f = 0; f < WIDE / 8; ++f)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][f][i] = 0;

#pragma unroll 1
    for (int turn = 0;; ++turn) {
      copy_async_wait<0>();
      sync_block();
      const SharedPointer shared = later(all_shared), own_tile = shared + (sums_dv ? 0 : VALUES);
      if (turn + 1 < turns) {
        TurnCopy(plan, turn + 1).start(shared);  // before the reductions to dq, behind which they would wait
        if (DROPPED) draw_turn(turn + 1);
      }
      copy_async_commit();
      const auto add_last_turn = [&] {
        if (turn == 0) return;
        const auto [of_head, first_query] = Turn(plan, turn - 1);
        add_to_queries(plan.dq_sums + (of_head * plan.space_rows + first_query) * D16, STile{shared + GRADIENTS}, KTile{shared});
      };
      // The warps that make weights do it after them, the others before: so they are not all at their softmax, or all at their products.
      if (!LATE || !sums_dv || turn == turns) add_last_turn();
      if (turn == turns) break;

      const int place = turn % 2;
      const auto [of_head, first_query] = Turn(plan, turn);
      const bool whole = first_query / BLOCK_M >= plan.first_whole[pair] && first_query / BLOCK_M < plan.end_whole[pair];
      const Step step{reinterpret_cast<const float*>(memory + LOGS) + place * BLOCK_M,
                      reinterpret_cast<const float*>(memory + DELTAS) + place * BLOCK_M,
                      reinterpret_cast<const uint8_t*>(memory + KEPT) + place * KEPT_BYTES + pair * 2 * M_TILES * BLOCK_M + lane() % 4 * 2,
                      plan.first_head + of_head, first_query};
      const SharedPointer queries = shared + QUERIES + place * QTile::BYTES, douts = shared + DOUTS + place * OTile::BYTES;
      Scores s;
      if (D16 == DV16 || sums_dv)
        multiply<D16>(s, own, own_tile, sums_dv ? queries : douts, pair_row);
      else
        multiply<DV16>(s, own, own_tile, douts, pair_row);
      Operands a;
      if (sums_dv) {
        if (ADJUSTED || CAPPED) {
          Scores slopes;
          const Sequence sequence = plan.sequence;
          adjust(s, slopes, rules(), sequence, step, Seeing(visibility, sequence, plan.first_key + pair_row), plan.first_key + pair_row);
          if (CAPPED) give(pair_weights + WEIGHT_BYTES, slopes);
        }
        weigh(s, step, unit);
        if (!ADJUSTED && !CAPPED && !whole) hide(s, step, Seeing(visibility, plan.sequence, plan.first_key + pair_row));
        give(pair_weights, s);
        if (DROPPED) drop(s, step);
        pack<Element>(a, s);
        if (LATE) add_last_turn();
        sync_block();
      } else {
        sync_block();
        BiasSums bias{};
        if (BIAS_GRADIENT) {
          const int key = plan.first_key + pair_row + lane() / 4, query = first_query + lane() % 4 * 2;
          const int64_t row =
              ((bias_view.shape[0] == 1 ? 0 : plan.sequence.batch) * bias_view.shape[1] + (bias_view.shape[1] == 1 ? 0 : step.head)) *
              bias_view.shape[2];
          bias = {dbias_sums + (row + query) * bias_view.shape[3] + key, bias_view.shape[3], static_cast<int>(plan.sequence.keys) - key,
                  static_cast<int>(plan.sequence.queries) - query};
        }
        differentiate_scores(a, s, step, pair_weights, whole, kept_factor, bias);
        store_gradients(memory + GRADIENTS, a, pair_row);
      }
      if (D16 == DV16 || !sums_dv)
        add_products<D16>(sums, a, sums_dv ? douts : queries);
      else
        add_products<DV16>(sums, a, douts);
    }

    // A value that is not finite, behind a weight of 0, has made sums NaN of keys that are not seen by it: then the definition decides.
    const bool hides = plan.first_step < plan.first_whole[pair] || plan.end_whole[pair] < plan.first_step + plan.steps;
    if (any_in_block(hides && !finite(sums))) {
      const Plan same_plan = plan;
      sync_block();
      differentiate_plainly(q_view, k_view, v_view, dout_view, rules(), visibility, same_plan, row_lse, row_delta,
                            {q_view.shape[q_view.rank - 2], space_rows, BLOCK_M, cum_seqlens_q != nullptr}, dk_view, dv_view,
                            reinterpret_cast<float*>(memory));
    } else if (sums_dv) {
      store_sums<DV16, DV>(sums, kept_factor / SCALED, memory + VALUES, pair_row, Heads<Element>(dv_view), plan);
    } else {
      store_sums<D16, D>(sums, softmax_scale / DS_SCALED, memory, pair_row, Heads<Element>(dk_view), plan);
    }
    sync_block();
  }
}

// Block (x, y, z): BLOCK_M rows x (packed: of all sequences) of head y of row z of the batch: dq from the sums.
KERNEL(FINISH_THREADS, 1) finish(${parameters('finish')}) {
  const Heads<const Element> q(q_view), k(k_view);
  const Heads<Element> dq(dq_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            ADJUSTED ? query_seq_lengths : nullptr, ADJUSTED ? key_value_seq_lengths : nullptr};
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = block_x(), items;
  if (cum_seqlens_q && !find_sequence(sequences, item, BLOCK_M, 1, sequence, items)) return;
  const RowSpace space{q.heads, space_rows, BLOCK_M, cum_seqlens_q != nullptr};
  const int64_t first = item * BLOCK_M;
  const float* const from = dq_sums + (space.first(sequence, block_y()) + first) * D16;
  char* const memory = dynamic_shared();
  Element* const tile = reinterpret_cast<Element*>(memory);
  int* const bad_rows = reinterpret_cast<int*>(memory + QTile::BYTES);
  if (thread_x() < BLOCK_M) bad_rows[thread_x()] = 0;
  sync_block();
  bool bad = false;
#pragma unroll 1
  for (int unit = warp(); unit < BLOCK_M / 16 * (D16 / 16) * 2; unit += FINISH_THREADS / WARP) {
    Pack<float, 4> x = load_sums(from + unit * 128);
#pragma unroll 1
    for (int64_t copy = 1; copy < copies; ++copy) {
      const Pack<float, 4> more = load_sums(from + copy * total_rows * D16 + unit * 128);
#pragma unroll
      for (int i = 0; i < 4; ++i) x.at[i] += more.at[i];
    }
    const int row = unit / 2 / (D16 / 16) * 16 + unit % 2 * 8 + lane() / 4, column = unit / 2 % (D16 / 16) * 16 + lane() % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t pair = pack_pair<Element>(x.at[2 * i] * (softmax_scale / DS_SCALED), x.at[2 * i + 1] * (softmax_scale / DS_SCALED));
      *reinterpret_cast<uint32_t*>(tile + row * QTile::PITCH + column + 8 * i) = pair;
      if (x.at[2 * i] * 0 + x.at[2 * i + 1] * 0 != 0) bad_rows[row] = 1, bad = true;
    }
  }
  const bool some_bad = any_in_block(bad);
  constexpr int CHUNKS = D / 8;
#pragma unroll 1
  for (int i = thread_x(); i < BLOCK_M * CHUNKS; i += FINISH_THREADS) {
    const int row = i / CHUNKS, column = i % CHUNKS * 8;
    if (first + row < sequence.queries && !(hides && bad_rows[row]))
      store_pack(dq.row(sequence.batch, sequence.first_query + first + row, block_y()) + column,
                 load_pack<8>(tile + row * QTile::PITCH + column));
  }
  if (!some_bad || !hides) return;
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads};
  const PlainGradients<Element, ADJUSTED, CAPPED, DROPPED> gradients{
      q,
      k,
      Heads<const Element>(v_view),
      Heads<const Element>(dout_view),
      rules,
      {causal, window_left, window_right},
      sequence,
      row_lse,
      row_delta,
      space,
      D,
      DV,
      reinterpret_cast<float*>(memory + QTile::BYTES + BLOCK_M * 4) + warp() * 2 * (D + DV)};
#pragma unroll 1
  for (int row = warp(); row < BLOCK_M && first + row < sequence.queries; row += FINISH_THREADS / WARP)
    if (bad_rows[row]) gradients.differentiate_query(static_cast<int>(first) + row, block_y(), dq);
}

// With dbias: its sums, at 0, and what became of them.
KERNEL(256, 1) clear_bias(${parameters('clear_bias')}) {
#pragma unroll 1
  for (int64_t i = block_x() * int64_t{256} + thread_x(); i < bias_elements; i += grid_x() * int64_t{256}) dbias_sums[i] = 0;
}
KERNEL(256, 1) finish_bias(${parameters('finish_bias')}) {
  const int64_t keys = dbias_view.shape[3], queries = dbias_view.shape[2], heads = dbias_view.shape[1];
#pragma unroll 1
  for (int64_t i = block_x() * int64_t{256} + thread_x(); i < bias_elements; i += grid_x() * int64_t{256}) {
    const int64_t row = i / keys, plane = row / queries, batch = plane / heads;
    const int64_t to =
        batch * dbias_view.strides[0] + (plane - batch * heads) * dbias_view.strides[1] + (row - plane * queries) * dbias_view.strides[2];
    store_element(dbias_view.data, bias_type, to + i - row * keys, dbias_sums[i]);
  }
}

KERNEL(256, 1) differentiate_sinks(${parameters('differentiate_sinks')}) {
  const Heads<const Element> q(q_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, 0, true, 0};
  differentiate_sink<256>(softmax_aux_view, dsoftmax_aux_view, sinks_type, block_x(), sequences,
                          {q.heads, space_rows, BLOCK_M, cum_seqlens_q != nullptr}, row_lse, row_delta);
}
