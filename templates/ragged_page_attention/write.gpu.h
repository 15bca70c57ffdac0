// ragged_page_attention_v3 on GPUs: an entry that writes the new keys and values to their slots. A launch of its own: a block that attends would else have to wait
// for those that write what it reads, which may run after it. Part of a template, which has defined Element and Cached before, and WRITES_BESIDE.
//
// A warp has a token, and asks for its keys and values before it knows where they go.
#pragma once
#include "device/attention/visible_keys.h"
#include "device/number/quantise.h"
#include "device/tile/launch_order.h"
#include "ragged_page_attention/ragged_batch.h"

constexpr int WRITE_THREADS = 128, WRITE_TOKENS = WRITE_THREADS / WARP;

// Rows of kv_pages: a key and a value of each kv head.
struct NewRows {
  const Element *keys, *values;
  int64_t key_token, key_head, value_token, value_head;
  const float *k_scale, *v_scale;
  int64_t k_scale_stride, v_scale_stride;

  const Element* row(int64_t token, int row) const {
    return row % 2 == 0 ? keys + token * key_token + row / 2 * key_head : values + token * value_token + row / 2 * value_head;
  }
  // What its elements are divided by.
  float scale(int row) const {
    const float* const scales = row % 2 == 0 ? k_scale : v_scale;
    return scales ? scales[row / 2 * (row % 2 == 0 ? k_scale_stride : v_scale_stride)] : 1;
  }
};

// A token's rows to the slot that `find` tells, null: to none. PACK elements at a time, which begin where packs may.
template <int PACK, class Find> static inline void write_rows(const NewRows& rows, int64_t token, int row_count, int dim, int64_t row_stride, const Find& find) {
  constexpr int AT_ONCE = 8;
  const int row_packs = dim / PACK, packs = row_count * row_packs;
  Cached* slot = nullptr;
#pragma unroll 1
  for (int base = lane(); base < packs; base += AT_ONCE * WARP) {
    Pack<Element, PACK> x[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int at = base + i * WARP < packs ? base + i * WARP : base, row = quotient(at, row_packs);
      x[i] = load_pack<PACK>(rows.row(token, row) + (at - row * row_packs) * PACK);
    }
    if (base < WARP) slot = find();
    if (slot == nullptr) return;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int at = base + i * WARP, row = quotient(at, row_packs);
      if (at >= packs) continue;
      const float scale = rows.scale(row);
      Pack<Cached, PACK> y;
#pragma unroll
      for (int k = 0; k < PACK; ++k) y.at[k] = cached<Cached>(scale == 1 ? to_float(x[i].at[k]) : to_float(x[i].at[k]) / scale);
      store_pack(slot + row * row_stride + (at - row * row_packs) * PACK, y);
    }
  }
}

KERNEL(WRITE_THREADS, 1) write(${parameters('write')}) {
  if (!WRITES_BESIDE) wait_for_previous_launch();
  let_next_launch_go();
  const RaggedBatch batch{query_start_loc, context_lens, distribution[2], tokens};
  const int64_t token = int64_t{block_x()} * WRITE_TOKENS + warp();
  const int dim = static_cast<int>(features), row_count = 2 * static_cast<int>(kv_heads);
  if (token < tokens) {
    const NewRows rows{keys, values, key_token, key_head, value_token, value_head, k_scale, v_scale, k_scale_stride, v_scale_stride};
    const auto find = [&]() -> Cached* {
      const RaggedSequence sequence = batch[batch.sequence_of(token)];
      const int64_t position = sequence.old_keys() + token - sequence.first;
      if (token < sequence.first || sequence.number == batch.count || position < 0) return nullptr;
      const int64_t page = block_tables[sequence.number * table_row + position / page_size];
      return kv_pages + page * page_stride + position % page_size * slot_stride;
    };
    constexpr int PACK = 16 / sizeof(Element);
    const int64_t strides = key_token | key_head | value_token | value_head | page_stride | slot_stride | head_stride | features;
    const uint64_t places = reinterpret_cast<uint64_t>(keys) | reinterpret_cast<uint64_t>(values) | reinterpret_cast<uint64_t>(kv_pages);
    if (strides % PACK == 0 && places % 16 == 0) write_rows<PACK>(rows, token, row_count, dim, head_stride, find);
    else write_rows<1>(rows, token, row_count, dim, head_stride, find);
  }
  if (WRITES_BESIDE && block_x() == 0) wait_for_previous_launch();
}
