// Gradients of native_sparse_attention, or of its branch of blocks alone, rows: the query heads of a token and kv head are the rows of products
// with the keys and values of its branches, which other launches have laid out before. Weights and gradients of scores of a branch stay in
// scratch until all three sums are made of them. Some tokens pass a range of keys together, and then the next, so that the range and its sums stay
// in cache. A piece of the tokens of a kv head has sums of its own for keys and values, which the last launches add in order: the same bits each
// time.
#include "device/cpu.h"

using Element = ${ctype(E)};
constexpr int64_t D = ${D}, DV = ${Dv};  // features of a key; of a value, and of a row of dout
constexpr int64_t TOKENS = ${most_together};           // tokens that pass keys together, at most
$require D % 8 == 0 and Dv % 8 == 0
$if amx
#include "native_sparse_attention/amx_head_gradients.h"
$else
#include "native_sparse_attention/head_gradients.h"
$end
#include "native_sparse_attention/gates.h"
#include "native_sparse_attention/head_slopes.h"

// Item (x, y, z): a group of keys of kv head y of row z of the batch, and their values.
static void pack(${parameters('pack')}, const Group& group) {
  const Heads<const Element> k(k_view), v(v_view);
  const int64_t first = group.x * GROUP, left = k.tokens - first, count = left < GROUP ? left : GROUP;
  const int64_t at = (group.z * group.grid_y + group.y) * group.grid_x + group.x;
  pack_group(k.row(group.z, first, group.y), k.token_stride, v.row(group.z, first, group.y), v.token_stride, count, key_groups + at * KEY_GROUP,
             value_groups + at * VALUE_GROUP, ${packs_rows ? 'key_rows + at * ROW_GROUP' : 'nullptr'});
}

$if gated
// Item (x, y, z): the mean of block x of kv head y of row z of the batch; past the last, up to a whole group of means, zeros.
static void find_means(${parameters('find_means')}, const Group& group) {
  const Heads<const Element> k(k_view), v(v_view);
  const int64_t at = (group.z * group.grid_y + group.y) * (group.grid_x / GROUP), first = group.x * block_size;
  float key[D] = {}, value[DV] = {};
  if (group.x < means) {
    mean_of_rows(k.row(group.z, first, group.y), k.token_stride, block_size, D, key);
    mean_of_rows(v.row(group.z, first, group.y), v.token_stride, block_size, DV, value);
  }
  store_mean(key, value, group.x, mean_keys + at * KEY_GROUP, mean_values + at * VALUE_GROUP, mean_rows + at * ROW_GROUP);
}
$end

static inline float lse_of_branch(const View& lse, int64_t batch, int64_t token, int64_t head, Branch branch) {
$if gated
  return static_cast<const float*>(lse.data)[batch * lse.strides[0] + head * lse.strides[1] + branch * lse.strides[2] + token * lse.strides[3]];
$else
  return static_cast<const float*>(lse.data)[batch * lse.strides[0] + head * lse.strides[1] + token * lse.strides[2]];
$end
}

// Scratch of an item: of `tokens` tokens that pass keys together.
static HeadSlopes lay_out(float* memory, int64_t tokens, int64_t heads, int64_t kept_groups, int64_t block_words) {
  HeadSlopes s{};
  const int64_t rows = (heads + ROWS - 1) / ROWS * ROWS;
  s.products.heads = heads, s.products.rows = rows, s.kept = kept_groups * GROUP * rows, s.block_words = block_words;
  const auto take = [&](int64_t count) { return memory += count, memory - count; };
  s.weights = take(tokens * s.kept), s.slopes = take(tokens * s.kept);
  s.sums = take(tokens * rows * LANES), s.dots = take(tokens * rows * LANES);
  s.products.lay_out(take(HeadGradients::scratch(rows, tokens)), tokens);
  s.base = take(tokens * rows), s.gates = take(tokens * rows), s.deltas = take(tokens * rows);
  s.bits = reinterpret_cast<uint32_t*>(memory);
  return s;
}

// Item (x, y, z): piece x of the tokens of row z of the batch, and all query heads of kv head y.
static void differentiate(${parameters('differentiate')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view), dout(dout_view);
  const Heads<Element> dq(dq_view);
  const int64_t kv_head = group.y, batch = group.z, first_head = kv_head * heads_a_kv_head, at = batch * group.grid_y + kv_head;
  const int64_t sums_at = (group.x * group.grid_z + batch) * group.grid_y + kv_head, sum_groups = token_groups + mean_groups;
  float *key_sums = key_parts + sums_at * sum_groups * KEY_SUMS, *value_sums = value_parts + sums_at * sum_groups * VALUE_SUMS;
  __builtin_memset(key_sums, 0, sum_groups * KEY_SUMS * sizeof(float));
  __builtin_memset(value_sums, 0, sum_groups * VALUE_SUMS * sizeof(float));
  HeadSlopes heads = lay_out(static_cast<float*>(group.shared), tokens_together, heads_a_kv_head, kept_groups, block_words);
  heads.unit = softmax_scale * LOG2_E, heads.block_size = block_size;
$if packs_rows
  const float* rows = key_rows + at * token_groups * ROW_GROUP;
  const int64_t row_stride = ROW_STRIDE;
$else
  const float* rows = k.row(batch, 0, kv_head);
  const int64_t row_stride = k.token_stride;
$end
  const Keys keys{key_groups + at * token_groups * KEY_GROUP, value_groups + at * token_groups * VALUE_GROUP, rows, row_stride, key_sums, value_sums};
$if gated
  const int64_t means_at = at * mean_groups;
  const Keys of_means{mean_keys + means_at * KEY_GROUP, mean_values + means_at * VALUE_GROUP, mean_rows + means_at * ROW_GROUP, ROW_STRIDE,
                      key_sums + token_groups * KEY_SUMS, value_sums + token_groups * VALUE_SUMS};
$end
  heads.products.start();
  for (int64_t first = group.x * tokens_together; first < q.tokens; first += group.grid_x * tokens_together) {
    heads.tokens = q.tokens - first < tokens_together ? q.tokens - first : tokens_together;
    const auto each_row = [&](auto use) {  // use(token, query head, place of the row)
      for (int64_t i = 0; i < heads.tokens; ++i)
        for (int64_t head = 0; head < heads_a_kv_head; ++head) use(first + i, first_head + head, i * heads.products.rows + head);
    };
    for (int64_t i = 0; i < heads.tokens; ++i)
      heads.products.load(i, q.row(batch, first + i, first_head), q.head_stride, dout.row(batch, first + i, first_head), dout.head_stride);
$if amx
    heads.products.turn(heads.tokens);
$end
    // sees(token): the keys among which it sees those of its blocks, or all.
    const auto differentiate_branch = [&](Branch branch, const Keys& from, bool by_blocks, auto gate, auto sees) {
      heads.by_blocks = by_blocks;
      for (int64_t i = 0; i < heads.tokens; ++i) heads.seen[i] = sees(first + i);
      each_row([&](int64_t token, int64_t head, int64_t row) {
        const float lse = lse_of_branch(${gated ? 'branch_lse_view' : 'lse_view'}, batch, token, head, branch);
        heads.base[row] = lse == -INFINITE ? INFINITE : lse * LOG2_E;
        heads.gates[row] = gate(token, head);
      });
      heads.differentiate(from);
    };
    const auto name_all = [&] {
      uint32_t* any = heads.bits + heads.tokens * block_words;
      __builtin_memset(heads.bits, 0, (heads.tokens + 1) * block_words * sizeof(uint32_t));
      for (int64_t i = 0; i < heads.tokens; ++i) {
        name_blocks(heads.bits + i * block_words, ${gated ? 'selected_view' : 'block_indices_view'},
                    ${gated ? 'View{nullptr, -1, {}, {}}' : 'block_counts_view'}, batch, first + i, kv_head, named_blocks, (first + i) / block_size);
        for (int64_t word = 0; word < block_words; ++word) any[word] |= heads.bits[i * block_words + word];
      }
    };
    const auto past = [](int64_t token) { return KeyRange{0, token + 1}; };
$if gated
    const auto differentiate_gated = [&](Branch branch, const Keys& from, const View& gate, const View& dgate, auto sees) {
      if (!is_given(gate)) return;
      differentiate_branch(branch, from, branch == BLOCKS, [&](int64_t token, int64_t head) { return gate_of(gate, batch, token, head); }, sees);
      if (!is_given(dgate)) return;
      each_row([&](int64_t token, int64_t head, int64_t row) {
        static_cast<Element*>(dgate.data)[batch * dgate.strides[0] + token * dgate.strides[1] + head * dgate.strides[2]] =
            from_float<Element>(heads.deltas[row]);
      });
    };
    differentiate_gated(MEANS, of_means, g_cmp_view, dg_cmp_view, [&](int64_t token) { return KeyRange{0, (token + 1) / block_size}; });
    if (is_given(g_slc_view)) name_all();
    differentiate_gated(BLOCKS, keys, g_slc_view, dg_slc_view, past);
    differentiate_gated(WINDOW, keys, g_swa_view, dg_swa_view,
                        [&](int64_t token) { return visible_keys(Visibility{true, window_left, 0}, token, 0, token + 1); });
$else
    name_all();
    differentiate_branch(BLOCKS, keys, true, [](int64_t, int64_t) { return 1.0f; }, past);
$end
    each_row([&](int64_t token, int64_t head, int64_t row) {
      store_row<D>(heads.products.row_of_dq(row / heads.products.rows, row % heads.products.rows), softmax_scale, dq.row(batch, token, head));
    });
  }
  heads.products.end();
}

$if gated
// Item (x, y, z): a group of means of kv head y of row z of the batch: their gradients, as each token of a block takes them.
static void add_means(${parameters('add_means')}, const Group& group) {
  const int64_t at = group.z * group.grid_y + group.y, sums_at = at * (token_groups + mean_groups) + token_groups + group.x;
  const int64_t apart = group.grid_z * group.grid_y * (token_groups + mean_groups), to = at * mean_groups + group.x;
  float *of_keys = mean_dk + to * GROUP * KEY_WIDTH, *of_values = mean_dv + to * GROUP * VALUE_WIDTH;
  add_parts<KEY_WIDTH>(key_parts + sums_at * KEY_SUMS, pieces, apart * KEY_SUMS, of_keys);
  add_parts<VALUE_WIDTH>(value_parts + sums_at * VALUE_SUMS, pieces, apart * VALUE_SUMS, of_values);
  const float share = 1 / static_cast<float>(block_size);
  for (int64_t i = 0; i < GROUP * KEY_WIDTH; ++i) of_keys[i] *= share;
  for (int64_t i = 0; i < GROUP * VALUE_WIDTH; ++i) of_values[i] *= share;
}
$end

// Item (x, y, z): a group of keys of kv head y of row z of the batch: dk and dv.
static void finish(${parameters('finish')}, const Group& group) {
  const Heads<Element> dk(dk_view), dv(dv_view);
  const int64_t at = group.z * group.grid_y + group.y, sums_at = at * (token_groups + mean_groups) + group.x;
  const int64_t apart = group.grid_z * group.grid_y * (token_groups + mean_groups), first = group.x * GROUP;
  float *of_keys = static_cast<float*>(group.shared), *of_values = of_keys + GROUP * KEY_WIDTH;
  add_parts<KEY_WIDTH>(key_parts + sums_at * KEY_SUMS, pieces, apart * KEY_SUMS, of_keys);
  add_parts<VALUE_WIDTH>(value_parts + sums_at * VALUE_SUMS, pieces, apart * VALUE_SUMS, of_values);
  for (int64_t i = 0; i < GROUP && first + i < dk.tokens; ++i) {
    float *key = of_keys + i * KEY_WIDTH, *value = of_values + i * VALUE_WIDTH;
$if gated
    const int64_t block = (first + i) / block_size;
    if (block < means) {
      const float* of_key = mean_dk + (at * mean_groups * GROUP + block) * KEY_WIDTH;
      const float* of_value = mean_dv + (at * mean_groups * GROUP + block) * VALUE_WIDTH;
      for (int64_t d = 0; d < KEY_WIDTH; ++d) key[d] += of_key[d];
      for (int64_t d = 0; d < VALUE_WIDTH; ++d) value[d] += of_value[d];
    }
$end
    store_row<D>(key, softmax_scale, dk.row(group.z, first + i, group.y));
    store_row<DV>(value, 1, dv.row(group.z, first + i, group.y));
  }
}
