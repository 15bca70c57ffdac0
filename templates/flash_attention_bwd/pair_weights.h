// GPU vocabulary of the attention kernels' gradients on mma.sync: a pair's products of keys by queries become weights P, in one of its
// warps, and gradients of scores dS = P (dP - delta), in the other, where lane meets lane through shared memory.
#pragma once
#include "flash_attention_bwd/attention_backward.h"
#include "flash_attention_bwd/bias_gradient.h"
#include "flash_attention_bwd/pair_shape.h"
#include "flash_attention_bwd/tile_store.h"

template <class T> constexpr bool HAS_RANGE_OF_F32 = false;
template <> constexpr bool HAS_RANGE_OF_F32<bfloat16> = true;

// Of a step and a lane.
struct PairStep {
  const float *logs, *deltas;  // of the step's queries
  const uint8_t* kept;         // [8 keys][query]: bit lane / 4, of the lane's keys and queries
  int head, first_query;
};

// ADJUSTED: any of bias, mask, segments, lengths may be given. CAPPED: soft cap. DROPPED: dropout. BIAS_GRADIENT: dbias is given.
template <class Shape, bool ADJUSTED, bool CAPPED, bool DROPPED, bool BIAS_GRADIENT> struct PairWeights {
  using T = typename Shape::Element;
  using Scores = typename Shape::Scores;
  using Operands = typename Shape::Operands;
  static constexpr int M_TILES = Shape::M_TILES, N_TILES = Shape::N_TILES, HALVES = Shape::HALVES, BLOCK_M = Shape::BLOCK_M;

  static constexpr int SHIFT = 15;  // P is kept as 2^SHIFT P, which halves hold well
  static constexpr bool BROAD = HAS_RANGE_OF_F32<T>;  // dS stays scaled by 2^SHIFT
  static constexpr float SCALED = 1 << SHIFT, DS_SCALED = BROAD ? SCALED : 1;

  // Shared memory of a block: weights on their way from warp to warp, then slopes of the soft cap; which weights of a step are kept.
  static constexpr int FLOAT_BYTES = BIAS_GRADIENT ? 4 : 2, PAIR_BYTES = Shape::PAIR_KEYS * BLOCK_M * FLOAT_BYTES;
  static constexpr int WEIGHT_BYTES = Shape::PAIRS * PAIR_BYTES, EXCHANGE_BYTES = (CAPPED ? 2 : 1) * WEIGHT_BYTES;
  static constexpr int KEPT_BYTES = Shape::BLOCK_N / 8 * BLOCK_M;

  // By causality, window and length, the queries that see each of this lane's keys.
  struct Seeing {
    RowRange of[M_TILES][2];

    Seeing(const ${by_blocks ? 'BlockVisibility' : 'Visibility'}& rule, const Sequence& sequence, int first_key) {
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
  static void adjust(Scores& s, Scores& slopes, const ScoreRules& rules, const Sequence& sequence, const PairStep& step,
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
              const float tanh = far_tanh_of(x * (rules.scale / rules.soft_cap));
              slopes[m][n][2 * h + i] = 1 - tanh * tanh;
            }
            const int key = first_key + 16 * m + 8 * h + lane() / 4;
$if by_blocks and takes_bias
            x = seeing(m, h, query) ? seen_score(score_of<ADJUSTED, CAPPED>(x, rules, row, key), step.logs[query - step.first_query], row, key) : -INFINITE;
$else
            x = seeing(m, h, query) ? score_of<ADJUSTED, CAPPED>(x, rules, row, key) : -INFINITE;
$end
          }
      }
  }

  // Scores become weights, scaled by 2^SHIFT. unit: takes scores to log 2. For the bias's gradient, which nothing repairs, those of hidden scores
  // are 0 also where a row's log-sum-exp is NaN.
  static void weigh(Scores& s, const PairStep& step, float unit) {
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) {
      const Pack<float, 2> log = load_pack<2>(step.logs + 8 * n + lane() % 4 * 2);
#pragma unroll
      for (int m = 0; m < M_TILES; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& x = s[m][n][i];
$if takes_bias
          const bool hidden = x == -INFINITE;
          x = hidden ? 0 : exp2_of(weight_exponent(x * unit, log.at[i % 2]) + SHIFT);
$else
          const bool hidden = BIAS_GRADIENT && x == -INFINITE;
          x = hidden ? 0 : exp2_of(x * unit - (log.at[i % 2] - SHIFT));
$end
        }
    }
  }

  // Weights of queries that do not see a key become 0, whatever they are.
  static void hide(Scores& s, const PairStep& step, const Seeing& seeing) {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!seeing(m, i / 2, step.first_query + 8 * n + lane() % 4 * 2 + i % 2)) s[m][n][i] = 0;
  }

  // Draws which weights of a step are kept, eight keys a thread at a time.
  static void draw(uint8_t* kept, const ScoreRules& rules, const Sequence& sequence, int head, int first_query, int first_key) {
#pragma unroll 1
    for (int i = thread_x(); i < KEPT_BYTES; i += Shape::THREADS) {
      uint32_t words[4] = {static_cast<uint32_t>(first_key / 8 + i / BLOCK_M), static_cast<uint32_t>(first_query + i % BLOCK_M),
                           static_cast<uint32_t>(sequence.index * rules.heads + head), 0};
      philox(words, rules.seed);
      uint32_t bits = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) bits |= static_cast<uint32_t>(static_cast<float>(dropout_lane(words, j)) >= rules.drop_threshold) << j;
      kept[i] = static_cast<uint8_t>(bits);
    }
  }
  static bool is_kept(const PairStep& step, int m, int h, int n, int i) {
    return step.kept[(2 * m + h) * BLOCK_M + 8 * n + i] >> lane() / 4 & 1;
  }
  static void drop(Scores& s, const PairStep& step) {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!is_kept(step, m, i / 2, n, i % 2)) s[m][n][i] = 0;
  }

  // To the other warp of the pair, tile m of keys and half n of the queries: what a lane gives, the same lane there takes. As halves; dbias
  // may be of f32, and has the weights as they are.
  static int place_of(int m, int n) { return ((m * HALVES + n) * WARP + lane()) * 8; }
  static void give(char* place, const Scores& s) {
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
          store_pack(reinterpret_cast<uint32_t*>(place + place_of(m, n) * 2), pack_operand<half>(s, m, n));
        }
  }
  static Pack<float, 8> take(const char* place, int m, int n) {
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

  // dP becomes dS, scaled by DS_SCALED, as operand A; a weight of 0 takes nothing from dP if some query does not see some key (not WHOLE).
  // kept_factor: on dP, of a weight that is not dropped.
  template <bool WHOLE>
  static void differentiate(Operands& a, const Scores& dp, const PairStep& step, const char* weights, float kept_factor,
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
            if (!WHOLE && weight == 0) ds[j] = 0;
            if (BIAS_GRADIENT) bias.add(8 * (2 * m + i % 2), 8 * (2 * n + i / 2) + j, ds[j] * (1 / DS_SCALED));
            if (CAPPED) ds[j] = weight == 0 ? 0 : ds[j] * slopes.at[2 * i + j];
          }
          a[m][n][i] = pack_pair<T>(ds[0], ds[1]);
        }
      }
    }
  }

  // dS, for all warps: keys are the tile's rows.
  static void store(char* tile, const Operands& ds, int row) {
    constexpr int PITCH = Shape::GradientTile::PITCH;
    T* const first = reinterpret_cast<T*>(tile) + row * PITCH;
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int n = 0; n < HALVES; ++n) store_a<PITCH>(first + 16 * m * PITCH + 16 * n, ds[m][n]);
  }
};
