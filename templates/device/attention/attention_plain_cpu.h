// CPU vocabulary of the attention kernels: one query row at a time, LANES keys at a time, by the definition. Part of a template, which has defined
// Element before.
//
// The running softmax: `maximum` is the largest score so far, `sum` the denominator and `out` the weighted values, both relative to it.
// Scores are in units of log 2. Keys a row does not see are not read, but for those in a partly visible group of LANES: not even those.
#pragma once

// What a call asks for, the same for every row.
struct Call {
  Heads<const Element> q, k, v;
  Heads<Element> out;
  const View &bias, &mask, &q_segments, &kv_segments, &sinks, &lse, &weights;
  Visibility visibility;
  int64_t bias_type, sinks_type, head_dim, value_dim;
  float scale, soft_cap, drop_threshold;
  uint64_t seed;
};

// One query row of one head.
struct Query {
  const Call& call;
  Sequence sequence;
  int64_t token, head, kv_head;
  float maximum;
  double sum;
  float* out;  // [value_dim], the worker's scratch
};

static float dot(const Element* a, const Element* b, int64_t count) {
  Floats sums = {};
  int64_t d = 0;
  for (; d + LANES <= count; d += LANES) sums += load_floats(a + d) * load_floats(b + d);
  float sum = 0;
  for (; d < count; ++d) sum += to_float(a[d]) * to_float(b[d]);
  for (int lane = 0; lane < LANES; ++lane) sum += sums[lane];
  return sum;
}

// Whether mask and segments let the query see the key; causality, window and lengths are in its key range already.
static bool sees(const Query& query, int64_t key) {
  const Call& call = query.call;
  if (is_given(call.mask)) {
    const bool* row = static_cast<const bool*>(call.mask.data) + row_offset(call.mask, query.sequence.batch, query.head, query.token);
    if (!row[key]) return false;
  }
  if (!is_given(call.q_segments)) return true;
  const int32_t* of_queries = static_cast<const int32_t*>(call.q_segments.data) + query.sequence.batch * call.q_segments.strides[0];
  const int32_t* of_keys = static_cast<const int32_t*>(call.kv_segments.data) + query.sequence.batch * call.kv_segments.strides[0];
  return of_keys[key] >= 0 && of_keys[key] == of_queries[query.token];
}

static float score(const Query& query, int64_t key) {
  const Call& call = query.call;
  const Element* q = call.q.row(query.sequence.batch, query.sequence.first_query + query.token, query.head);
  const Element* k = call.k.row(query.sequence.batch, query.sequence.first_key + key, query.kv_head);
  float s = call.scale * dot(q, k, call.head_dim);
  if (call.soft_cap > 0) s = call.soft_cap * tanh_of(splat(s / call.soft_cap))[0];
  if (is_given(call.bias))
    s += limited_bias(element_of(call.bias.data, call.bias_type, row_offset(call.bias, query.sequence.batch, query.head, query.token) + key));
  return s * LOG2_E;
}

static bool is_dropped(const Query& query, int64_t key) {
  if (query.call.drop_threshold <= 0) return false;
  const int64_t row = query.sequence.index * query.call.q.heads + query.head;
  uint32_t words[4] = {static_cast<uint32_t>(key >> 3), static_cast<uint32_t>(query.token), static_cast<uint32_t>(row), 0};
  philox(words, query.call.seed);
  return static_cast<float>(dropout_lane(words, key)) < query.call.drop_threshold;
}

static void start(Query& query) {
  const Sinks sinks(query.call.sinks, query.call.sinks_type, query.head, query.call.q.heads);
  query.maximum = -INFINITE;
  query.sum = 0;
  const int64_t count = query.sequence.past_the_end ? 0 : sinks.count;
  for (int64_t i = 0; i < count; ++i) query.maximum = sinks[i] * LOG2_E > query.maximum ? sinks[i] * LOG2_E : query.maximum;
  const float base = query.maximum == -INFINITE ? 0 : query.maximum;
  for (int64_t i = 0; i < count; ++i) query.sum += exp2_of(splat(sinks[i] * LOG2_E - base))[0];
  __builtin_memset(query.out, 0, query.call.value_dim * sizeof(float));
}

// Keys [first, first + count), count <= LANES.
static void add_keys(Query& query, int64_t first, int64_t count) {
  const Call& call = query.call;
  Floats scores = splat(-INFINITE);
  float largest = query.maximum;
  for (int64_t i = 0; i < count; ++i) {
    if (!sees(query, first + i)) continue;
    scores[i] = score(query, first + i);
    if (scores[i] > largest) largest = scores[i];
  }
  if (largest > query.maximum) {
    const float factor = exp2_of(splat(query.maximum - largest))[0];
    query.sum *= factor;
    for (int64_t d = 0; d < call.value_dim; ++d) query.out[d] *= factor;
    query.maximum = largest;
  }
  const Floats weights = exp2_of(scores - (query.maximum == -INFINITE ? 0.0f : query.maximum));
  for (int64_t i = 0; i < count; ++i) {
    query.sum += weights[i];
    if (weights[i] == 0 || is_dropped(query, first + i)) continue;  // a value behind a weight of 0 may be NaN
    const Element* v = call.v.row(query.sequence.batch, query.sequence.first_key + first + i, query.kv_head);
    int64_t d = 0;
    for (; d + LANES <= call.value_dim; d += LANES)
      store_floats(query.out + d, load_floats(query.out + d) + load_floats(v + d) * weights[i]);
    for (; d < call.value_dim; ++d) query.out[d] += to_float(v[d]) * weights[i];
  }
}

// From a weight relative to the maximum to what its value counts in out.
static float weight_factor(const Query& query) {
  const float threshold = query.call.drop_threshold, kept = threshold < 65536 ? 65536 / (65536 - threshold) : 0;
  return query.sum == 0 ? 0 : static_cast<float>(kept / query.sum);
}

// Once all keys were added.
static void store_weights(const Query& query, const KeyRange& keys) {
  const View& weights = query.call.weights;
  Element* to = static_cast<Element*>(weights.data) + row_offset(weights, query.sequence.batch, query.head, query.token);
  const float factor = weight_factor(query), base = query.maximum == -INFINITE ? 0 : query.maximum;
  for (int64_t key = 0; key < weights.shape[3]; ++key) {
    float weight = 0;
    if (key >= keys.first && key < keys.end && sees(query, key) && !is_dropped(query, key))
      weight = exp2_of(splat(score(query, key) - base))[0];
    to[key] = from_float<Element>(weight == 0 ? 0 : weight * factor);
  }
}

static void store(const Query& query) {
  const Call& call = query.call;
  const float factor = weight_factor(query);
  Element* out = call.out.row(query.sequence.batch, query.sequence.first_query + query.token, query.head);
  for (int64_t d = 0; d < call.value_dim; ++d) out[d] = from_float<Element>(query.out[d] * factor);
  if (!is_given(call.lse)) return;
  const View& lse = call.lse;
  const int64_t batch = lse.rank == 3 ? query.sequence.batch * lse.strides[0] : 0;
  const float maximum = query.maximum == -INFINITE ? 0 : query.maximum * LN_2;
  static_cast<float*>(lse.data)[batch + query.head * lse.strides[lse.rank - 2] + query.sequence.first_query + query.token] =
      maximum + log_of(splat(static_cast<float>(query.sum)))[0];
}
