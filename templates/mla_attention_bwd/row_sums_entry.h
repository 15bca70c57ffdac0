// The launch of mla_attention_bwd before flash_attention_bwd's: each row's log-sum-exp and delta, the sum of its weights times dout . v, from the made keys and values.
// An end of flash_attention_bwd's backward.mma.gpu.cu, whose constants it uses.
#pragma once
#include "device/matrix/fragment.h"

using Cached = Element;
#include "mla_attention/latent_call.h"

constexpr int SUM_WARPS = 4, SUM_ROWS = 16 * SUM_WARPS, SUM_THREADS = SUM_WARPS * WARP, SUM_KEYS = 32;
using SumQueries = Tile<Element, SUM_ROWS, D16>;
using SumDouts = Tile<Element, SUM_ROWS, DV16>;
using SumKeys = Tile<Element, SUM_KEYS, D16>;
using SumValues = Tile<Element, SUM_KEYS, DV16>;
static_assert(SumQueries::BYTES + SumDouts::BYTES + SumKeys::BYTES + SumValues::BYTES == ${sums_shared}, "the spec has another size");

// Products of the warp's 16 rows and SUM_KEYS keys.
template <int FEATURES, class Left, class Right> static inline void multiply_rows(float (&s)[SUM_KEYS / 8][4], const Left& left, const Right& right, int row) {
#pragma unroll
  for (int n = 0; n < SUM_KEYS / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = 0;
#pragma unroll 2
  for (int d = 0; d < FEATURES; d += 16) {
    uint32_t a[4], b[4];
    left.load_a(a, row, d);
#pragma unroll
    for (int n = 0; n < SUM_KEYS / 8; n += 2) {
      right.load_b(b, 8 * n, d);
      mma_16x8x16<Element>(s[n], a, b[0], b[1]);
      mma_16x8x16<Element>(s[n + 1], a, b[2], b[3]);
    }
  }
}

// Block (x, y, z): SUM_ROWS query rows x of the turn's head y of row z of the batch. Clears the sums of dq, too.
KERNEL(SUM_THREADS, 1) sum_rows(${parameters('sum_rows')}) {
  const TurnHeads turn(step, head_slots, all_heads);
  const int slot = block_y(), batch = block_z(), first_row = block_x() * SUM_ROWS, queries = static_cast<int>(query_tokens), keys = static_cast<int>(key_tokens);
  if (slot >= turn.count) return;
  const int64_t at = (batch * turn.count + slot) * space_rows + first_row;
  const int space = space_rows - first_row < SUM_ROWS ? static_cast<int>(space_rows) - first_row : SUM_ROWS;
#pragma unroll 1
  for (int64_t copy = 0; copy < copies; ++copy)
#pragma unroll 1
    for (int i = thread_x() * 4; i < space * D16; i += SUM_THREADS * 4) store_pack(dq_sums + (copy * total_rows + at) * D16 + i, Pack<float, 4>{});

  const SharedPointer memory = shared_pointer(dynamic_shared());
  const SumQueries query_tile{memory};
  const SumDouts dout_tile{memory + SumQueries::BYTES};
  const SumKeys key_tile{memory + SumQueries::BYTES + SumDouts::BYTES};
  const SumValues value_tile{memory + SumQueries::BYTES + SumDouts::BYTES + SumKeys::BYTES};
  const Heads<const Element> q(slot_view(joined_q, sequence_count, queries, turn.count, head_slots, D)), k(slot_view(made_k, sequence_count, keys, turn.count, head_slots, D)),
      v(slot_view(made_v, sequence_count, keys, turn.count, head_slots, DV));
  const int left = queries - first_row;
  TileReader<Element, SUM_ROWS, D16, SUM_THREADS, D>(q.row(batch, left > 0 ? first_row : 0, slot), q.token_stride, left).copy_async(query_tile);
  TileReader<Element, SUM_ROWS, DV16, SUM_THREADS, DV>(dout + batch * dout_batch + (left > 0 ? first_row : 0) * dout_token + (turn.first + slot) * dout_head, dout_token, left)
      .copy_async(dout_tile);

  const LatentCall call{q_segment_ids_view, kv_segment_ids_view, nullptr, queries, keys, offset_given, offset, Visibility{causal, window_left, window_right}};
  const int row = warp() * 16, own = first_row + row + lane() / 4;  // and 8 below
  SeenKeys seen[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) seen[h] = own + 8 * h < queries ? call.keys(batch, own + 8 * h) : SeenKeys{0, 0, nullptr, 0};
  const int64_t position = offset_given ? offset : keys - queries;
  const int begin = left > 0 ? static_cast<int>(visible_keys(call.rule, first_row, position, keys).first) : 0;
  const int end = left > 0 ? static_cast<int>(visible_keys(call.rule, first_row + (left < SUM_ROWS ? left : SUM_ROWS) - 1, position, keys).end) : 0;
  float reference[2] = {LOWEST, LOWEST}, sum[2] = {}, delta[2] = {};
#pragma unroll 1
  for (int first = begin; first < end; first += SUM_KEYS) {
    sync_block();  // the tiles have been read
    TileReader<Element, SUM_KEYS, D16, SUM_THREADS, D>(k.row(batch, first, slot), k.token_stride, keys - first).copy_async(key_tile);
    TileReader<Element, SUM_KEYS, DV16, SUM_THREADS, DV>(v.row(batch, first, slot), v.token_stride, keys - first).copy_async(value_tile);
    copy_async_commit();
    copy_async_wait<0>();
    sync_block();
    float s[SUM_KEYS / 8][4], dp[SUM_KEYS / 8][4];
    multiply_rows<D16>(s, query_tile, key_tile, row);
    multiply_rows<DV16>(dp, dout_tile, value_tile, row);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = -INFINITE;
#pragma unroll
      for (int n = 0; n < SUM_KEYS / 8; ++n)
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          const int key = first + 8 * n + lane() % 4 * 2 + i % 2;
          float score = s[n][i] * softmax_scale;
          if (CAPPED) score = logits_soft_cap * tanh_of(score / logits_soft_cap);
          s[n][i] = key >= seen[h].first && key < seen[h].end && seen[h].sees(key) ? score * LOG2_E : -INFINITE;
          largest = larger_of(largest, s[n][i]);
        }
      largest = larger_of(reference[h], largest_of_fragment_row(largest));
      const float factor = exp2_of(reference[h] - largest);
      reference[h] = largest, sum[h] *= factor, delta[h] *= factor;
#pragma unroll
      for (int n = 0; n < SUM_KEYS / 8; ++n)
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          const float weight = exp2_of(s[n][i] - largest);
          sum[h] += weight, delta[h] += weight == 0 ? 0 : weight * dp[n][i];  // what is not seen may be NaN
        }
    }
  }
  copy_async_wait<0>();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    for (int mask = 1; mask < 4; mask *= 2) sum[h] += shuffle_xor(sum[h], mask), delta[h] += shuffle_xor(delta[h], mask);
    const int local = row + lane() / 4 + 8 * h;
    if (lane() % 4 != 0 || local >= space) continue;
    row_lse[at + local] = sum[h] == 0 ? INFINITE : reference[h] + log_of(sum[h]) * LOG2_E;
    row_delta[at + local] = sum[h] == 0 ? 0 : delta[h] / sum[h];
  }
}
