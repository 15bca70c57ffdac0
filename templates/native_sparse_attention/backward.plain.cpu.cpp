// Gradients of native_sparse_attention, or of its branch of blocks alone, plain: by the definition, a query row, or a few keys, at a time.
// Takes every legal call, and gives the same bits each time.
#include "device/cpu.h"
#include "device/attention/attention.h"
#include "device/number/math.h"
#include "native_sparse_attention/named_blocks.h"
#include "native_sparse_attention/select_blocks_cpu.h"

using Element = ${ctype(E)};
constexpr int64_t KEYS = ${keys};  // keys of a work item
#include "native_sparse_attention/gates.h"

template <class A, class B> static float dot(const A* a, const B* b, int64_t count) {
  Floats sums = {};
  int64_t d = 0;
  for (; d + LANES <= count; d += LANES) sums += load_floats(a + d) * load_floats(b + d);
  float sum = 0;
  for (; d < count; ++d) sum += to_float(a[d]) * to_float(b[d]);
  for (int lane = 0; lane < LANES; ++lane) sum += sums[lane];
  return sum;
}

template <class T> static void add(float* sums, float factor, const T* row, int64_t count) {
  if (factor == 0) return;  // what lies behind it may not be finite
  int64_t d = 0;
  for (; d + LANES <= count; d += LANES) store_floats(sums + d, load_floats(sums + d) + load_floats(row + d) * factor);
  for (; d < count; ++d) sums[d] += to_float(row[d]) * factor;
}

static void clear(float* sums, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] = 0;
}

struct Rules {
  int64_t head_dim, value_dim;
  float scale;

  template <class K> float weight(const Element* query, const K* key, float lse) const {
    return exp2_of(splat(dot(query, key, head_dim) * (scale * LOG2_E) - lse * LOG2_E))[0];
  }
};

// `delta` [B, Hq, 3, T]: of each branch dout . o, which is the gradient of its gate.
static inline int64_t delta_place(int64_t batch, int64_t heads, int64_t head, Branch branch, int64_t tokens, int64_t token) {
  return ((batch * heads + head) * 3 + branch) * tokens + token;
}

static inline float lse_of_branch(const View& lse, int64_t batch, int64_t token, int64_t head, Branch branch) {
$if gated
  return static_cast<const float*>(lse.data)[batch * lse.strides[0] + head * lse.strides[1] + branch * lse.strides[2] + token * lse.strides[3]];
$else
  return static_cast<const float*>(lse.data)[batch * lse.strides[0] + head * lse.strides[1] + token * lse.strides[2]];
$end
}

// One query row: keys and values of one branch.
struct QueryRow {
  const Rules& rules;
  const Element *query, *dout;
  float lse;

  template <class K>
  void add_products(float& sum, float& products, const K* keys, int64_t key_stride, const K* values, int64_t value_stride, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      const float weight = rules.weight(query, keys + i * key_stride, lse);
      sum += weight;
      if (weight != 0) products += weight * dot(dout, values + i * value_stride, rules.value_dim);
    }
  }
  template <class K>
  void add_to(float* dq, float gate, float delta, const K* keys, int64_t key_stride, const K* values, int64_t value_stride, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      const float weight = rules.weight(query, keys + i * key_stride, lse);
      if (weight == 0) continue;
      add(dq, gate * weight * (dot(dout, values + i * value_stride, rules.value_dim) - delta), keys + i * key_stride, rules.head_dim);
    }
  }
};

$if gated
#include "native_sparse_attention/find_means_entry.h"
$end

// Item (x, y, z): a token of row z of the batch, and all query heads of kv head y: dq, and the gradients of its gates. `place`: where its row is; `token`:
// which of its sequence it is.
static void differentiate_queries(${parameters('differentiate_queries')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view), dout(dout_view);
  const Heads<Element> dq(dq_view);
  const int64_t place = group.grid_x - 1 - group.x, kv_head = group.y, batch = group.z;
  const SequenceTokens sequence = sequence_of(cum_seqlens, sequences, place, group.grid_x);
  const int64_t token = place - sequence.first, own = token / block_size, end = sequence.length == 0 ? 0 : token + 1;  // of what it sees
  const Rules rules{q_view.shape[3], v_view.shape[3], softmax_scale};
  float* sums = static_cast<float*>(group.shared);
  uint32_t* bits = reinterpret_cast<uint32_t*>(sums + rules.head_dim);
  for (int64_t i = 0; i < block_words; ++i) bits[i] = 0;
  name_blocks(bits, ${gated ? 'selected_view' : 'block_indices_view'}, ${gated ? 'View{nullptr, -1, {}, {}}' : 'block_counts_view'}, batch, place, kv_head,
              end == 0 ? 0 : named_blocks, own);
  const SelectedBlocks blocks{bits, block_size};
  for (int64_t head = kv_head * heads_a_kv_head; head < (kv_head + 1) * heads_a_kv_head; ++head) {
    clear(sums, rules.head_dim);
    const Element *query = q.row(batch, place, head), *cotangent = dout.row(batch, place, head);
    const auto tokens_of = [&](const KeyRange& run, auto use) {
      use(k.row(batch, sequence.first + run.first, kv_head), k.token_stride, v.row(batch, sequence.first + run.first, kv_head), v.token_stride, run.end - run.first);
    };
    // runs(use): use(keys, their stride, values, their stride, how many) for each run of the branch.
    const auto differentiate = [&](Branch branch, float gate, auto runs) {
      const QueryRow row{rules, query, cotangent, lse_of_branch(${gated ? 'branch_lse_view' : 'lse_view'}, batch, place, head, branch)};
      float sum = 0, products = 0;
      runs([&](auto... run) { row.add_products(sum, products, run...); });
      const float of_gate = sum == 0 ? 0 : products / sum;  // not by LSE, whose rounding would stay where gradients cancel
      runs([&](auto... run) { row.add_to(sums, gate, of_gate, run...); });
      delta[delta_place(batch, q.heads, head, branch, q.tokens, place)] = of_gate;
      return of_gate;
    };
    const auto in_blocks = [&](auto use) {
      for (KeyRange run = blocks.next(0, end); run.first < run.end; run = blocks.next(run.end, end)) tokens_of(run, use);
    };
$if gated
    const auto store = [&](const View& to, float x) {
      if (!is_given(to)) return;
      static_cast<Element*>(to.data)[batch * to.strides[0] + place * to.strides[1] + head * to.strides[2]] = from_float<Element>(x);
    };
    if (is_given(g_cmp_view)) {
      const int64_t at = (batch * group.grid_y + kv_head) * means + sequence.first_mean(block_size);
      store(dg_cmp_view, differentiate(MEANS, gate_of(g_cmp_view, batch, place, head), [&](auto use) {
              use(key_means + at * rules.head_dim, rules.head_dim, value_means + at * rules.value_dim, rules.value_dim, end / block_size);
            }));
    }
    if (is_given(g_slc_view)) store(dg_slc_view, differentiate(BLOCKS, gate_of(g_slc_view, batch, place, head), in_blocks));
    if (is_given(g_swa_view))
      store(dg_swa_view, differentiate(WINDOW, gate_of(g_swa_view, batch, place, head), [&](auto use) {
              tokens_of(visible_keys(Visibility{true, window_left, 0}, token, 0, end), use);
            }));
$else
    differentiate(BLOCKS, 1, in_blocks);
$end
    Element* to = dq.row(batch, place, head);
    for (int64_t d = 0; d < rules.head_dim; ++d) to[d] = from_float<Element>(sums[d] * softmax_scale);
  }
}

$if gated
// Item (x, y, z): the mean of whole block x of kv head y of row z of the batch, packed, of all sequences: its gradients, as each token of the block takes them.
static void differentiate_means(${parameters('differentiate_means')}, const Group& group) {
  const Heads<const Element> q(q_view), dout(dout_view);
  const int64_t kv_head = group.y, batch = group.z, at = (group.z * group.grid_y + group.y) * group.grid_x + group.x;
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, group.x, block_size, false, q.tokens);
  if (!block.is_whole(block_size)) return;
  const Rules rules{q_view.shape[3], dout_view.shape[3], softmax_scale};
  const float *key = key_means + at * rules.head_dim, *value = value_means + at * rules.value_dim;
  float *of_key = mean_dk + at * rules.head_dim, *of_value = mean_dv + at * rules.value_dim;
  clear(of_key, rules.head_dim);
  clear(of_value, rules.value_dim);
  for (int64_t token = block.of.first + (block.number + 1) * block_size - 1; token < block.of.first + block.of.length; ++token)
    for (int64_t head = kv_head * heads_a_kv_head; head < (kv_head + 1) * heads_a_kv_head; ++head) {
      const Element *query = q.row(batch, token, head), *cotangent = dout.row(batch, token, head);
      const float weight = gate_of(g_cmp_view, batch, token, head) *
                           rules.weight(query, key, lse_of_branch(branch_lse_view, batch, token, head, MEANS));
      if (weight == 0) continue;
      const float slope = weight * (dot(cotangent, value, rules.value_dim) - delta[delta_place(batch, q.heads, head, MEANS, q.tokens, token)]);
      add(of_key, slope, query, rules.head_dim);
      add(of_value, weight, cotangent, rules.value_dim);
    }
  const float share = 1 / static_cast<float>(block_size);
  for (int64_t d = 0; d < rules.head_dim; ++d) of_key[d] *= share;
  for (int64_t d = 0; d < rules.value_dim; ++d) of_value[d] *= share;
}
$end

// Item (x, y, z): KEYS keys of kv head y of row z of the batch: dk and dv.
static void differentiate_keys(${parameters('differentiate_keys')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view), dout(dout_view);
  const Heads<Element> dk(dk_view), dv(dv_view);
  const int64_t kv_head = group.y, batch = group.z, first = group.x * KEYS, end = first + KEYS < k.tokens ? first + KEYS : k.tokens;
  const Rules rules{q_view.shape[3], v_view.shape[3], softmax_scale};
  float *of_keys = static_cast<float*>(group.shared), *of_values = of_keys + KEYS * rules.head_dim;
  clear(of_keys, KEYS * (rules.head_dim + rules.value_dim));
  const View none{nullptr, -1, {}, {}};
  const NamedBlocks named{${gated ? 'selected_view' : 'block_indices_view'}, ${gated ? 'none' : 'block_counts_view'}};
  const bool blocked = ${gated ? 'is_given(g_slc_view)' : 'true'}, windowed = ${gated ? 'is_given(g_swa_view)' : 'false'};
  SequenceTokens of[KEYS];  // a key's sequence
  for (int64_t key = first; key < end; ++key) of[key - first] = sequence_of(cum_seqlens, sequences, key, k.tokens);
  const int64_t last = first < end ? of[end - 1 - first].first + of[end - 1 - first].length : 0;
  for (int64_t token = first; token < last; ++token) {
    bool in_block[KEYS], in_window[KEYS], some = false;
    for (int64_t key = first; key < end; ++key) {
      const int64_t i = key - first;
      const int64_t from_first = key - of[i].first;
      const bool same = i > 0 && from_first % block_size != 0;  // as the key before
      const bool later = key <= token && token < of[i].first + of[i].length;
      in_block[i] = blocked && later && (same ? in_block[i - 1] : named.has(batch, token, kv_head, from_first / block_size));
      in_window[i] = windowed && later && ${gated ? '(window_left < 0 || key >= token - window_left)' : 'true'};
      some = some || in_block[i] || in_window[i];
    }
    if (!some) continue;
    for (int64_t head = kv_head * heads_a_kv_head; head < (kv_head + 1) * heads_a_kv_head; ++head) {
      const Element *query = q.row(batch, token, head), *cotangent = dout.row(batch, token, head);
      const auto use = [&](Branch branch, const bool (&seen)[KEYS], float gate) {
        const float lse = lse_of_branch(${gated ? 'branch_lse_view' : 'lse_view'}, batch, token, head, branch);
        const float of_gate = delta[delta_place(batch, q.heads, head, branch, q.tokens, token)];
        for (int64_t key = first; key < end; ++key) {
          if (!seen[key - first]) continue;
          const float weight = gate * rules.weight(query, k.row(batch, key, kv_head), lse);
          if (weight == 0) continue;
          add(of_keys + (key - first) * rules.head_dim, weight * (dot(cotangent, v.row(batch, key, kv_head), rules.value_dim) - of_gate), query,
              rules.head_dim);
          add(of_values + (key - first) * rules.value_dim, weight, cotangent, rules.value_dim);
        }
      };
$if gated
      if (blocked) use(BLOCKS, in_block, gate_of(g_slc_view, batch, token, head));
      if (windowed) use(WINDOW, in_window, gate_of(g_swa_view, batch, token, head));
$else
      use(BLOCKS, in_block, 1);
$end
    }
  }
  for (int64_t key = first; key < end; ++key) {
    float *of_key = of_keys + (key - first) * rules.head_dim, *of_value = of_values + (key - first) * rules.value_dim;
$if gated
    const SequenceTokens& sequence = of[key - first];
    const int64_t block = (key - sequence.first) / block_size;
    if (is_given(g_cmp_view) && (block + 1) * block_size <= sequence.length) {
      const int64_t at = (batch * group.grid_y + kv_head) * means + sequence.first_mean(block_size) + block;
      add(of_key, 1, mean_dk + at * rules.head_dim, rules.head_dim);
      add(of_value, 1, mean_dv + at * rules.value_dim, rules.value_dim);
    }
$end
    Element *to_key = dk.row(batch, key, kv_head), *to_value = dv.row(batch, key, kv_head);
    for (int64_t d = 0; d < rules.head_dim; ++d) to_key[d] = from_float<Element>(of_key[d] * softmax_scale);
    for (int64_t d = 0; d < rules.value_dim; ++d) to_value[d] = from_float<Element>(of_value[d]);
  }
}
