// Decoding on matrix instructions of a wave (MFMA, WMMA): the products, the softmax and the entries of page_attention and of kernels like it.
// Part of a template, which has defined before: Element, Cached, D, D16, CAPPED, SHIFT, WAVES, THREADS, STEP, VALUES, ROW, FINISH_THREADS; and Pages,
// which says where the keys or values of one sequence and kv head lie. The value `paged` says whose launch arguments there are: page_attention's,
// or ragged_decode_attention's.
//
// A block takes 16 query heads of a kv head through a part of a sequence's keys, 16 keys a wave and step; a second launch puts the parts
// together. How many parts there are does not depend on lengths. Products are transposed, as in flash_attention/forward.wave.gpu.cu: scores are
// [key][head], outputs [feature][head]. Keys are operands straight from memory; values are turned in shared memory, a wave its own. 8-bit
// numbers become Elements on the way, exactly.
#pragma once

#include "device/attention/wave_keys.h"

// Scores of this lane's head become weights relative to its reference, which follows the largest; the sum and outputs follow it.
static inline void weigh(Sums& s, Softmax& softmax, Sums (&o)[D16 / 16], const VisibleKeys<STEP>& keys, int first, float scale, float cap) {
  float largest = -INFINITE;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    float score = s.at[i] * scale;
    if (CAPPED) score = cap * tanh_of(score / cap);
    s.at[i] = keys.has(first + matrix_row(i)) ? score * LOG2_E : -INFINITE;
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

// Block (x, y): part x % parts of sequence x / parts; 16 heads y % groups of kv head y / groups.
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  const int part_count = static_cast<int>(parts), sequence = block_x() / part_count, number = block_x() % part_count;
  const int group_count = static_cast<int>(groups), kv_head = block_y() / group_count, first_head = block_y() % group_count * 16;
  const int heads_here = static_cast<int>(rows_a_kv_head) - first_head < 16 ? static_cast<int>(rows_a_kv_head) - first_head : 16;
  const int head = kv_head * static_cast<int>(rows_a_kv_head) + first_head;  // the first of all query heads
$if paged
  const VisibleKeys<STEP> keys = Lengths<STEP>{context_lens, static_cast<int>(sequences), window_left}[sequence];
  const int32_t* const table = block_tables + sequence * table_stride;
  const Pages k{key_cache + kv_head * key_head, key_page, key_slot, table, static_cast<int>(page_size)};
  const Pages v{value_cache + kv_head * value_head, value_page, value_slot, table, static_cast<int>(page_size)};
$else
  const VisibleKeys<STEP> keys = Lengths<STEP>{sequence_start, sequence_end, static_cast<int>(sequences), window_left}[sequence];
  const Pages k{key + sequence * key_sequence + kv_head * key_head, key_token};
  const Pages v{value + sequence * value_sequence + kv_head * value_head, value_token};
$end
  const float scale = softmax_scale * ${paged ? 'Factors{k_scale, k_scale_stride}[kv_head]' : '1'};
  const int own = matrix_column() < heads_here ? matrix_column() : heads_here - 1;
  const OwnRow<Element, D, ${keep == 1}> queries(query + sequence * query_sequence + (head + own) * query_head);

  char* const memory = dynamic_shared();
  const SharedPointer values = shared_pointer(memory) + wave() * VALUES;
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
    Sums s = multiply_keys(k.row(there), queries);
    weigh(s, softmax, o, keys, first, scale, logits_soft_cap);
    add_products<Element, 16>(o, values, s);
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
#pragma unroll 1
  for (int i = thread_x(); i < heads_here * D; i += THREADS) {
    const int row = i / D, feature = i % D;
    Softmax all{LOWEST, 0};
    float output = 0;
#pragma unroll
    for (int w = 0; w < WAVES; ++w) all.reference = larger_of(all.reference, softmaxes[w][row].reference);
#pragma unroll
    for (int w = 0; w < WAVES; ++w) {
      const float factor = factor_of(softmaxes[w][row], all.reference);
      all.sum += softmaxes[w][row].sum * factor;
      output += outputs[(w * 16 + row) * ROW + feature] * factor;
    }
    const int64_t at = (sequence * heads + head + row) * parts + number;
    partial[at * D + feature] = output;
    if (feature == 0) reinterpret_cast<Softmax*>(partial_softmax)[at] = all;
  }
}

// Block x: query head x % heads of sequence x / heads.
KERNEL(FINISH_THREADS, 1) finish(${parameters('finish')}) {
  const int query_heads = static_cast<int>(heads), sequence = block_x() / query_heads, head = block_x() % query_heads;
  const RowEnd row_end{softmax_aux_view, sinks_type, query_heads, {out, out_sequence, out_head}, {lse, lse_sequence, lse_head}};
  const Softmax* const softmaxes = reinterpret_cast<const Softmax*>(partial_softmax) + block_x() * parts;
  const float* const outputs = partial + block_x() * parts * D;
  Softmax all{LOWEST, 0};
#pragma unroll 1
  for (int64_t i = 0; i < parts; ++i) all.reference = larger_of(all.reference, softmaxes[i].reference);
#pragma unroll 1
  for (int64_t i = 0; i < parts; ++i) all.sum += softmaxes[i].sum * factor_of(softmaxes[i], all.reference);
  const Softmax end = row_end.with_sinks(all, head);
  const float factor = scale_of(all, end) * ${paged ? 'Factors{v_scale, v_scale_stride}[head / static_cast<int>(rows_a_kv_head)]' : '1'};
#pragma unroll 1
  for (int feature = thread_x(); feature < D; feature += FINISH_THREADS) {
    float sum[1] = {0};
#pragma unroll 1
    for (int64_t i = 0; i < parts; ++i) sum[0] += outputs[i * D + feature] * factor_of(softmaxes[i], all.reference);
    row_end.store<Element>(sequence, head, feature, sum, factor);
  }
  if (thread_x() == 0) row_end.store_lse(sequence, head, end);
}
