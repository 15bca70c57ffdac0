// GPU vocabulary of ragged_page_attention_v3: new keys and values on their way to their slots. Part of a template, which has defined Element and Cached before.
//
// A warp has a token, and asks for its keys and values before it knows where they go.
#pragma once
#include "device/attention/share_places.h"
#include "device/attention/visible_keys.h"
#include "device/number/quantise_pack.h"
#include "ragged_page_attention/ragged_batch.h"

constexpr bool SAME_TYPE = ${E == C};

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

// A lane's packs of a token's rows, one after the other, WARP apart: without a division for each.
struct PackPlace {
  int row, column;  // column: in packs
  int row_packs, row_step, column_step;
  explicit PackPlace(int packs)
      : row(quotient(lane(), packs)), column(lane() - row * packs), row_packs(packs), row_step(quotient(WARP, packs)), column_step(WARP - row_step * packs) {}
  void next() {
    row += row_step, column += column_step;
    if (column >= row_packs) column -= row_packs, ++row;
  }
};

// A token's rows to the slot that `find` tells, which all lanes call; null: to none. PACK elements at a time, which begin where packs may. AS_IT_IS: nothing
// is converted or divided.
template <int PACK, bool AS_IT_IS, class Find> static inline void write_rows(const NewRows& rows, int64_t token, int row_count, int dim, int64_t row_stride, const Find& find) {
  constexpr int AT_ONCE = 8;
  const int row_packs = quotient(dim, PACK), packs = row_count * row_packs;
  Cached* slot = nullptr;
  PackPlace from(row_packs), to = from;
#pragma unroll 1
  for (int first = 0; first < packs; first += AT_ONCE * WARP) {
    Pack<Element, PACK> x[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i, from.next()) x[i] = load_pack<PACK>(rows.row(token, from.row < row_count ? from.row : 0) + from.column * PACK);
    if (first == 0) slot = find();
    if (slot == nullptr) return;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i, to.next()) {
      if (to.row >= row_count) continue;
      Cached* const there = slot + to.row * row_stride + to.column * PACK;
      if constexpr (AS_IT_IS) store_pack(there, x[i]);
      else store_pack(there, cached_pack<Cached>(x[i], rows.scale(to.row)));
    }
  }
}

// Where they go, and how a warp writes a token's.
struct NewTokens {
  NewRows rows;
  Cached* pages;
  int64_t page_stride, slot_stride, row_stride;
  const int32_t* tables;
  int64_t table_row, page_size, features, kv_heads;

  // As RaggedBatch says it, by a warp, which asks for 32 starts at a time.
  static int64_t sequence_of(const RaggedBatch& batch, int64_t token) {
    int64_t low = 0, many = batch.count + 1;  // it is one of these from `low` on
    while (many > 1) {
      const int64_t step = (many + WARP - 1) / WARP, own = lane() * step;
      const int64_t skipped = (sum_in_warp(own < many && batch.starts[low + own] <= token ? 1 : 0) - 1) * step;
      low += skipped, many = many - skipped < step ? many - skipped : step;
    }
    return low;
  }
  void write(const RaggedBatch& batch, int64_t token) const {
    const int dim = static_cast<int>(features), row_count = 2 * static_cast<int>(kv_heads);
    const auto find = [&]() -> Cached* {
      const RaggedSequence sequence = batch[sequence_of(batch, token)];
      const int64_t position = sequence.old_keys() + token - sequence.first;
      if (token < sequence.first || sequence.number == batch.count || position < 0) return nullptr;
      const int64_t page = tables[sequence.number * table_row + position / page_size];
      return pages + page * page_stride + position % page_size * slot_stride;
    };
    constexpr int PACK = 16 / sizeof(Element);
    const int64_t strides = rows.key_token | rows.key_head | rows.value_token | rows.value_head | page_stride | slot_stride | row_stride | features;
    const uint64_t places = reinterpret_cast<uint64_t>(rows.keys) | reinterpret_cast<uint64_t>(rows.values) | reinterpret_cast<uint64_t>(pages);
    const bool is_scaled = rows.k_scale != nullptr || rows.v_scale != nullptr;
    if (strides % PACK != 0 || places % 16 != 0) return write_rows<1, false>(rows, token, row_count, dim, row_stride, find);
    if constexpr (SAME_TYPE) {
      if (!is_scaled) return write_rows<PACK, true>(rows, token, row_count, dim, row_stride, find);
    }
    write_rows<PACK, false>(rows, token, row_count, dim, row_stride, find);
  }
};
