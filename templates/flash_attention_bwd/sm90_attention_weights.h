// Hopper vocabulary of the attention kernels' gradients: scores of 64 keys (rows) by ROWS queries (columns), as a warpgroup's product leaves
// them in registers, become weights, and those the gradients of scores.
//
// Element 4 j + 2 h + i of a lane is of key 16 w + lane / 4 + 8 h (w: the warp of the warpgroup) and query 8 j + lane % 4 * 2 + i.
#pragma once
#include "device/tile/later.h"
#include "flash_attention_bwd/sm90_attention_dense.h"
#include "flash_attention_bwd/sm90_attention_gradient_dropout.h"
#include "flash_attention_bwd/sm90_attention_keys.h"
#include "device/sm90/sm90_attention_rows.h"

// Two floats of shared memory; in the order of other such words, and so not long before they are needed.
static inline Pack<float, 2> load_two(uint32_t from) {
  Pack<float, 2> x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.at[0]), "=f"(x.at[1]) : "r"(from) : "memory");
  return x;
}

// d = the products of A's 64 rows and B's N rows, depth-major boxes of 64 along the depth. It is started, and committed.
template <class T, int N, int DEPTH>
static inline void start_product(float (&d)[N / 2], uint32_t a_rows, uint32_t a_box, uint32_t b_rows, uint32_t b_box) {
  const uint64_t a = depth_major<128>(later(a_rows)), b = depth_major<128>(later(b_rows));
  keep_in_place(d);
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < (DEPTH + 15) / 16; ++slice)
    wgmma<T, N>(d, moved(a, slice / 4 * a_box + slice % 4 * 32), moved(b, slice / 4 * b_box + slice % 4 * 32), slice > 0);
  wgmma_commit();
}

// sums += a times `rows`, ROWS rows of FEATURES.
template <class T, int ROWS, int FEATURES>
static inline void start_sums(float (&sums)[FEATURES / 2], const uint32_t (&a)[ROWS / 16][4], uint32_t rows) {
  const uint64_t b = row_major<128>(later(rows), ROWS);
  keep_in_place(sums);
  wgmma_fence();
#pragma unroll
  for (int slice = 0; slice < ROWS / 16; ++slice) wgmma<T, FEATURES, true>(sums, a[slice], moved(b, slice * 2048), true);
  wgmma_commit();
}

// dq = 64 features of 64 keys each, `keys` (64 rows of a box), times QUERIES rows of dS, boxes of 64 keys.
template <class T, int QUERIES, int N>
static inline void start_queries(float (&dq)[QUERIES / 2], const uint32_t (&keys)[N], uint32_t ds_rows, uint32_t ds_box) {
  const uint64_t ds = depth_major<128>(later(ds_rows));
  keep_in_place(dq);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const uint64_t k = row_major<128>(later(keys[i]), 64);
#pragma unroll
    for (int slice = 0; slice < 4; ++slice)
      wgmma<T, QUERIES, true>(dq, moved(k, slice * 2048), moved(ds, i * ds_box + slice * 32), i + slice > 0);
  }
  wgmma_commit();
}

// The slopes of the soft cap at this lane's scores, as halves.
template <int ROWS, bool CAPPED> struct Slopes {
  uint32_t pairs[CAPPED ? ROWS / 4 : 1];
  float operator[](int i) const { return to_float(half{static_cast<uint16_t>(pairs[i / 2] >> 16 * (i % 2))}); }
};

// Log-sum-exps of a turn's queries, those that this lane has scores of: the first COUNT times 8 of them, loaded before the scores are there.
template <int COUNT> struct LogsAhead {
  static constexpr int SIZE = COUNT > 0 ? COUNT : 1;
  Pack<float, 2> of[SIZE];
  LogsAhead() = default;
  explicit LogsAhead(uint32_t logs) {
#pragma unroll
    for (int j = 0; j < COUNT; ++j) of[j] = load(logs, j);
  }
  static Pack<float, 2> load(uint32_t logs, int j) { return load_two(logs + lane() % 4 * 8 + 32 * j); }
};

// The same as pack_weights(), of negative ones 0.
template <class T> static inline uint32_t pack_positive(float low, float high) {
  uint32_t x;
  if constexpr (IS_HALF<T>)
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  else
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}
template <class T, int ROWS> static inline void pack_kept_weights(uint32_t (&p)[ROWS / 16][4], const float (&s)[ROWS / 2]) {
#pragma unroll
  for (int n = 0; n < ROWS / 16; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) p[n][i] = pack_positive<T>(s[8 * n + 2 * i], s[8 * n + 2 * i + 1]);
}

// What a call does to scores: weights are 2^(score - log-sum-exp), scaled by 2^SHIFT; DROPPED halves by less, as they count more than 1. Bias: its
// type, or void; BIAS_KEYS: those of its tile. MASKED: some scores are hidden by the bits of a mask. ZEROES: weights of hidden scores are 0 also where a
// row's log-sum-exp is NaN.
template <int ROWS, bool CAPPED, int SHIFT, bool DROPPED = false, class Bias = void, bool MASKED = false, bool ZEROES = false, int BIAS_KEYS = 128>
struct Weights {
  using Tile = BiasTile<Bias, ROWS, BIAS_KEYS>;
  static constexpr bool SHIFTS_LESS = DROPPED && SHIFT > 0;
  static constexpr bool BIASED = Tile::BYTES > 0;
  static constexpr float TO_LOG_2 = BIASED ? 1 : LOG2_E;  // a bias is added before
  const ${chunked ? 'ChunkVisibility' : 'Visibility'}& visibility;
  float unit;           // takes scores to log 2 (BIASED: to those of the bias), but for CAPPED
  float into_cap, cap;  // the scale over the soft cap; the cap in the same units
  int shift_of_kept = SHIFT;

  float shift() const { return SHIFTS_LESS ? shift_of_kept : SHIFT; }
  float unscaled() const { return SHIFTS_LESS ? exp2_of(-shift()) : 1.0f / (1 << SHIFT); }
  // kept: of all weights; one that is kept counts 1 / kept.
  void drop(float kept) {
    for (float factor = 1; SHIFTS_LESS && factor * kept < 1 && factor < 65536; factor *= 2) --shift_of_kept;
  }

  Weights(const ${chunked ? 'ChunkVisibility' : 'Visibility'}& visibility, float scale, float soft_cap)
      : visibility(visibility), unit(CAPPED ? 1 : (scale > 0 ? scale : 1e-30f) * TO_LOG_2), into_cap(CAPPED ? scale / soft_cap : 0),
        cap(soft_cap * TO_LOG_2) {}

  // whole(): every query sees every key. logs: of the turn's queries, in shared memory; ahead: the first of them; bias, mask: their tiles there.
  // hide_more(scores): where not all see all, what else makes them -inf.
  template <class Block, class Whole, class HideMore, int AHEAD = 0>
  void weigh(float (&s)[ROWS / 2], Slopes<ROWS, CAPPED>& slopes, const Block& block, int part, int step, Whole whole, uint32_t logs,
             HideMore hide_more, LogsAhead<AHEAD> ahead = {}, uint32_t bias = 0, uint32_t mask = 0) const {
    if constexpr (CAPPED) {
#pragma unroll
      for (int i = 0; i < ROWS / 2; i += 2) {
        const float low = ${capped and E == 'bf16' and not by_blocks ? 'rough_tanh_of' : 'far_tanh_of'}(s[i] * into_cap), high = ${capped and E == 'bf16' and not by_blocks ? 'rough_tanh_of' : 'far_tanh_of'}(s[i + 1] * into_cap);
        slopes.pairs[i / 2] = pack_pair<half>(1 - low * low, 1 - high * high);
        s[i] = cap * low, s[i + 1] = cap * high;
      }
    }
    if constexpr (BIASED) Tile::add(s, unit, bias, part);
    if constexpr (MASKED) MaskTile<true, ROWS>::hide(s, mask, part);
    if (!whole()) {
      const int thread = static_cast<int>(later(thread_x()));  // kept for no other turn
      const int key = block.first_key + part * 64 + thread / WARP % 4 * 16 + thread % WARP / 4;
      const Sequence& sequence = block.sequence;
      RowRange range[2];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        range[h] = key + 8 * h < sequence.keys
                       ? seeing_queries(visibility, key + 8 * h, sequence.offset, static_cast<int>(block.seeing()))
                       : RowRange{0, 0};
      LaneRows::hide(s, range, step * ROWS + thread % 4 * 2);
      hide_more(s);
    }
#pragma unroll
    for (int j = 0; j < ROWS / 8; ++j) {
      Pack<float, 2>& place = ahead.of[j % ahead.SIZE];
      const Pack<float, 2> log = AHEAD > 0 ? place : ahead.load(logs, j);
      if (AHEAD > 0 && j + AHEAD < ROWS / 8) place = ahead.load(logs, j + AHEAD);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float score = s[4 * j + i];
$if takes_bias
        // Of a faint row (faint_rows.h) nothing is left of what is finite, and minus infinity stays.
        s[4 * j + i] = exp2_of(score * (is_faint(log.at[i % 2]) ? 0x1p-148f : LOG2_E) - (log.at[i % 2] - shift()));
$else
        s[4 * j + i] = exp2_of(score * (BIASED ? LOG2_E : unit) - (log.at[i % 2] - shift()));
$end
        if (ZEROES && score == -INFINITE) s[4 * j + i] = 0;
      }
    }
  }
};

// Deltas of 16 queries, number n of the turn's, from shared memory: those that this lane has scores of. To be loaded a slice ahead.
struct SliceDeltas {
  Pack<float, 2> of[2];
  SliceDeltas() = default;
  SliceDeltas(uint32_t deltas, int n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) of[j] = load_two(deltas + lane() % 4 * 8 + (16 * n + 8 * j) * 4);
  }
};

// Gradients of scores of 16 queries, number n of the turn's: weight * factor * (dP - delta) as operand and, transposed, in shared memory,
// where queries are rows of a box of 64 keys. WHOLE: every query sees every key; else a weight of 0 takes nothing from dP. MARKED: a negative
// weight is one that is dropped. bias_sums: those of the bias's gradient, which is not cut by the soft cap.
template <class T, bool WHOLE, bool MARKED = false, class WeightOf, int ROWS, bool CAPPED, bool SUMMED = false>
static inline void differentiate_slice(int n, const float (&dp)[ROWS / 2], WeightOf weight_of, float factor, const Slopes<ROWS, CAPPED>& slopes,
                                       const SliceDeltas& deltas, uint32_t box, uint32_t (&ds)[4],
                                       const BiasTileSums<SUMMED, ROWS>& bias_sums = {nullptr, 0}) {
  float x[8];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int e = 8 * n + 4 * j + i;
      const float weight = weight_of(4 * j + i);
      float& to = x[4 * j + i];
      if (MARKED)
        to = factor * (larger_of(weight, 0.0f) * dp[e] - fabsf(weight) * deltas.of[j].at[i % 2]);
      else
        to = weight * (dp[e] * factor - deltas.of[j].at[i % 2] * factor);  // factor: a power of 2; of deltas for two elements at once
      if (CAPPED && !SUMMED) to *= slopes[e];
      if (!WHOLE && weight == 0) to = 0;
    }
    bias_sums.add(2 * n + j, x + 4 * j);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (CAPPED && SUMMED) x[4 * j + i] *= slopes[8 * n + 4 * j + i];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) ds[i] = later(pack_pair<T>(x[2 * i], x[2 * i + 1]));  // now: dp's registers are needed
  const uint32_t chunk = warp() % 4 * 2 + lane() / 8 % 2, row = 16 * n + lane() / 16 * 8 + lane() % 8;
  store_matrices_transposed(box + row * 128 + (chunk ^ lane() % 8) * 16, ds);
}

// An 8 x 8 matrix of pairs, transposed. (movmatrix)
static inline uint32_t transpose_matrix(uint32_t x) {
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// A warpgroup's sums, transposed: 64 features from `box` times 64 on, of N / 4 * 8 rows from `row` on. Returns whether this lane's are finite.
template <int D, class T, int N>
static inline bool store_transposed(const float (&sums)[N], float factor, const Heads<T>& to, const Sequence& sequence, int head, int row, int box) {
  constexpr int CHUNKS = N / 4;  // of 8 rows
  const int thread = static_cast<int>(later(thread_x())), feature = 64 * box + thread / WARP % 4 * 16 + thread % 2 * 8, chunk = thread % 4 / 2;
  float zero = 0;
#pragma unroll
  for (int first = 0; first < CHUNKS; first += 2) {
    uint32_t w[4] = {};
#pragma unroll
    for (int i = 0; i < 4 && first + i / 2 < CHUNKS; ++i) {
      const int e = 4 * first + 2 * i;
      w[i] = transpose_matrix(pack_pair<T>(sums[e] * factor, sums[e + 1] * factor));
      zero += sums[e] * 0 + sums[e + 1] * 0;
    }
    transpose_in_four(w);
    const int at = row + 8 * (first + chunk) + thread % WARP / 4;
    if (first + chunk < CHUNKS && at < sequence.queries && feature < D)
      store_pack(reinterpret_cast<uint32_t*>(to.row(sequence.batch, sequence.first_query + at, head) + feature),
                 Pack<uint32_t, 4>{{w[0], w[1], w[2], w[3]}});
  }
  return zero == 0;
}

// A warpgroup's sums, of 64 keys from key `first` of the block on, to rows of dk or dv. Returns whether this lane's are finite.
template <class T, int N, class Block>
static inline bool store_sums(const float (&sums)[N], float factor, const Heads<T>& to, const Block& block, int first) {
  float zero = 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int thread = static_cast<int>(later(thread_x())), key = first + thread / WARP % 4 * 16 + thread % WARP / 4 + 8 * h;
    const bool wanted = key < block.keys;
    store_row(sums, h, factor, to.row(block.sequence.batch, block.token() + (wanted ? key : 0), block.kv_head), wanted);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) zero += sums[i] * 0;
  return zero == 0;
}
