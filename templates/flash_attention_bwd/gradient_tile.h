// CPU vocabulary: weights of a tile of attention and their gradients, made again from the log-sum-exps. Keys lie along the vectors.
#pragma once
#include "device/attention/attention_tile.h"
#include "flash_attention_bwd/attention_gradient.h"
$if by_blocks  // blocksparse_attention_bwd
#include "blocksparse_attention/key_blocks.h"
$end
$if takes_bias
#include "flash_attention_bwd/faint_rows.h"
$end

// ROWS query rows against keys [begin, end) of a block that starts at key `first` of the sequence, in panels of WIDTH keys.
template <int64_t ROWS, int64_t WIDTH, int64_t KEYS> struct GradientTile {
  const Row* row;
  int64_t rows, batch, sequence, keys;  // rows: those in use, padding included; keys: of the sequence
  int64_t first, begin, end;            // begin and end: multiples of WIDTH
  float* weights;                       // [panel][ROWS][WIDTH]: scores; become weights, those of dropped keys 0
  float* slopes;                        // likewise: gradients of the weights; become gradients of the products q . k
  float* by_score;                      // likewise, gradients of the scores after cap and bias are added to it; null: not wanted
  const float *base, *delta;            // [ROWS]: log-sum-exp in units of log 2, +inf where a row sees nothing; out * dout
$if by_blocks
  int64_t count = KEYS;                 // keys of the block: what its last panel has behind them is of the next block
$end

  int64_t place(int64_t r, int64_t j) const { return (j / WIDTH * ROWS + r) * WIDTH + j % WIDTH; }
};

// The panels of the block [first, first + count) that some of the rows see; false: there are none. `every`: all of them see all of it.
template <int64_t ROWS, int64_t WIDTH, int64_t KEYS>
static bool panels_seen(const Row* row, int64_t rows, GradientTile<ROWS, WIDTH, KEYS>& t, int64_t first, int64_t count, bool& every) {
  KeyRange some{__INT64_MAX__, 0}, all{0, __INT64_MAX__};
  for (int64_t r = 0; r < rows; ++r) {
    const KeyRange keys = row[r].keys;
    all = {larger(all.first, keys.first), smaller(all.end, keys.end)};
    if (keys.first < keys.end) some = {smaller(some.first, keys.first), larger(some.end, keys.end)};
  }
  if (some.first >= first + count || some.end <= first || some.first >= some.end) return false;
  t.first = first;
$if by_blocks
  t.count = count;
$end
  t.begin = larger(some.first - first, 0) / WIDTH * WIDTH;
  t.end = (smaller(some.end - first, count) + WIDTH - 1) / WIDTH * WIDTH;
  every = ${by_blocks ? 't.end <= count && ' : ''}first + t.begin >= all.first && first + t.end <= all.end;
  return true;
}

// Every row sees every key, and nothing but the scale is applied.
template <int64_t ROWS, int64_t WIDTH, int64_t KEYS>
static void weigh_all(const GradientTile<ROWS, WIDTH, KEYS>& t, float unit) {
  for (int64_t j = t.begin; j < t.end; j += WIDTH)
    for (int64_t r = 0; r < t.rows; ++r) {
      float *weights = t.weights + t.place(r, j), *slopes = t.slopes + t.place(r, j);
      const Floats base = splat(t.base[r]), delta = splat(t.delta[r]);
#pragma GCC unroll 8
      for (int64_t i = 0; i < WIDTH; i += LANES) {
        const Floats weight = exp2_of(load_floats(weights + i) * unit - base);
        store_floats(weights + i, weight);
        store_floats(slopes + i, weight * (load_floats(slopes + i) - delta));
      }
    }
}

// Lanes 0, 1, 2, ...
static inline Integers lane_numbers() {
  Integers numbers;
  for (int lane = 0; lane < LANES; ++lane) numbers[lane] = lane;
  return numbers;
}

// Factors of keys [first, first + KEYS) for one row: 0 where dropped, else `kept`.
template <int64_t KEYS>
static void kept_factors(const ScoreRules& rules, const Row& row, int64_t sequence, int64_t first, float kept, float (&factors)[KEYS + 8 * LANES]) {
  for (int64_t j = 0; j < KEYS; j += 8 * LANES) {
    Words words[4];
    words[0] = static_cast<uint32_t>((first + j) >> 3) + reinterpret_cast<Words>(lane_numbers());
    words[1] = static_cast<uint32_t>(row.token) - Words{};
    words[2] = static_cast<uint32_t>(sequence * rules.heads + row.head) - Words{};
    words[3] = Words{};
    philox(words, rules.seed);
    const Integers threshold = splat_integer(static_cast<int32_t>(rules.drop_threshold));
    for (int64_t i = 0; i < 8; ++i) {
      const Floats factor = reinterpret_cast<Integers>(dropout_lane(words, i)) >= threshold ? splat(kept) : Floats{};
      for (int lane = 0; lane < LANES; ++lane) factors[j + 8 * lane + i] = factor[lane];
    }
  }
}

$if takes_bias
// Whether mask and segments let the row see the key; its range does.
static inline bool sees_key(const ScoreRules& rules, int64_t batch, const Row& row, int64_t key) {
  if (is_given(rules.mask) && !static_cast<const bool*>(rules.mask.data)[row_offset(rules.mask, batch, row.head, row.token) + key]) return false;
  if (!is_given(rules.q_segments)) return true;
  const int32_t own = static_cast<const int32_t*>(rules.q_segments.data)[batch * rules.q_segments.strides[0] + row.token];
  return own >= 0 && key_segment(rules, batch, key) == own;
}

// A row's log-sum-exp in units of log 2; of a faint row, whose keys are counted anew for each block of keys, faint_log().
static __attribute__((noinline)) float log_of_row(const ScoreRules& rules, int64_t batch, const Row& row, float lse${by_blocks ? ', const BlockVisibility& visibility' : ''}) {
  const float log = usual_log(lse * LOG2_E);
  if (!is_given(rules.bias) || !(lse < FAINT)) return log;
  const int64_t first = row_offset(rules.bias, batch, row.head, row.token);
  int64_t count = 0;
  for (int64_t key = row.keys.first; key < row.keys.end; ++key) {
$if by_blocks
    if (!visibility.has_block(batch, row.head, row.token, key)) continue;
$end
    const float bias = limited_bias(element_of(rules.bias.data, rules.bias_type, first + key));
    if (bias == -INFINITE || !sees_key(rules, batch, row, key)) continue;
    if (!(bias >= lse * (1 + FAINT_LEEWAY))) return log;
    ++count;
  }
  return count == 0 ? log : faint_log(log_of(splat(static_cast<float>(count)))[0] * LOG2_E);
}

$end
// One row of the tile: every option and every kind of masking. What a row does not see has weight 0, whatever lies there.
template <int64_t ROWS, int64_t WIDTH, int64_t KEYS>
static void weigh_row(const GradientTile<ROWS, WIDTH, KEYS>& t, const ScoreRules& rules, int64_t r, const float* factors) {
  const Row& row = t.row[r];
  const float cap = rules.soft_cap, into_cap = cap > 0 ? rules.scale / cap : 0, unit = rules.scale * LOG2_E;
  const bool biased = is_given(rules.bias), masked = is_given(rules.mask), segmented = is_given(rules.q_segments);
  const int64_t bias_row = biased ? row_offset(rules.bias, t.batch, row.head, row.token) : 0;
  const int64_t mask_row = masked ? row_offset(rules.mask, t.batch, row.head, row.token) : 0;
  const int32_t* segments = segmented ? static_cast<const int32_t*>(rules.kv_segments.data) + t.batch * rules.kv_segments.strides[0] : nullptr;
  const int32_t segment =
      segmented ? static_cast<const int32_t*>(rules.q_segments.data)[t.batch * rules.q_segments.strides[0] + row.token] : 0;
  const Floats base = splat(t.base[r]), delta = splat(t.delta[r]);
$if takes_bias
  const bool faint = biased && is_faint(t.base[r]);
$end
  const auto local = [&](int64_t key) { return splat_integer(static_cast<int32_t>(smaller(larger(key - t.first, 0), ${by_blocks ? 't.count' : 'KEYS'}))); };
  const Integers range_begin = local(row.keys.first), range_end = local(row.keys.end);
  for (int64_t j = t.begin; j < t.end; j += LANES) {
    const int64_t at = t.place(r, j), key = t.first + j, count = smaller(t.keys - key, LANES);
    const Integers number = splat_integer(static_cast<int32_t>(j)) + lane_numbers();
    Integers visible = (number >= range_begin) & (number < range_end);
    Floats score = load_floats(t.weights + at), slope = splat(1);
    if (cap > 0) {
      const Floats bent = tanh_of(score * into_cap);
      score = bent * (cap * LOG2_E);
      slope -= bent * bent;
    } else {
      score *= unit;
    }
$if takes_bias
    if (biased) score += limited_bias(load_elements(rules.bias.data, rules.bias_type, bias_row + key, count)) * LOG2_E;
    if (faint) visible &= score > splat(-INFINITE);
$else
    if (biased) score += load_elements(rules.bias.data, rules.bias_type, bias_row + key, count) * LOG2_E;
$end
    if (masked) visible &= load_elements(rules.mask.data, TYPE_BOOL, mask_row + key, count) > Floats{};
    for (int64_t lane = 0; segmented && lane < LANES; ++lane)
      if (lane >= count || segment < 0 || segments[key + lane] != segment) visible[lane] = 0;
$if takes_bias
    const Floats weight = visible ? exp2_of(faint ? -base : score - base) : Floats{};
$else
    const Floats weight = visible ? exp2_of(score - base) : Floats{};
$end
    Floats by_weight = load_floats(t.slopes + at), kept = weight;
    if (factors) {
      const Floats factor = load_floats(factors + j);
      by_weight = factor == Floats{} ? Floats{} : by_weight * factor;
      kept = factor == Floats{} ? Floats{} : weight * factor;
    }
    const Floats by_score = weight == Floats{} ? Floats{} : weight * (by_weight - delta);
    store_floats(t.weights + at, kept);
    store_floats(t.slopes + at, weight == Floats{} ? Floats{} : by_score * slope);
    if (t.by_score) store_floats(t.by_score + at, load_floats(t.by_score + at) + by_score);
  }
}

template <int64_t ROWS, int64_t WIDTH, int64_t KEYS>
static __attribute__((noinline)) void weigh_rows(const GradientTile<ROWS, WIDTH, KEYS>& t, const ScoreRules& rules) {
  float factors[KEYS + 8 * LANES];
  const bool dropped = rules.drop_threshold > 0;
  const float kept = rules.drop_threshold < 65536 ? 65536 / (65536 - rules.drop_threshold) : 0;
  for (int64_t r = 0; r < t.rows; ++r) {
    if (dropped) kept_factors<KEYS>(rules, t.row[r], t.sequence, t.first, kept, factors);
    weigh_row(t, rules, r, dropped ? factors : nullptr);
  }
}
