// CPU vocabulary: the query heads of a token against the keys of a branch, group by group, with a running softmax. Part of a template, which has
// defined before: HeadProducts, Keys (head_products.h or amx_head_products.h).
#pragma once

// Maxima follow where scores leave them behind by more than this, in units of log 2.
constexpr float STALE = 8;

// Lane r of the result is the largest of the lanes of v[r]. Spoils v.
static inline Floats row_maxima(Floats (&v)[LANES]) {
  transpose(v);
#pragma GCC unroll 16
  for (int half = LANES / 2; half > 0; half /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < half; ++i) v[i] = larger_of(v[i], v[i + half]);
  return v[0];
}

static inline Integers seen_lanes(uint32_t seen) {
  Integers bit;
  for (int lane = 0; lane < LANES; ++lane) bit[lane] = 1 << lane;
  return (splat_integer(static_cast<int32_t>(seen)) & bit) != Integers{};
}

struct HeadSoftmax {
  HeadProducts products;
  float *maxima, *totals, *sums;  // [row], and room for LANES more; [row][LANES], whose sums are totals after attend()
  int64_t heads, passes;
  float unit;

  void start() {
    for (int64_t row = 0; row < passes * ROWS; ++row) maxima[row] = -INFINITE;
    __builtin_memset(sums, 0, passes * ROWS * LANES * sizeof(float));
    __builtin_memset(products.outputs, 0, passes * ROWS * WIDTH * sizeof(float));
  }

  // Scores times `factor` are in units of log 2. Where some of a block's keys are not seen they become so here, those keys' -inf.
  struct Block {
    const Groups& groups;
    float factor;
    bool whole = true;

    Block(const Groups& g, float unit) : groups(g), factor(unit) {
      for (int64_t i = 0; i < g.count; ++i) whole = whole && g.seen[i] == WHOLE;
      if (!whole) factor = 1;
    }
    int64_t keys() const { return groups.count * GROUP; }

    void hide(float* scores, float unit) const {
      for (int64_t i = 0; i < groups.count; ++i)
        for (int64_t first = 0; first < GROUP; first += LANES) {
          float* at = scores + i * GROUP + first;
          store_floats(at, seen_lanes(groups.lanes(i, first)) ? load_floats(at) * unit : splat(-INFINITE));
        }
    }
    Floats largest(const float* scores) const {
      Floats most = splat(-INFINITE);
      for (int64_t i = 0; i < keys(); i += LANES) most = larger_of(load_floats(scores + i), most);
      return most;
    }
    // Scores become weights, which `take(first key, them)` gets a group at a time, too; returns the sum and them.
    template <class Take> Floats weigh(float* scores, float maximum, Floats sum, Take take) const {
      const float base = maximum == -INFINITE ? 0 : maximum, by = factor;
      for (int64_t i = 0, end = keys(); i < end; i += GROUP) {
        Floats weight[GROUP / LANES];
#pragma GCC unroll 8
        for (int64_t v = 0; v < GROUP / LANES; ++v) {
          weight[v] = exp2_of(load_floats(scores + i + v * LANES) * by - base);
          store_floats(scores + i + v * LANES, weight[v]);
          sum += weight[v];
        }
        take(i, weight);
      }
      return sum;
    }
  };

  // Maxima of LANES rows from `first` on follow the scores; sums and outputs with them.
  void follow(int64_t first, const Block& block) {
    Floats most[LANES];
    for (int r = 0; r < LANES; ++r) most[r] = r < ROWS ? block.largest(products.scores + (first + r) * BLOCK) : splat(-INFINITE);
    const Floats before = load_floats(maxima + first), largest = row_maxima(most) * block.factor;
    const Integers grown = largest > before + STALE;
    if (!any(grown)) return;
    const Floats now = grown ? largest : before, factor = exp2_of(before - (now == splat(-INFINITE) ? Floats{} : now));
    for (int r = 0; r < ROWS; ++r) {
      maxima[first + r] = now[r];
      if (!grown[r] || before[r] == -INFINITE) continue;  // nothing was there before
      float *sum = sums + (first + r) * LANES, *output = products.outputs + (first + r) * WIDTH;
      store_floats(sum, load_floats(sum) * factor[r]);
      for (int64_t d = 0; d < WIDTH; d += LANES) store_floats(output + d, load_floats(output + d) * factor[r]);
    }
  }
  // Scores of a pass become weights relative to the rows' maxima, which follow.
  void weigh(int64_t pass, const Block& block) {
    const int64_t first = pass * ROWS;
    for (int64_t row = first; row < first + ROWS && !block.whole; ++row) block.hide(products.scores + row * BLOCK, unit);
    follow(first, block);
    for (int64_t row = first; row < first + ROWS && row < heads; ++row) {
      const auto take = [&](int64_t key, const Floats* weights) { products.take_weights(row - first, key, weights); };
      store_floats(sums + row * LANES, block.weigh(products.scores + row * BLOCK, maxima[row], load_floats(sums + row * LANES), take));
    }
  }

  // VALUES: also the weighted sums of values.
  template <bool VALUES, class K> void attend(const K& keys, Runs runs) {
    Groups groups;
    while (runs.next(groups)) {
      const Block block(groups, unit);
      for (int64_t pass = 0; pass < passes; ++pass) {
        products.score(pass, keys, groups);
        weigh(pass, block);
        if (VALUES) products.add_values(pass, keys, groups);
      }
    }
    for (int64_t first = 0; first < passes * ROWS; first += ROWS) {
      Floats of_row[LANES];
      for (int r = 0; r < LANES; ++r) of_row[r] = r < ROWS ? load_floats(sums + (first + r) * LANES) : Floats{};
      store_floats(totals + first, row_sums(of_row));
    }
  }

  float lse(int64_t row) const { return lse_of(maxima[row], totals[row]); }

  // The outputs of a row, times its gate, join the result.
  void add_to(float* result, int64_t row, float gate) const {
    const float factor = totals[row] == 0 ? 0 : gate / totals[row];
    const float* output = products.outputs + row * WIDTH;
    for (int64_t d = 0; d < WIDTH; d += LANES) store_floats(result + d, load_floats(result + d) + load_floats(output + d) * factor);
  }

$if gated
  // Of each of `count` keys the sum of its softmax weights over the heads, once attend() knows maxima and sums. Keys of one block still have
  // their weights. Key 0 is number `base`, and importance[base] its own.
  template <class K> void find_importance(const K& keys, int64_t count, int64_t base, float* importance) {
    Groups groups;
    for (Runs runs(SelectedBlocks{nullptr, 1}, 0, count, base); runs.next(groups);) {
      const Block block(groups, unit);
      for (int64_t pass = 0; base % GROUP + count > BLOCK && pass < passes; ++pass) {
        products.score(pass, keys, groups);
        for (int64_t row = pass * ROWS; row < (pass + 1) * ROWS && row < heads; ++row) {
          if (!block.whole) block.hide(products.scores + row * BLOCK, unit);
          block.weigh(products.scores + row * BLOCK, maxima[row], Floats{}, [](int64_t, const Floats*) {});
        }
      }
      float* to = importance + groups.index[0] * GROUP;
      __builtin_memset(to, 0, groups.count * GROUP * sizeof(float));
      for (int64_t row = 0; row < heads; ++row) {
        const float *weights = products.scores + row * BLOCK, factor = 1 / totals[row];
        for (int64_t i = 0; i < groups.count * GROUP; i += LANES) store_floats(to + i, load_floats(to + i) + load_floats(weights + i) * factor);
      }
    }
  }
$end
};
