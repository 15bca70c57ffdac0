// CPU vocabulary: the running softmax of one query row that takes its keys one at a time. Scores are in units of log 2.
#pragma once
struct Row {
  float maximum;
  double sum;
};

static float dot(const float* a, const float* b, int64_t count) {
  Floats sums = {};
  int64_t d = 0;
  for (; d + LANES <= count; d += LANES) sums += load_floats(a + d) * load_floats(b + d);
  float sum = 0;
  for (; d < count; ++d) sum += a[d] * b[d];
  for (int lane = 0; lane < LANES; ++lane) sum += sums[lane];
  return sum;
}

// Adds a key of this score; its weight, relative to the row's maximum.
static float weigh(Row& row, float score, float* values, int64_t count) {
  if (score > row.maximum) {
    const float factor = exp2_of(splat(row.maximum - score))[0];
    row.sum *= factor;
    for (int64_t d = 0; d < count; ++d) values[d] *= factor;
    row.maximum = score;
  }
  const float weight = exp2_of(splat(score - (row.maximum == -INFINITE ? 0 : row.maximum)))[0];
  row.sum += weight;
  return weight;
}
