// ragged_page_attention on matrix instructions of a wave (MFMA, WMMA). A block takes 16 query rows of a kv head through a part of their keys, 16 keys a wave and step; a
// row is one new token of one of the query heads that share the kv head: row = token * heads + head. How many parts there are does not
// depend on lengths; a second launch puts them together. Products are transposed, as in device/attention/decode_wave.h: scores are [key][row], outputs [feature][row].
#include "device/gpu.h"
#include "device/number/quantise.h"
#include "device/attention/row_end.h"
#include "device/attention/visible_keys.h"
#include "device/matrix/wave_rows.h"
#include "ragged_page_attention/ragged_batch.h"

$require D % 8 == 0
using Element = ${ctype(E)};
using Cached = ${ctype(C)};
constexpr int D = ${D}, D16 = ${align(D, 16)};
constexpr bool CAPPED = ${capped};
constexpr int SHIFT = ${E == 'f16' ? 15 : 0};  // the largest weight is 2^SHIFT: gfx90a reads halves below 2^-14 as 0
constexpr int WAVES = ${waves}, THREADS = WAVES * WAVE, STEP = 16 * WAVES;  // STEP: keys of a step
constexpr int VALUES = D16 * TRANSPOSED_PITCH<16>;                          // bytes of a wave's values, [feature][key]
constexpr int ROW = D16 + 4;                                                // floats of a row of outputs in shared memory
constexpr int FINISH_THREADS = 128;

// Keys or values of one sequence and kv head. Strides in elements.
struct Pages {
  const Cached* data;
  int64_t page_stride, slot_stride;
  const int32_t* table;
  int page_size;
  const Cached* row(int key) const { return data + table[key / page_size] * page_stride + key % page_size * slot_stride; }
};

#include "device/attention/wave_keys.h"
#include "ragged_page_attention/wave_row.h"
$if v3
#include "ragged_page_attention/write_launch.gpu.h"
$end

// Block (x, y): part x % parts of the keys of 16 rows, number x / parts, of kv head y.
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  const int part_count = static_cast<int>(parts), number = block_x() % part_count, kv_head = block_y();
  const int heads_here = static_cast<int>(heads_a_kv_head);
  const RaggedBatch batch{query_start_loc, context_lens, ${v3 ? 'distribution[2]' : 'num_seqs[0]'}, tokens};
  RaggedSequence sequence{};
  int first_row = 0;
  if (!find_rows(batch, block_x() / part_count, heads_here, sequence, first_row)) return;
  const int rows_left = static_cast<int>(sequence.queries) * heads_here - first_row, count = rows_left < 16 ? rows_left : 16;
  const Visibility visibility{!is_given(tree_mask_view), window_left, -1};
  const auto sight = [&](int row) { return visible_keys(visibility, row / heads_here, sequence.old_keys(), sequence.keys); };
  const int own = first_row + (matrix_column() < count ? matrix_column() : count - 1);
  const int own_token = own / heads_here, own_head = kv_head * heads_here + own % heads_here;
  const KeyRange own_keys = sight(own);
  const VisibleKeys<STEP> keys{static_cast<int>(sight(first_row).first), static_cast<int>(sight(first_row + count - 1).end)};
  const VisibleKeys<STEP> every{static_cast<int>(sight(first_row + count - 1).first),
                                static_cast<int>(is_given(tree_mask_view) ? (sequence.old_keys() < 0 ? 0 : sequence.old_keys()) : sight(first_row).end)};
  const RowSight sees{static_cast<int>(own_keys.first), static_cast<int>(own_keys.end), TreeRow(tree_mask_view, sequence, own_token)};
  const int32_t* const table = block_tables + sequence.number * table_stride;
  const Pages k{kv_pages + 2 * kv_head * head_stride, page_stride, slot_stride, table, static_cast<int>(page_size)};
  const Pages v{kv_pages + (2 * kv_head + 1) * head_stride, page_stride, slot_stride, table, static_cast<int>(page_size)};
  float scale = softmax_scale * Factors{k_scale, k_scale_stride}[kv_head];
  const Element* const query = queries + (sequence.first + own_token) * query_token + own_head * query_head;
$if v3
  Queries row(query, q_scale ? q_scale + kv_head * q_scale_stride : nullptr);
  if (q_scale) scale *= q_scale[kv_head * q_scale_stride];
$else
  const Queries row(query);
$end

  char* const memory = dynamic_shared();
  const SharedPointer values = shared_pointer(memory) + wave() * VALUES;
  __shared__ float weights[WAVES][16][17];
  Sums o[D16 / 16] = {};
  Softmax softmax{LOWEST, 0};
  const int tiles = keys.tiles(), begin = static_cast<int>(int64_t{tiles} * number / part_count);
  const int end = static_cast<int>(int64_t{tiles} * (number + 1) / part_count);
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    const int first = (keys.first_tile() + tile) * STEP + wave() * 16, mine = first + matrix_column();
    const int there = mine < keys.first ? keys.first : mine < keys.end ? mine : keys.end - 1;  // for a hidden key, one that is seen
    sync_wave();  // the values before have been read
    copy_values(values, v, keys, first);
    sync_wave();
    Sums s = multiply_keys(k.row(there), row);
    const bool whole = first >= every.first && first + 16 <= every.end;
    weigh(s, softmax, o, sees, whole, first, scale, logits_soft_cap);
    if (whole || are_finite(values)) add_products<Element, 16>(o, values, s);
    else add_guarded(o, weights[wave()], values, s);
  }
  softmax.sum = sum_of_column(softmax.sum);

  // What the waves have becomes one.
  float* const outputs = reinterpret_cast<float*>(memory);
  __shared__ Softmax softmaxes[WAVES][16];
  sync_block();
#pragma unroll
  for (int f = 0; f < D16 / 16; ++f)
#pragma unroll
    for (int i = 0; i < SUMS; ++i) outputs[(wave() * 16 + matrix_column()) * ROW + 16 * f + matrix_row(i)] = o[f].at[i];
  if (wave_lane() < 16) softmaxes[wave()][wave_lane()] = softmax;
  sync_block();
  const bool exists = sequence.number < batch.count;
  const RowEnd row_end{softmax_aux_view, exists ? sinks_type : -1, static_cast<int>(heads), {out, out_token, out_head}, {${v3 ? 'nullptr, 0, 0' : 'lse, lse_token, lse_head'}}};
#pragma unroll 1
  for (int i = thread_x(); i < count * D; i += THREADS) {
    const int local = i / D, feature = i % D;
    Softmax all{LOWEST, 0};
    float output[1] = {0};
#pragma unroll
    for (int w = 0; w < WAVES; ++w) all.reference = larger_of(all.reference, softmaxes[w][local].reference);
#pragma unroll
    for (int w = 0; w < WAVES; ++w) {
      const float factor = factor_of(softmaxes[w][local], all.reference);
      all.sum += softmaxes[w][local].sum * factor;
      output[0] += outputs[(w * 16 + local) * ROW + feature] * factor;
    }
    const int token = static_cast<int>(sequence.first) + (first_row + local) / heads_here, head = kv_head * heads_here + (first_row + local) % heads_here;
    if (part_count > 1) {
      const int64_t at = (token * heads + head) * parts + number;
      partial[at * D + feature] = output[0];
      if (feature == 0) reinterpret_cast<Softmax*>(partial_softmax)[at] = all;
      continue;
    }
    const Softmax ended = row_end.with_sinks(all, head);
    row_end.store<Element>(token, head, feature, output, scale_of(all, ended) * Factors{v_scale, v_scale_stride}[kv_head]);
    if (feature == 0) row_end.store_lse(token, head, ended);
  }
}

// Block x: query head x % heads of token x / heads.
KERNEL(FINISH_THREADS, 1) finish(${parameters('finish')}) {
  const int query_heads = static_cast<int>(heads), token = block_x() / query_heads, head = block_x() % query_heads;
  const bool exists = token < query_start_loc[${v3 ? 'distribution[2]' : 'num_seqs[0]'}];
  const RowEnd row_end{softmax_aux_view, exists ? sinks_type : -1, query_heads, {out, out_token, out_head}, {${v3 ? 'nullptr, 0, 0' : 'lse, lse_token, lse_head'}}};
  const Softmax* const softmaxes = reinterpret_cast<const Softmax*>(partial_softmax) + block_x() * parts;
  const float* const outputs = partial + block_x() * parts * D;
  Softmax all{LOWEST, 0};
#pragma unroll 1
  for (int64_t i = 0; i < parts; ++i) all.reference = larger_of(all.reference, softmaxes[i].reference);
#pragma unroll 1
  for (int64_t i = 0; i < parts; ++i) all.sum += softmaxes[i].sum * factor_of(softmaxes[i], all.reference);
  const Softmax end = row_end.with_sinks(all, head);
  const float factor = scale_of(all, end) * Factors{v_scale, v_scale_stride}[head / static_cast<int>(heads_a_kv_head)];
#pragma unroll 1
  for (int feature = thread_x(); feature < D; feature += FINISH_THREADS) {
    float sum[1] = {0};
#pragma unroll 1
    for (int64_t i = 0; i < parts; ++i) sum[0] += outputs[i * D + feature] * factor_of(softmaxes[i], all.reference);
    row_end.store<Element>(token, head, feature, sum, factor);
  }
  if (thread_x() == 0) row_end.store_lse(token, head, end);
}
