// GPU vocabulary of ragged_page_attention on waves: a lane's query row, the keys that it sees, and its softmax. Part of a template, which has defined before:
// Element, Cached, D, D16, CAPPED, SHIFT, VALUES.
#pragma once

using OwnQuery = OwnRow<Element, D, ${keep == 1}>;
$if v3
// A row, which becomes what the cache would store of it divided by a scale, in Elements, where there is one.
struct Queries : OwnQuery {
  const float* scale;

  Queries(const Element* from, const float* q_scale) : OwnQuery(from), scale(q_scale) {
#pragma unroll
    for (int slice = 0; OwnQuery::SLICES > 0 && ${keep == 1} && slice < OwnQuery::SLICES; ++slice)
      if (scale) round(this->kept[slice]);
  }
  void round(Operand& x) const {
#pragma unroll
    for (int i = 0; i < OPERAND_WORDS; ++i) {
      float number[2];
#pragma unroll
      for (int half_of = 0; half_of < 2; ++half_of)
        number[half_of] = to_float(cached<Cached>(to_float(__builtin_bit_cast(Element, static_cast<uint16_t>(x.words[i] >> 16 * half_of))) / *scale));
      x.words[i] = pack_pair<Element>(number[0], number[1]);
    }
  }
  Operand of(int slice) const {
    Operand x = OwnQuery::of(slice);
    if (!${keep == 1} && scale) round(x);
    return x;
  }
};
$else
using Queries = OwnQuery;
$end

// Rows number `item` of those that are up to 16 of one sequence each. False: there are fewer.
static inline bool find_rows(const RaggedBatch& batch, int64_t item, int token_rows, RaggedSequence& sequence, int& first_row) {
#pragma unroll 1
  for (int64_t n = 0; n <= batch.count; ++n) {
    sequence = batch[n];
    const int64_t items = (sequence.queries * token_rows + 15) / 16;
    first_row = static_cast<int>(item * 16);
    if (item < items) return true;
    item -= items;
  }
  return false;
}

struct RowSight {
  int first, end;
  TreeRow tree;
  bool has(int key) const { return key >= first && key < end && !tree.hides(key); }
};

// Scores of this lane's row become weights relative to its reference, which follows the largest; the sum and outputs follow it.
static inline void weigh(Sums& s, Softmax& softmax, Sums (&o)[D16 / 16], const RowSight& sees, bool whole, int first, float scale, float cap) {
  float largest = -INFINITE;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    float score = s.at[i] * scale;
    if (CAPPED) score = cap * tanh_of(score / cap);
    s.at[i] = whole || sees.has(first + matrix_row(i)) ? score * LOG2_E : -INFINITE;
    largest = larger_of(largest, s.at[i]);
  }
  largest = largest_of_column(largest) - SHIFT;
  if (largest > softmax.reference) {
    const float factor = factor_of(softmax, largest);
    softmax = {largest, softmax.sum * factor};
#pragma unroll
    for (int f = 0; f < D16 / 16; ++f)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) o[f].at[i] *= factor;
  }
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    s.at[i] = exp2_of(s.at[i] - softmax.reference);
    softmax.sum += s.at[i];
  }
}

static inline float value_of(SharedPointer values, int feature, int key) {
  return to_float(__builtin_bit_cast(Element, *shared_at<uint16_t>(values + feature * TRANSPOSED_PITCH<16> + key * 2)));
}

// Whether no value of the wave's 16 keys is infinite or NaN. Every lane calls it.
static inline bool are_finite(SharedPointer values) {
  bool wrong = false;
#pragma unroll 1
  for (int i = wave_lane(); i < 16 * D; i += WAVE) wrong = wrong || value_of(values, i / 16, i % 16) * 0 != 0;
  float any = wrong ? 1.0f : 0.0f;
#pragma unroll
  for (int mask = 1; mask < WAVE; mask *= 2) any = larger_of(any, exchange_wave(any, mask));
  return any == 0;
}

// o += weights times values, where a value behind a weight of 0 counts as 0: a row that does not see it must not know it.
static inline void add_guarded(Sums (&o)[D16 / 16], float (&weights)[16][17], SharedPointer values, const Sums& s) {
#pragma unroll
  for (int i = 0; i < SUMS; ++i) weights[matrix_column()][matrix_row(i)] = s.at[i];
  sync_wave();
#pragma unroll 1
  for (int key = 0; key < 16; ++key) {
    const float w = weights[matrix_column()][key];
#pragma unroll
    for (int f = 0; f < D16 / 16; ++f) {
      part();
#pragma unroll
      for (int i = 0; i < SUMS; ++i)
        if (w != 0) o[f].at[i] += w * value_of(values, 16 * f + matrix_row(i), key);
    }
  }
  sync_wave();
}
