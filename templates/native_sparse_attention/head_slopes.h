// CPU vocabulary: the query heads of some tokens against the keys of a branch: softmax weights by what the forward pass left, and the gradients of
// scores. All of them pass a range of keys, and then the next. Part of a template, which has defined before: HeadGradients, Keys, Entry
// (head_gradients.h or amx_head_gradients.h) and TOKENS, how many pass together at most.
#pragma once

static inline Integers seen_lanes(uint32_t seen) {
  Integers bit;
  for (int lane = 0; lane < LANES; ++lane) bit[lane] = 1 << lane;
  return (splat_integer(static_cast<int32_t>(seen)) & bit) != Integers{};
}

struct HeadSlopes {
  HeadGradients products;
  float *weights, *slopes;       // [token][kept]: of a branch, a range after the other; slopes: gradients of weights until the deltas are known
  float *base, *gates, *deltas;  // [token][row]
  float *sums, *dots;            // [token][row][LANES]: of weights, and of weights times their gradients
  uint32_t* bits;                // [token + 1][block_words]: selected blocks; the last: those of any token
  int64_t kept, block_words, block_size;
  float unit;

  // The branch that is passed: its tokens, which keys each of them sees, and where its next weights go.
  int64_t tokens, place[TOKENS];
  KeyRange seen[TOKENS];
  bool by_blocks;

  SelectedBlocks blocks(int64_t token) const { return {by_blocks ? bits + token * block_words : nullptr, block_size}; }

  // Scores of a row become weights; what lies behind a weight of 0 may not be finite.
  void weigh(const Groups& groups, float* scores, float* slope, int64_t row) const {
    Floats sum = load_floats(sums + row * LANES), dot = load_floats(dots + row * LANES);
    const Floats row_base = splat(base[row]);
    for (int64_t i = 0; i < groups.count; ++i)
      for (int64_t first = 0; first < GROUP; first += LANES) {
        float *weight_at = scores + i * GROUP + first, *slope_at = slope + i * GROUP + first;
        Floats weight = exp2_of(load_floats(weight_at) * unit - row_base);
        if (groups.seen[i] != WHOLE) weight = seen_lanes(groups.lanes(i, first)) ? weight : Floats{};
        const Floats gradient = weight == Floats{} ? Floats{} : load_floats(slope_at);
        store_floats(weight_at, weight);
        store_floats(slope_at, gradient);
        sum += weight, dot += weight * gradient;
      }
    store_floats(sums + row * LANES, sum), store_floats(dots + row * LANES, dot);
  }

  // Of each head dout . o, which is the gradient of its gate: not by LSE, whose rounding would stay where gradients cancel.
  void find_deltas() {
    for (int64_t row = 0; row < tokens * products.rows; ++row) {
      float sum = 0, dot = 0;
      for (int64_t lane = 0; lane < LANES; ++lane) sum += sums[row * LANES + lane], dot += dots[row * LANES + lane];
      deltas[row] = sum == 0 ? 0 : dot / sum;
    }
  }

  // use(entries, how many) for each range that some token sees, in order.
  template <class Use> void pass_ranges(Use use) {
    constexpr int64_t RANGE = GROUP * GROUPS;
    KeyRange all{__INT64_MAX__, 0};
    for (int64_t i = 0; i < tokens; ++i) {
      place[i] = i * kept;
      if (seen[i].first < seen[i].end) all = {seen[i].first < all.first ? seen[i].first : all.first, seen[i].end > all.end ? seen[i].end : all.end};
    }
    const auto next = [&](int64_t key) { return by_blocks && key < all.end ? blocks(tokens).next(key, all.end).first : key; };
    for (int64_t key = next(all.first); key < all.end; key = next((key / RANGE + 1) * RANGE)) {
      const int64_t first = key / RANGE * RANGE;
      Entry entries[TOKENS];
      int64_t count = 0;
      for (int64_t i = 0; i < tokens; ++i) {
        Entry& e = entries[count];
        const int64_t from = seen[i].first > first ? seen[i].first : first, to = seen[i].end < first + RANGE ? seen[i].end : first + RANGE;
        if (from >= to || !Runs(blocks(i), from, to, 0).next(e.groups)) continue;
        e.token = i, e.pitch = e.groups.count * GROUP, e.weights = weights + place[i], e.slopes = slopes + place[i];
        place[i] += products.rows * e.pitch, ++count;
      }
      if (count > 0) use(entries, count);
    }
  }

  // base, gates, seen and bits are set before; deltas are found.
  void differentiate(const Keys& keys) {
    const int64_t rows = products.rows;
    __builtin_memset(sums, 0, tokens * rows * LANES * sizeof(float));
    __builtin_memset(dots, 0, tokens * rows * LANES * sizeof(float));
    pass_ranges([&](const Entry* entries, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const Entry& e = entries[i];
        products.score(keys, e);
        for (int64_t row = 0; row < products.heads; ++row)
          weigh(e.groups, e.weights + row * e.pitch, e.slopes + row * e.pitch, e.token * rows + row);
      }
    });
    find_deltas();
    pass_ranges([&](const Entry* entries, int64_t count) { products.add(keys, entries, count, gates, deltas); });
  }
};
