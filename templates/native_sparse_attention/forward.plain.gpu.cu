// native_sparse_attention, or its branch of blocks alone, forward, plain: rows by the definition, ROWS query heads a warp. Takes every type, stride and option.
#include "device/gpu.h"
#include "device/attention/attention_plain.h"
#include "native_sparse_attention/select_blocks_gpu.h"

using Element = ${ctype(E)};
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int ROWS = 4, FEATURES = 16;  // query heads a warp, features of each a lane
#include "native_sparse_attention/gates.h"

// ROWS query heads of a token.
struct HeadRows {
  const float* queries;  // [ROWS][head_dim], in shared memory
  int64_t head_dim, value_dim;
  int batch, token, kv_head;
  float scale;
};

static inline View no_view() { return {nullptr, -1, {}, {}}; }

// One branch: of the keys [seen.first, seen.end) those that blocks leave (all, where blocks.bits is null). Values join `result`, times the gates. The
// logarithms of the sums are to the base 2.
template <bool VALUES, class T>
static inline void attend_branch(const HeadRows& rows, const View& k_view, const View& v_view, const KeyRange& seen, const SelectedBlocks& blocks,
                                 const float (&gate)[ROWS], float (&result)[ROWS][FEATURES], float (&lse)[ROWS]) {
  const Heads<const T> k(k_view), v(v_view);
  const Heads<T> nowhere(v_view);
  const View none = no_view();
  const ScoreRules rules{none, none, none, none, TYPE_F32, rows.scale, 0, 0, 0, 1};
  const Sequence sequence{rows.batch, rows.batch, 0, 0, 1, seen.end, 0, false, 0};
  PlainRows<T, false, false, false, ROWS, FEATURES> p{
      k, v, nowhere, rules, sequence, none, rows.queries, rows.head_dim, rows.value_dim, rows.kv_head, {}, {}, {}, {}, {}};
#pragma unroll
  for (int r = 0; r < ROWS; ++r) p.reference[r] = LOWEST, p.denominator[r] = 0;
#pragma unroll 1
  for (KeyRange run = blocks.bits ? blocks.next(seen.first, seen.end) : seen; run.first < run.end;
       run = blocks.bits ? blocks.next(run.end, seen.end) : KeyRange{0, 0}) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) p.row[r] = {{static_cast<int>(run.first), static_cast<int>(run.end)}, 0, nullptr, nullptr, 0};
#pragma unroll 1
    for (int key = static_cast<int>(run.first); key < run.end; key += WARP) {
      float weight[ROWS];
      p.weigh(key + lane(), weight);
      if (VALUES) p.add_values(key, weight);
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    float sum = p.denominator[r];
    for (int mask = WARP / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    const float factor = sum == 0 ? 0 : gate[r] / sum;
#pragma unroll
    for (int i = 0; VALUES && i < FEATURES; ++i) result[r][i] += p.output[r][i] * factor;
    lse[r] = sum == 0 ? -INFINITE : p.reference[r] + log_of(sum) * LOG2_E;
  }
}

static inline void load_queries(float* to, const View& q_view, int64_t batch, int64_t token, int64_t first_head, int heads) {
  const Heads<const Element> q(q_view);
  const int64_t head_dim = q_view.shape[3];
  const int padded = (heads + ROWS - 1) / ROWS * ROWS;
#pragma unroll 1
  for (int head = warp(); head < padded; head += WARPS)
#pragma unroll 1
    for (int64_t d = lane(); d < head_dim; d += WARP)
      to[head * head_dim + d] = head < heads ? to_float(q.row(batch, token, first_head + head)[d]) : 0;
}

$if gated
// Block (x, y, z): the means of block x of kv head y of row z of the batch.
KERNEL(THREADS, 1) find_means(${parameters('find_means')}) {
  const Heads<const Element> k(k_view), v(v_view);
  const int64_t at = (static_cast<int64_t>(block_z()) * grid_x() + block_x()) * k.heads + block_y(), first = block_x() * block_size;
  const int64_t head_dim = k_view.shape[3], value_dim = v_view.shape[3];
  mean_of_rows<THREADS>(k.row(block_z(), first, block_y()), k.token_stride, block_size, head_dim, key_means + at * head_dim);
  if (is_given(g_cmp_view))
    mean_of_rows<THREADS>(v.row(block_z(), first, block_y()), v.token_stride, block_size, value_dim, value_means + at * value_dim);
}

// [B, means, Hkv, features]
static inline View view_of_means(const float* means, int64_t count, int64_t heads, int64_t features) {
  return {const_cast<float*>(means), 4, {1, count, heads, features, 0, 0, 0, 0}, {count * heads * features, heads * features, features, 1, 0, 0, 0, 0}};
}

// Of means [0, past) the sums over the heads of their softmax weights; lse: of each head, to the base 2.
static inline void find_importance(float* importance, const HeadRows& rows, const float* lse, int heads, const View& key_means, int past) {
#pragma unroll 1
  for (int c = thread_x(); c < past; c += THREADS) {
    const float* mean = Heads<const float>(key_means).row(rows.batch, c, rows.kv_head);
    float sum = 0;
#pragma unroll 1
    for (int head = 0; head < heads; ++head) {
      float dot = 0;
#pragma unroll 1
      for (int64_t d = 0; d < rows.head_dim; ++d) dot += rows.queries[head * rows.head_dim + d] * mean[d];
      sum += exp2_of(dot * (rows.scale * LOG2_E) - lse[head]);
    }
    importance[c] = sum;
  }
}
$end

// Block (x, y, z): a token of row z of the batch, the last first, and all query heads of kv head y.
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  const int heads = static_cast<int>(heads_a_kv_head), kv_head = block_y(), batch = block_z(), first_head = kv_head * heads;
  const int token = grid_x() - 1 - block_x(), own = token / static_cast<int>(block_size);
  HeadRows rows{reinterpret_cast<float*>(dynamic_shared()), q_view.shape[3], v_view.shape[3], batch, token, kv_head, softmax_scale};
  float *queries = reinterpret_cast<float*>(dynamic_shared()), *lse_of_means = queries + (heads + ROWS - 1) / ROWS * ROWS * rows.head_dim;
$if gated
  float* importance = lse_of_means + (heads + ROWS - 1) / ROWS * ROWS;
  uint32_t* bits = reinterpret_cast<uint32_t*>(importance + means);
  const View mean_keys = view_of_means(key_means, means, k_view.shape[2], rows.head_dim);
  const View mean_values = view_of_means(is_given(g_cmp_view) ? value_means : key_means, means, k_view.shape[2], rows.value_dim);
  const int past = (token + 1) / static_cast<int>(block_size);
  const bool blocked = is_given(g_slc_view), named = is_given(block_indices_view);
$else
  uint32_t* bits = reinterpret_cast<uint32_t*>(lse_of_means);
$end
  const SelectedBlocks blocks{bits, block_size}, all{nullptr, 1};
  load_queries(queries, q_view, batch, token, first_head, heads);
  sync_block();
  float gate[ROWS], result[ROWS][FEATURES], lse[ROWS];
$if gated
  if (blocked && !named && room_beside(named_blocks, own) < own - 1) {
#pragma unroll 1
    for (int first = warp() * ROWS; first < heads; first += WARPS * ROWS) {
      rows.queries = queries + first * rows.head_dim;
      attend_branch<false, float>(rows, mean_keys, mean_values, {0, past}, all, gate, result, lse);
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        if (lane() == 0) lse_of_means[first + r] = lse[r];
    }
    sync_block();
    rows.queries = queries;
    find_importance(importance, rows, lse_of_means, heads, mean_keys, past);
    sync_block();
  }
  if (warp() == 0) {
    if (named)
      name_blocks(bits, block_indices_view, block_counts_view, batch, token, kv_head, named_blocks, own);
    else if (blocked)
      choose_blocks(bits, importance, own, named_blocks);
    store_selected(selected_view, blocked ? bits : nullptr, batch, token, kv_head, own);
  }
$else
  if (warp() == 0) name_blocks(bits, block_indices_view, block_counts_view, batch, token, kv_head, named_blocks, own);
$end
  sync_block();
#pragma unroll 1
  for (int first = warp() * ROWS; first < heads; first += WARPS * ROWS) {
    rows.queries = queries + first * rows.head_dim;
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int i = 0; i < FEATURES; ++i) result[r][i] = 0;
$if gated
#pragma unroll 1
    for (int branch = MEANS; branch <= WINDOW; ++branch) {
      const View& gates = branch == MEANS ? g_cmp_view : branch == BLOCKS ? g_slc_view : g_swa_view;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        gate[r] = is_given(gates) && first + r < heads ? gate_of(gates, batch, token, first_head + first + r) : 0;
        lse[r] = -INFINITE;
      }
      if (is_given(gates) && branch == MEANS)
        attend_branch<true, float>(rows, mean_keys, mean_values, {0, past}, all, gate, result, lse);
      else if (is_given(gates))
        attend_branch<true, Element>(rows, k_view, v_view,
                                     branch == BLOCKS ? KeyRange{0, token + 1} : visible_keys(Visibility{true, window_left, 0}, token, 0, token + 1),
                                     branch == BLOCKS ? blocks : all, gate, result, lse);
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        if (lane() == 0 && first + r < heads)
          store_branch_lse(branch_lse_view, batch, token, first_head + first + r, static_cast<Branch>(branch), lse[r] * LN_2);
    }
$else
#pragma unroll
    for (int r = 0; r < ROWS; ++r) gate[r] = 1;
    attend_branch<true, Element>(rows, k_view, v_view, {0, token + 1}, blocks, gate, result, lse);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (is_given(lse_view) && lane() == 0 && first + r < heads)
        static_cast<float*>(lse_view.data)[batch * lse_view.strides[0] + (first_head + first + r) * lse_view.strides[1] + token * lse_view.strides[2]] =
            lse[r] * LN_2;
$end
    const Heads<Element> out(out_view);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (first + r >= heads) continue;
      Element* to = out.row(batch, token, first_head + first + r);
#pragma unroll
      for (int i = 0; i < FEATURES; ++i)
        if (lane() + WARP * i < rows.value_dim) to[lane() + WARP * i] = from_float<Element>(result[r][i]);
    }
  }
}
