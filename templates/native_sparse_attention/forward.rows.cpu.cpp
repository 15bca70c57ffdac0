// native_sparse_attention, or its branch of blocks alone, forward, rows: the query heads of a token and kv head are the rows of products with the
// keys and values of its branches, which other launches have laid out before.
#include "device/cpu.h"

using Element = ${ctype(E)};
constexpr int64_t D = ${D}, DV = ${Dv};  // features of a key; of a value, and of a row of out
$require D % 8 == 0 and Dv % 8 == 0
$if amx
#include "native_sparse_attention/amx_head_products.h"
$else
#include "native_sparse_attention/head_products.h"
$end
#include "native_sparse_attention/gates.h"
#include "native_sparse_attention/head_softmax.h"
#include "native_sparse_attention/empty_token_cpu.h"

// Item (x, y, z): a group of keys of kv head y of row z of the batch, and their values.
static void pack(${parameters('pack')}, const Group& group) {
  const Heads<const Element> k(k_view), v(v_view);
  const int64_t first = group.x * GROUP, left = k.tokens - first, count = left < GROUP ? left : GROUP;
  const int64_t at = (group.z * group.grid_y + group.y) * group.grid_x + group.x;
  pack_group(k.row(group.z, first, group.y), k.token_stride, v.row(group.z, first, group.y), v.token_stride, count, key_groups + at * KEY_GROUP,
             ${packs_values ? 'value_groups + at * VALUE_GROUP' : 'nullptr'});
}

$if gated
// Item (x, y, z): the mean of whole block x of kv head y of row z of the batch, packed, of all sequences; where there is none, up to a whole group of
// means, zeros.
static void find_means(${parameters('find_means')}, const Group& group) {
  const Heads<const Element> k(k_view), v(v_view);
  const int64_t kv_head = group.z * group.grid_y + group.y, groups = group.grid_x / GROUP;
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, group.x, block_size, false, k.tokens);
  const int64_t first = block.of.first + block.number * block_size;
  float key[D] = {}, value[DV] = {};
  const bool valued = is_given(g_cmp_view), there = group.x < means && block.is_whole(block_size);
  if (there) mean_of_rows(k.row(group.z, first, group.y), k.token_stride, block_size, D, key);
  if (there && valued) mean_of_rows(v.row(group.z, first, group.y), v.token_stride, block_size, DV, value);
  store_mean(key, valued ? value : nullptr, group.x, mean_groups + kv_head * groups * MEAN_GROUP, mean_values + kv_head * groups * VALUE_GROUP);
}
$end

// Asks for the rows of a token's heads, which are read or written once.
template <int WRITE, class T>
static inline void ask_rows(const Heads<T>& x, int64_t batch, int64_t token, int64_t head, int64_t heads, int64_t features) {
  for (int64_t i = 0; i < heads; ++i) {
    const T* row = x.row(batch, token, head + i);
    for (int64_t d = 0; d < features; d += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(row + d, WRITE, 2);
  }
}

// Item (x, y, z): a token of row z of the batch, the last first, and all query heads of kv head y. `place`: where its row is; `token`: which of its
// sequence it is.
static void attend(${parameters('attend')}, const Group& group) {
  const Heads<const Element> q(q_view), v(v_view);
  const Heads<Element> out(out_view);
  const int64_t place = group.grid_x - 1 - group.x, kv_head = group.y, batch = group.z;
  const SequenceTokens sequence = sequence_of(cum_seqlens, sequences, place, group.grid_x);
  if (sequence.length == 0) return clear_token(out_view, ${gated ? 'branch_lse_view, selected_view' : 'lse_view'}, place, kv_head, heads_a_kv_head);
  const int64_t token = place - sequence.first, own = token / block_size, start = sequence.first;
  const int64_t first_head = kv_head * heads_a_kv_head, at = batch * group.grid_y + kv_head, groups = (group.grid_x + GROUP - 1) / GROUP;
  HeadSoftmax heads{{}, nullptr, nullptr, nullptr, heads_a_kv_head, (heads_a_kv_head + ROWS - 1) / ROWS, softmax_scale * LOG2_E};
  const int64_t rows = heads.passes * ROWS;
  float* results = static_cast<float*>(group.shared);
  heads.products.outputs = results + rows * WIDTH;
  heads.products.scores = heads.products.outputs + rows * WIDTH;
  heads.sums = heads.products.scores + rows * BLOCK;
  heads.products.lay_out(heads.sums + rows * LANES, rows);
  heads.maxima = heads.sums + rows * (LANES + HeadProducts::ROW_SCRATCH) + HeadProducts::SCRATCH;
  heads.totals = heads.maxima + (rows + 31) / 16 * 16;
  uint32_t* bits = reinterpret_cast<uint32_t*>(heads.totals + (rows + 31) / 16 * 16);
  for (int64_t i = 0; i < block_words; ++i) bits[i] = 0;
  __builtin_memset(results, 0, rows * WIDTH * sizeof(float));
  const SelectedBlocks blocks{bits, block_size}, all{nullptr, 1};
  ask_rows<1>(out, batch, place, first_head, heads_a_kv_head, DV);
  if (place > 0) ask_rows<0>(q, batch, place - 1, first_head, heads_a_kv_head, D);  // most likely the next item here
  heads.products.start();
  heads.products.load_queries(q.row(batch, place, first_head), q.head_stride, heads_a_kv_head, heads.passes);
$if packs_values
  const Keys keys{key_groups + at * groups * KEY_GROUP, value_groups + at * groups * VALUE_GROUP, WIDTH};
$else
  const Keys keys{key_groups + at * groups * KEY_GROUP, v.row(batch, 0, kv_head), v.token_stride};
$end
$if gated
  float* importance = reinterpret_cast<float*>(bits + (block_words + 15) / 16 * 16);
  const int64_t past = (token + 1) / block_size, before = sequence.first_mean(block_size);
  const bool chooses = is_given(g_slc_view) && !is_given(block_indices_view) && room_beside(named_blocks, own) < own - 1;
  const auto finish = [&](Branch branch, const View& gate) {
    for (int64_t i = 0; i < heads_a_kv_head; ++i) {
      if (is_given(gate)) heads.add_to(results + i * WIDTH, i, gate_of(gate, batch, place, first_head + i));
      if (!is_given(branch_lse_view)) continue;
      store_branch_lse(branch_lse_view, batch, place, first_head + i, branch, is_given(gate) ? heads.lse(i) : -INFINITE);
    }
  };
  const int64_t means_at = at * ((means + GROUP - 1) / GROUP);
  const MeanKeys mean_keys{mean_groups + means_at * MEAN_GROUP, mean_values + means_at * VALUE_GROUP, WIDTH};
  if (is_given(g_cmp_view) || chooses) heads.start();
  if (is_given(g_cmp_view))
    heads.attend<true>(mean_keys, Runs(all, 0, past, before));
  else if (chooses)
    heads.attend<false>(mean_keys, Runs(all, 0, past, before));
  finish(MEANS, g_cmp_view);
  if (chooses) heads.find_importance(mean_keys, past, before, importance);
  if (is_given(block_indices_view))
    name_blocks(bits, block_indices_view, block_counts_view, batch, place, kv_head, named_blocks, own);
  else if (is_given(g_slc_view))
    choose_blocks(bits, importance + before, own, named_blocks);
  store_selected(selected_view, blocks, batch, place, kv_head, own);
  if (is_given(g_slc_view)) {
    heads.start();
    heads.attend<true>(keys, Runs(blocks, 0, token + 1, start));
  }
  finish(BLOCKS, g_slc_view);
  if (is_given(g_swa_view)) {
    const KeyRange seen = visible_keys(Visibility{true, window_left, 0}, token, 0, token + 1);
    heads.start();
    heads.attend<true>(keys, Runs(all, seen.first, seen.end, start));
  }
  finish(WINDOW, g_swa_view);
$else
  name_blocks(bits, block_indices_view, block_counts_view, batch, place, kv_head, named_blocks, own);
  heads.start();
  heads.attend<true>(keys, Runs(blocks, 0, token + 1, start));
  for (int64_t i = 0; i < heads_a_kv_head; ++i) {
    heads.add_to(results + i * WIDTH, i, 1);
    if (is_given(lse_view))
      static_cast<float*>(lse_view.data)[batch * lse_view.strides[0] + (first_head + i) * lse_view.strides[1] + place * lse_view.strides[2]] =
          heads.lse(i);
  }
$end
  heads.products.end();
  for (int64_t i = 0; i < heads_a_kv_head; ++i) store_result(results + i * WIDTH, out.row(batch, place, first_head + i));
}
