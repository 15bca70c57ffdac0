// native_sparse_attention, or its branch of blocks alone, forward, plain: one query row at a time, LANES keys at a time, by the definition.
// Takes every legal call.
#include "device/cpu.h"
#include "device/attention/attention.h"
#include "device/number/math.h"
#include "native_sparse_attention/select_blocks_cpu.h"

using Element = ${ctype(E)};
#include "native_sparse_attention/gates.h"
#include "native_sparse_attention/empty_token_cpu.h"

template <class T> static float dot(const Element* a, const T* b, int64_t count) {
  Floats sums = {};
  int64_t d = 0;
  for (; d + LANES <= count; d += LANES) sums += load_floats(a + d) * load_floats(b + d);
  float sum = 0;
  for (; d < count; ++d) sum += to_float(a[d]) * to_float(b[d]);
  for (int lane = 0; lane < LANES; ++lane) sum += sums[lane];
  return sum;
}

// One query row of one branch: the running softmax; `out` is relative to the maximum. Scores are in units of log 2.
struct Row {
  const Element* query;
  int64_t head_dim, value_dim;
  float unit;
  float* out;  // [value_dim]
  float maximum;
  double sum;

  void start() {
    maximum = -INFINITE, sum = 0;
    for (int64_t d = 0; out && d < value_dim; ++d) out[d] = 0;
  }

  // Keys and values of `count` rows; without `out`, for the sum alone.
  template <class T> void add(const T* keys, int64_t key_stride, const T* values, int64_t value_stride, int64_t count) {
    for (int64_t first = 0; first < count; first += LANES) {
      const int64_t some = count - first < LANES ? count - first : LANES;
      Floats scores = splat(-INFINITE);
      float largest = maximum;
      for (int64_t i = 0; i < some; ++i) {
        scores[i] = dot(query, keys + (first + i) * key_stride, head_dim) * unit;
        if (scores[i] > largest) largest = scores[i];
      }
      if (largest > maximum) {
        const float factor = exp2_of(splat(maximum - largest))[0];
        sum *= factor;
        for (int64_t d = 0; out && d < value_dim; ++d) out[d] *= factor;
        maximum = largest;
      }
      const Floats weights = exp2_of(scores - (maximum == -INFINITE ? 0.0f : maximum));
      for (int64_t i = 0; i < some; ++i) {
        sum += weights[i];
        if (out && weights[i] != 0) add_value(values + (first + i) * value_stride, weights[i]);
      }
    }
  }

  template <class T> void add_value(const T* value, float weight) {
    int64_t d = 0;
    for (; d + LANES <= value_dim; d += LANES) store_floats(out + d, load_floats(out + d) + load_floats(value + d) * weight);
    for (; d < value_dim; ++d) out[d] += to_float(value[d]) * weight;
  }

  float lse() const { return (maximum == -INFINITE ? 0 : maximum * LN_2) + log_of(splat(static_cast<float>(sum)))[0]; }
  void add_to(float* result, float gate) const {
    const float factor = sum == 0 ? 0 : static_cast<float>(gate / sum);
    for (int64_t d = 0; d < value_dim; ++d) result[d] += out[d] * factor;
  }
};

static void add_tokens(Row& row, const Heads<const Element>& k, const Heads<const Element>& v, int64_t batch, int64_t kv_head, int64_t start,
                       const KeyRange& run) {
  row.add(k.row(batch, start + run.first, kv_head), k.token_stride, v.row(batch, start + run.first, kv_head), v.token_stride, run.end - run.first);
}

$if gated
// Sums over the query heads [first, end) of the softmax weights of means.
static void find_importance(float* importance, float* weights, Row row, const Heads<const Element>& q, const float* means, int64_t count,
                            int64_t batch, int64_t token, int64_t first, int64_t end) {
  for (int64_t c = 0; c < count; ++c) importance[c] = 0;
  row.out = nullptr;
  for (int64_t head = first; head < end; ++head) {
    row.query = q.row(batch, token, head);
    row.start();
    for (int64_t c = 0; c < count; ++c) {
      weights[c] = dot(row.query, means + c * row.head_dim, row.head_dim) * row.unit;
      if (weights[c] > row.maximum) row.maximum = weights[c];
    }
    for (int64_t c = 0; c < count; ++c) row.sum += weights[c] = exp2_of(splat(weights[c] - row.maximum))[0];
    for (int64_t c = 0; c < count; ++c) importance[c] += weights[c] / static_cast<float>(row.sum);
  }
}

#include "native_sparse_attention/find_means_entry.h"
$end

// Item (x, y, z): a token of row z of the batch, the last first, and all query heads of kv head y. `place`: where its row is; `token`: which of its
// sequence it is.
static void attend(${parameters('attend')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const int64_t place = group.grid_x - 1 - group.x, kv_head = group.y, batch = group.z;
  const SequenceTokens sequence = sequence_of(cum_seqlens, sequences, place, group.grid_x);
  if (sequence.length == 0) return clear_token(out_view, ${gated ? 'branch_lse_view, selected_view' : 'lse_view'}, place, kv_head, heads_a_kv_head);
  const int64_t token = place - sequence.first, own = token / block_size;
  const int64_t first_head = kv_head * heads_a_kv_head;
  float *result = static_cast<float*>(group.shared), *branch = result + v_view.shape[3];
  uint32_t* bits = reinterpret_cast<uint32_t*>(branch + v_view.shape[3]);
  for (int64_t i = 0; i < block_words; ++i) bits[i] = 0;
  const SelectedBlocks blocks{bits, block_size};
  Row row{nullptr, q_view.shape[3], v_view.shape[3], softmax_scale * LOG2_E, branch, 0, 0};
$if gated
  const int64_t past = (token + 1) / block_size, at = (batch * group.grid_y + kv_head) * means + sequence.first_mean(block_size);
  const float *mean_keys = key_means + at * row.head_dim, *mean_values = value_means + at * row.value_dim;
  float* importance = reinterpret_cast<float*>(bits + block_words);
  if (is_given(block_indices_view)) {
    name_blocks(bits, block_indices_view, block_counts_view, batch, place, kv_head, named_blocks, own);
  } else if (is_given(g_slc_view)) {
    if (room_beside(named_blocks, own) < own - 1)
      find_importance(importance, importance + means, row, q, mean_keys, past, batch, place, first_head, first_head + heads_a_kv_head);
    choose_blocks(bits, importance, own, named_blocks);
  }
  store_selected(selected_view, blocks, batch, place, kv_head, own);
$else
  name_blocks(bits, block_indices_view, block_counts_view, batch, place, kv_head, named_blocks, own);
$end
  for (int64_t head = first_head; head < first_head + heads_a_kv_head; ++head) {
    row.query = q.row(batch, place, head);
    for (int64_t d = 0; d < row.value_dim; ++d) result[d] = 0;
$if gated
    row.start();
    if (is_given(g_cmp_view)) {
      row.add(mean_keys, row.head_dim, mean_values, row.value_dim, past);
      row.add_to(result, gate_of(g_cmp_view, batch, place, head));
    }
    store_branch_lse(branch_lse_view, batch, place, head, MEANS, row.lse());
$end
    row.start();
$if gated
    if (is_given(g_slc_view))
$end
    for (KeyRange run = blocks.next(0, token + 1); run.first < run.end; run = blocks.next(run.end, token + 1))
      add_tokens(row, k, v, batch, kv_head, sequence.first, run);
$if gated
    if (is_given(g_slc_view)) row.add_to(result, gate_of(g_slc_view, batch, place, head));
    store_branch_lse(branch_lse_view, batch, place, head, BLOCKS, row.lse());
    row.start();
    if (is_given(g_swa_view)) {
      add_tokens(row, k, v, batch, kv_head, sequence.first, visible_keys(Visibility{true, window_left, 0}, token, 0, token + 1));
      row.add_to(result, gate_of(g_swa_view, batch, place, head));
    }
    store_branch_lse(branch_lse_view, batch, place, head, WINDOW, row.lse());
$else
    row.add_to(result, 1);
    if (is_given(lse_view))
      static_cast<float*>(lse_view.data)[batch * lse_view.strides[0] + head * lse_view.strides[1] + place * lse_view.strides[2]] = row.lse();
$end
    Element* to = out.row(batch, place, head);
    for (int64_t d = 0; d < row.value_dim; ++d) to[d] = from_float<Element>(result[d]);
  }
}
