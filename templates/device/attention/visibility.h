// Vocabulary of every backend: the keys a query may see by causality, window and length; always one range.
#pragma once
#include "device/view.h"

struct KeyRange {
  int64_t first, end;  // end excluded; empty: first == end
};

struct Visibility {
  bool causal;
  int64_t window_left, window_right;  // inclusive, -1: unbounded
};

// Query i of a sequence stands at position i + offset among its `keys` keys.
static inline KeyRange visible_keys(const Visibility& rule, int64_t i, int64_t offset, int64_t keys) {
  constexpr int64_t FAR = int64_t{1} << 61;  // positions and windows beyond it are cut, so that no sum overflows
  const int64_t position = i + (offset > FAR ? FAR : offset < -FAR ? -FAR : offset);
  KeyRange range{0, keys};
  if (rule.window_left >= 0 && rule.window_left < FAR && position - rule.window_left > 0) range.first = position - rule.window_left;
  const int64_t right = rule.causal ? 0 : rule.window_right;
  if (right >= 0 && right < FAR && position + right + 1 < keys) range.end = position + right + 1;
  if (range.end < 0) range.end = 0;
  if (range.first > range.end) range.first = range.end;
  return range;
}
