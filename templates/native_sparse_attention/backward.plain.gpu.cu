// Gradients of native_sparse_attention, or of its branch of blocks alone, plain: by the definition, a warp a query row, a mean or a key.
// Takes every type, stride and option, and gives the same bits each time.
#include "device/gpu.h"
#include "device/attention/attention.h"
#include "native_sparse_attention/named_blocks.h"
#include "native_sparse_attention/select_blocks_gpu.h"
$if packed
#include "native_sparse_attention/packed_tokens.h"
$end

using Element = ${ctype(E)};
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
#include "native_sparse_attention/gates.h"

static inline float sum_of_lanes(float x) {
  for (int mask = WARP / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

// What a warp compares others with, and its sums: two rows of features each in shared memory. Each lane has every WARP-th element of the
// sums.
struct Pair {
  float* memory;  // 2 (head_dim + value_dim)
  int64_t head_dim, value_dim;
  float scale;

  float* sums() const { return memory + head_dim + value_dim; }
  template <class A, class B> void start(const A* with_heads, const B* with_values) const {
    sync_warp();
#pragma unroll 1
    for (int64_t d = lane(); d < head_dim; d += WARP) memory[d] = to_float(with_heads[d]), sums()[d] = 0;
#pragma unroll 1
    for (int64_t d = lane(); d < value_dim; d += WARP) memory[head_dim + d] = to_float(with_values[d]), sums()[head_dim + d] = 0;
    sync_warp();
  }
  template <class T> static float dot(const float* own, const T* other, int64_t dim) {
    float sum = 0;
#pragma unroll 1
    for (int64_t d = 0; d < dim; ++d) sum += own[d] * to_float(other[d]);
    return sum;
  }
  template <class T> static void add(float* sums, float factor, const T* row, int64_t dim) {
    if (factor == 0) return;  // what lies behind it may not be finite
#pragma unroll 1
    for (int64_t d = lane(); d < dim; d += WARP) sums[d] += factor * to_float(row[d]);
  }
  // The softmax weight of the own query and another's key, or the other way round.
  template <class T> float weight(const T* other, float lse) const {
    return exp2_of(dot(memory, other, head_dim) * (scale * LOG2_E) - lse * LOG2_E);
  }
  template <class T> float product(const T* other) const { return dot(memory + head_dim, other, value_dim); }
};

// `delta` [B, Hq, 3, T]: of each branch dout . o, which is the gradient of its gate.
static inline int64_t delta_place(int64_t batch, int64_t heads, int64_t head, int branch, int64_t tokens, int64_t token) {
  return ((batch * heads + head) * 3 + branch) * tokens + token;
}

static inline float lse_of_branch(const View& lse, int64_t batch, int64_t token, int64_t head, int branch) {
$if gated
  return static_cast<const float*>(lse.data)[batch * lse.strides[0] + head * lse.strides[1] + branch * lse.strides[2] + token * lse.strides[3]];
$else
  return static_cast<const float*>(lse.data)[batch * lse.strides[0] + head * lse.strides[1] + token * lse.strides[2]];
$end
}

// Keys and values of one kv head.
template <class T> struct Keys {
  const T *keys, *values;
  int64_t key_stride, value_stride;
};

// One branch of the own query: of the keys [seen.first, seen.end) those that blocks leave (all, where blocks.bits is null). Adds to the
// sums; returns the gradient of the gate.
template <class T>
static inline float differentiate_branch(const Pair& own, const Keys<T>& from, const KeyRange& seen, const SelectedBlocks& blocks, float lse, float gate) {
  float of_gate = 0, sum = 0;
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {  // first the gate's gradient, of which the keys' take a part
#pragma unroll 1
    for (KeyRange run = blocks.bits ? blocks.next(seen.first, seen.end) : seen; run.first < run.end;
         run = blocks.bits ? blocks.next(run.end, seen.end) : KeyRange{0, 0})
#pragma unroll 1
      for (int64_t first = run.first; first < run.end; first += WARP) {
        const int64_t key = first + lane();
        float weight = 0, product = 0;
        if (key < run.end) weight = own.weight(from.keys + key * from.key_stride, lse);
        if (weight != 0) product = own.product(from.values + key * from.value_stride);
        if (turn == 0) {
          of_gate += weight == 0 ? 0 : weight * product;
          sum += weight;
          continue;
        }
        const float slope = weight == 0 ? 0 : gate * weight * (product - of_gate);
#pragma unroll 1
        for (int j = 0; j < WARP && first + j < run.end; ++j)
          own.add(own.sums(), shuffle(slope, j), from.keys + (first + j) * from.key_stride, own.head_dim);
      }
    if (turn > 0) continue;
    of_gate = sum_of_lanes(of_gate), sum = sum_of_lanes(sum);
    of_gate = sum == 0 ? 0 : of_gate / sum;  // not by LSE, whose rounding would stay where gradients cancel
  }
  return of_gate;
}

// One branch of the own key: the queries of a head at tokens from `first` on, of which this lane has one (`seen`: that sees the key).
struct KeySums {
  Pair own;
  const Heads<const Element>&q, &dout;
  const View& lse;
  const float* delta;
  int64_t batch, tokens;

  void add_queries(int64_t first, bool seen, int64_t head, int branch, float gate) const {
    const int64_t token = first + lane();
    float weight = 0, slope = 0;
    if (seen) weight = gate * own.weight(q.row(batch, token, head), lse_of_branch(lse, batch, token, head, branch));
    if (weight != 0) slope = weight * (own.product(dout.row(batch, token, head)) - delta[delta_place(batch, q.heads, head, branch, tokens, token)]);
#pragma unroll 1
    for (int i = 0; i < WARP && first + i < tokens; ++i) {
      own.add(own.sums(), shuffle(slope, i), q.row(batch, first + i, head), own.head_dim);
      own.add(own.sums() + own.head_dim, shuffle(weight, i), dout.row(batch, first + i, head), own.value_dim);
    }
  }
};

$if gated
// Block (x, y, z): the means of block x of kv head y of row z of the batch.
KERNEL(THREADS, 1) find_means(${parameters('find_means')}) {
  const Heads<const Element> k(k_view), v(v_view);
$if packed
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, block_x(), block_size, false, k.tokens);
  if (!block.is_whole(block_size)) return;
$end
  const int64_t at = (static_cast<int64_t>(block_z()) * k.heads + block_y()) * grid_x() + block_x(), first = ${packed ? 'block.of.first + block.number * block_size' : 'block_x() * block_size'};
  const int64_t head_dim = k_view.shape[3], value_dim = v_view.shape[3];
  mean_of_rows<THREADS>(k.row(block_z(), first, block_y()), k.token_stride, block_size, head_dim, key_means + at * head_dim);
  if (is_given(g_cmp_view))
    mean_of_rows<THREADS>(v.row(block_z(), first, block_y()), v.token_stride, block_size, value_dim, value_means + at * value_dim);
}
$end

// Block (x, y, z): a token of row z of the batch, the last first, and all query heads of kv head y, a warp each: dq, and the gradients of
// its gates.
KERNEL(THREADS, 1) differentiate_queries(${parameters('differentiate_queries')}) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view), dout(dout_view);
  const Heads<Element> dq(dq_view);
  const int heads = static_cast<int>(heads_a_kv_head), kv_head = block_y(), batch = block_z();
$if packed
  const int place = grid_x() - 1 - block_x();
  const SequenceTokens sequence = sequence_of(cum_seqlens, sequences, place, grid_x());
  const int token = place - static_cast<int>(sequence.first), own_block = token / static_cast<int>(block_size);
  const int end = sequence.length == 0 ? 0 : token + 1;  // of what it sees
$else
  const int token = grid_x() - 1 - block_x(), own_block = token / static_cast<int>(block_size);
$end
  const int64_t head_dim = q_view.shape[3], value_dim = v_view.shape[3];
  float* memory = reinterpret_cast<float*>(dynamic_shared());
  uint32_t* bits = reinterpret_cast<uint32_t*>(memory + WARPS * 2 * (head_dim + value_dim));
  const View none{nullptr, -1, {}, {}};
  if (warp() == 0)
    name_blocks(bits, ${gated ? 'selected_view' : 'block_indices_view'}, ${gated ? 'none' : 'block_counts_view'}, batch, ${packed ? 'place' : 'token'}, kv_head, ${packed ? 'end == 0 ? 0 : ' : ''}named_blocks, own_block);
  sync_block();
  const SelectedBlocks blocks{bits, block_size}, all{nullptr, 1};
  const Pair own{memory + warp() * 2 * (head_dim + value_dim), head_dim, value_dim, softmax_scale};
  const Keys<Element> keys{k.row(batch, ${packed ? 'sequence.first' : '0'}, kv_head), v.row(batch, ${packed ? 'sequence.first' : '0'}, kv_head), k.token_stride, v.token_stride};
$if gated
  const int64_t mean_row = (batch * k.heads + kv_head) * means${packed ? ' + sequence.first_mean(block_size)' : ''};
  const Keys<float> mean_keys{key_means + mean_row * head_dim, value_means + mean_row * value_dim, head_dim, value_dim};
$end
#pragma unroll 1
  for (int head = kv_head * heads + warp(); head < (kv_head + 1) * heads; head += WARPS) {
    own.start(q.row(batch, ${packed ? 'place' : 'token'}, head), dout.row(batch, ${packed ? 'place' : 'token'}, head));
#pragma unroll 1
    for (int branch = MEANS; branch <= WINDOW; ++branch) {
$if gated
      const View& gates = branch == MEANS ? g_cmp_view : branch == BLOCKS ? g_slc_view : g_swa_view;
      const View& gradients = branch == MEANS ? dg_cmp_view : branch == BLOCKS ? dg_slc_view : dg_swa_view;
      if (!is_given(gates)) continue;
      const float gate = gate_of(gates, batch, ${packed ? 'place' : 'token'}, head), lse = lse_of_branch(branch_lse_view, batch, ${packed ? 'place' : 'token'}, head, branch);
      float of_gate;
      if (branch == MEANS)
        of_gate = differentiate_branch(own, mean_keys, {0, ${packed ? 'end' : '(token + 1)'} / block_size}, all, lse, gate);
      else
        of_gate = differentiate_branch(own, keys,
                                       branch == BLOCKS ? KeyRange{0, ${packed ? 'end' : 'token + 1'}} : visible_keys(Visibility{true, window_left, 0}, token, 0, ${packed ? 'end' : 'token + 1'}),
                                       branch == BLOCKS ? blocks : all, lse, gate);
      if (is_given(gradients) && lane() == 0)
        static_cast<Element*>(gradients.data)[batch * gradients.strides[0] + ${packed ? 'place' : 'token'} * gradients.strides[1] + head * gradients.strides[2]] =
            from_float<Element>(of_gate);
$else
      if (branch != BLOCKS) continue;
      const float of_gate = differentiate_branch(own, keys, {0, ${packed ? 'end' : 'token + 1'}}, blocks, lse_of_branch(lse_view, batch, ${packed ? 'place' : 'token'}, head, branch), 1);
$end
      if (lane() == 0) delta[delta_place(batch, q.heads, head, branch, q.tokens, ${packed ? 'place' : 'token'})] = of_gate;
    }
    Element* to = dq.row(batch, ${packed ? 'place' : 'token'}, head);
#pragma unroll 1
    for (int64_t d = lane(); d < head_dim; d += WARP) to[d] = from_float<Element>(own.sums()[d] * softmax_scale);
  }
}

$if gated
// Block (x, y, z): means of blocks of kv head y of row z of the batch, a warp each: their gradients, as each token of the block takes them.
KERNEL(THREADS, 1) differentiate_means(${parameters('differentiate_means')}) {
  const Heads<const Element> q(q_view), dout(dout_view);
  const int heads = static_cast<int>(heads_a_kv_head), kv_head = block_y(), batch = block_z();
  const int64_t block = static_cast<int64_t>(block_x()) * WARPS + warp(), head_dim = q_view.shape[3], value_dim = dout_view.shape[3];
  if (block >= means) return;
$if packed
  const SequencePart own_block = part_of_sequence(cum_seqlens, sequences, block, block_size, false, q.tokens);
  if (!own_block.is_whole(block_size)) return;
  const int64_t end = own_block.of.first + own_block.of.length;
$end
  const int64_t at = (batch * (q.heads / heads) + kv_head) * means + block;
  const KeySums sums{{reinterpret_cast<float*>(dynamic_shared()) + warp() * 2 * (head_dim + value_dim), head_dim, value_dim, softmax_scale},
                     q, dout, branch_lse_view, delta, batch, q.tokens};
  sums.own.start(key_means + at * head_dim, value_means + at * value_dim);
#pragma unroll 1
  for (int64_t first = ${packed ? 'own_block.of.first + (own_block.number + 1)' : '(block + 1)'} * block_size - 1; first < ${packed ? 'end' : 'q.tokens'}; first += WARP)
#pragma unroll 1
    for (int head = kv_head * heads; head < (kv_head + 1) * heads; ++head) {
      const bool seen = first + lane() < ${packed ? 'end' : 'q.tokens'};
      sums.add_queries(first, seen, head, MEANS, seen ? gate_of(g_cmp_view, batch, first + lane(), head) : 0);
    }
  const float share = 1 / static_cast<float>(block_size);
#pragma unroll 1
  for (int64_t d = lane(); d < head_dim; d += WARP) mean_dk[at * head_dim + d] = sums.own.sums()[d] * share;
#pragma unroll 1
  for (int64_t d = lane(); d < value_dim; d += WARP) mean_dv[at * value_dim + d] = sums.own.sums()[head_dim + d] * share;
}
$end

// Block (x, y, z): keys of kv head y of row z of the batch, a warp each: dk and dv.
KERNEL(THREADS, 1) differentiate_keys(${parameters('differentiate_keys')}) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view), dout(dout_view);
  const Heads<Element> dk(dk_view), dv(dv_view);
  const int heads = static_cast<int>(heads_a_kv_head), kv_head = block_y(), batch = block_z();
  const int64_t key = static_cast<int64_t>(block_x()) * WARPS + warp(), head_dim = q_view.shape[3], value_dim = v_view.shape[3];
  if (key >= k.tokens) return;
$if packed
  const SequenceTokens sequence = sequence_of(cum_seqlens, sequences, key, k.tokens);
  const int64_t end = sequence.first + sequence.length, block = (key - sequence.first) / block_size;
$end
  const KeySums sums{{reinterpret_cast<float*>(dynamic_shared()) + warp() * 2 * (head_dim + value_dim), head_dim, value_dim, softmax_scale},
                     q, dout, ${gated ? 'branch_lse_view' : 'lse_view'}, delta, batch, q.tokens};
  sums.own.start(k.row(batch, key, kv_head), v.row(batch, key, kv_head));
  const View none{nullptr, -1, {}, {}};
  const NamedBlocks named{${gated ? 'selected_view' : 'block_indices_view'}, ${gated ? 'none' : 'block_counts_view'}};
#pragma unroll 1
  for (int64_t first = key; first < ${packed ? 'end' : 'k.tokens'}; first += WARP) {
    const int64_t token = first + lane();
    const bool there = token < ${packed ? 'end' : 'k.tokens'};
$if gated
    const bool in_block = there && is_given(g_slc_view) && named.has(batch, token, kv_head, ${packed ? 'block' : 'key / block_size'});
    const bool in_window = there && is_given(g_swa_view) && (window_left < 0 || token - key <= window_left);
    const bool some_block = any_in_warp(in_block), some_window = any_in_warp(in_window);
#pragma unroll 1
    for (int head = kv_head * heads; head < (kv_head + 1) * heads; ++head) {
      if (some_block) sums.add_queries(first, in_block, head, BLOCKS, in_block ? gate_of(g_slc_view, batch, token, head) : 0);
      if (some_window) sums.add_queries(first, in_window, head, WINDOW, in_window ? gate_of(g_swa_view, batch, token, head) : 0);
    }
$else
    const bool in_block = there && named.has(batch, token, kv_head, ${packed ? 'block' : 'key / block_size'});
    if (!any_in_warp(in_block)) continue;
#pragma unroll 1
    for (int head = kv_head * heads; head < (kv_head + 1) * heads; ++head) sums.add_queries(first, in_block, head, BLOCKS, 1);
$end
  }
$if gated
  if (is_given(g_cmp_view) && ${packed ? '(block + 1) * block_size <= sequence.length' : 'key / block_size < means'}) {
    const int64_t at = (batch * k.heads + kv_head) * means + ${packed ? 'sequence.first_mean(block_size) + block' : 'key / block_size'};
    sums.own.add(sums.own.sums(), 1, mean_dk + at * head_dim, head_dim);
    sums.own.add(sums.own.sums() + head_dim, 1, mean_dv + at * value_dim, value_dim);
  }
$end
  Element *to_key = dk.row(batch, key, kv_head), *to_value = dv.row(batch, key, kv_head);
#pragma unroll 1
  for (int64_t d = lane(); d < head_dim; d += WARP) to_key[d] = from_float<Element>(sums.own.sums()[d] * softmax_scale);
#pragma unroll 1
  for (int64_t d = lane(); d < value_dim; d += WARP) to_value[d] = from_float<Element>(sums.own.sums()[head_dim + d]);
}
