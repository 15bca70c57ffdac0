// CPU vocabulary of ragged_page_attention: where rows come from, and where their results go. Part of a template, which has defined before: Element, Cached,
// D, and Rows, whose parts wait to be put together.
#pragma once

// A query's row, as attention takes it, and its sinks.
struct RowSource {
  const View& queries;
  const float* q_scale;  // null: there is none
  const View& softmax_aux;
  int64_t sinks_type;
  bool has_sinks;  // this part counts them

  // Fills [0, features) with the row, zeros after D of them.
  void load(float* to, int64_t token, int64_t head, int64_t features) const {
    const Element* row = static_cast<const Element*>(queries.data) + token * queries.strides[0] + head * queries.strides[1];
    for (int64_t d = 0; d < features; d += LANES) store_floats(to + d, load_some(row + d, D - d));
    for (int64_t d = 0; q_scale && d < D; ++d) to[d] = as_cached<Cached>(to[d], *q_scale);
  }
  Sinks sinks(int64_t head) const {
    Sinks all(softmax_aux, sinks_type, head, queries.shape[1]);
    if (!has_sinks) all.count = 0;
    return all;
  }
};

struct Results {
  const View &out;
  const View lse;
  float* partial;       // [token][head][parts]
  int64_t parts, part;  // part: this one
  int64_t heads;
  float v_scale;

  // Sums of weights and of weighted values, relative to the maximum: the row's, or a part's.
  void put(int64_t token, int64_t head, const float* values, float maximum, float sum) const {
    if (parts == 1) return store(token, head, values, maximum, sum);
    float* to = partial + ((token * heads + head) * parts + part) * Rows::PART;
    to[0] = maximum, to[1] = sum;
    if (sum != 0) store_row<D>(values, 1, to + 2);
  }
  void store(int64_t token, int64_t head, const float* values, float maximum, float sum) const {
    store_row<D>(values, sum == 0 ? 0 : v_scale / sum, static_cast<Element*>(out.data) + token * out.strides[0] + head * out.strides[1]);
    if (is_given(lse)) static_cast<float*>(lse.data)[token * lse.strides[0] + head * lse.strides[1]] = lse_of(maximum, sum);
  }
};

// What a kv head's rows come from and go to, and what their scores are multiplied by.
struct HeadCall {
  RowSource source;
  Results results;
  float scale;
};
