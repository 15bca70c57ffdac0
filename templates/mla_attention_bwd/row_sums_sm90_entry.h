// The launch of mla_attention_bwd before flash_attention_bwd's on Hopper: each row's log-sum-exp and delta, the sum of its weights times dout . v, from the made keys and
// values. An end of flash_attention_bwd's backward_wide.sm90.cu, whose constants it uses.
//
// A block has 128 query rows of a head: warpgroup 0 copies, the others have 64 rows each. Nothing is multiplied by weights, so one warpgroup weighs while the other's
// products run, and nobody hands anything over.
#pragma once
#include "device/matrix/fragment.h"

using Cached = Element;
#include "mla_attention/latent_call.h"

constexpr int SUM_GROUPS = 2, SUM_ROWS = 64 * SUM_GROUPS, SUM_KEYS = 96, SUM_THREADS = (SUM_GROUPS + 1) * WARPGROUP;
constexpr uint32_t SUM_STAGES = 2, ROW_BOX = 64 * 128, SUM_KEY_BOX = SUM_KEYS * 128, ROWS_BYTES = (BOXES + V_BOXES) * ROW_BOX, KEYS_BYTES = (BOXES + V_BOXES) * SUM_KEY_BOX;
typedef float RowScores[SUM_KEYS / 2];

// Shared memory: queries, then dout, of each warpgroup's rows; stages of keys, then values; barriers, full and empty.
struct SumPlaces {
  uint32_t base;
  uint32_t queries(int group) const { return base + group * ROWS_BYTES; }
  uint32_t douts(int group) const { return queries(group) + BOXES * ROW_BOX; }
  uint32_t keys(uint32_t stage) const { return base + SUM_GROUPS * ROWS_BYTES + stage * KEYS_BYTES; }
  uint32_t values(uint32_t stage) const { return keys(stage) + BOXES * SUM_KEY_BOX; }
  uint32_t keys_full(uint32_t stage) const { return keys(SUM_STAGES) + 16 * stage; }
  uint32_t rows_full() const { return keys_full(SUM_STAGES); }
  static constexpr uint32_t BYTES = 1024 + SUM_GROUPS * ROWS_BYTES + SUM_STAGES * KEYS_BYTES + 16 * SUM_STAGES + 8;
};
static_assert(SumPlaces::BYTES == ${sums_shared}, "the spec has another size");

// Two rows of a lane: the largest score so far, in units of log 2, sums of weights and of weights times dP.
struct RowSums {
  float reference[2] = {LOWEST, LOWEST}, sum[2] = {}, delta[2] = {};

  // The same scores with the factor, or as the cap has them; hidden ones are -inf.
  template <bool WHOLE> static void finish_scores(RowScores& s, float factor, float cap, int first, const SeenKeys (&seen)[2]) {
#pragma unroll
    for (int e = 0; e < SUM_KEYS / 2; ++e) {
      const int key = first + e / 4 * 8 + lane() % 4 * 2 + e % 2, h = e / 2 % 2;
      s[e] = CAPPED ? cap * tanh_of(s[e] * factor) : s[e] * factor;
      if (!WHOLE && !(key >= seen[h].first && key < seen[h].end && (!SEGMENTED || seen[h].sees(key)))) s[e] = -INFINITE;
    }
  }
  // References follow; scores become weights.
  void weigh(RowScores& s) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = -INFINITE;
#pragma unroll
      for (int e = 2 * h; e < SUM_KEYS / 2; e += 4) largest = larger_of(largest, larger_of(s[e], s[e + 1]));
      largest = larger_of(reference[h], largest_of_fragment_row(largest));
      const float factor = exp2_of(reference[h] - largest);
      reference[h] = largest, sum[h] *= factor, delta[h] *= factor;
#pragma unroll
      for (int e = 2 * h; e < SUM_KEYS / 2; e += 4)
#pragma unroll
        for (int i = e; i < e + 2; ++i) s[i] = exp2_of(s[i] - largest), sum[h] += s[i];
    }
  }
  template <bool WHOLE> void add_gradients(const RowScores& weights, const RowScores& dp) {
#pragma unroll
    for (int e = 0; e < SUM_KEYS / 2; ++e) delta[e / 2 % 2] += WHOLE || weights[e] != 0 ? weights[e] * dp[e] : 0;  // what is not seen may be NaN
  }
};

// Block (x, y, z): SUM_ROWS query rows, the x-th from the end, of the turn's head y of row z of the batch: those with the most keys, if causal, come first.
KERNEL(SUM_THREADS, 1) sum_rows(${parameters('sum_rows')}) {
  const TurnHeads turn(step, head_slots, all_heads);
  const int slot = block_y(), batch = block_z(), first_row = (grid_x() - 1 - block_x()) * SUM_ROWS, queries = static_cast<int>(query_tokens), keys = static_cast<int>(key_tokens);
  if (slot >= turn.count) return;
  const SumPlaces at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    barrier_init(at.rows_full(), 1);
    for (uint32_t stage = 0; stage < SUM_STAGES; ++stage) barrier_init(at.keys_full(stage), 1), barrier_init(at.keys_full(stage) + 8, SUM_GROUPS);
    fence_barrier_init();
  }
  sync_block();
  const LatentCall call{q_segment_ids_view, kv_segment_ids_view, nullptr, queries, keys, offset_given, offset, Visibility{causal, window_left, window_right}};
  const int64_t position = offset_given ? offset : keys - queries;
  const int last_row = (queries - first_row < SUM_ROWS ? queries - first_row : SUM_ROWS) + first_row - 1;
  const int begin = static_cast<int>(visible_keys(call.rule, first_row, position, keys).first), end = static_cast<int>(visible_keys(call.rule, last_row, position, keys).end);
  if (warpgroup() == 0) {
    give_registers<40>();
    if (thread_x() != 0) return;
    barrier_arrive_expect(at.rows_full(), SUM_GROUPS * ROWS_BYTES);
    for (int group = 0; group < SUM_GROUPS; ++group) {
      copy_boxes<BOXES, false>(at.queries(group), ROW_BOX, joined_q_map, at.rows_full(), 0, slot, first_row + 64 * group, batch);
      copy_boxes<V_BOXES, false>(at.douts(group), ROW_BOX, dout_map, at.rows_full(), 0, static_cast<int>(turn.first) + slot, first_row + 64 * group, batch);
    }
    uint32_t number = 0;
#pragma unroll 1
    for (int first = begin; first < end; first += SUM_KEYS, ++number) {
      const uint32_t stage = number % SUM_STAGES, full = at.keys_full(stage);
      barrier_wait(full + 8, number / SUM_STAGES % 2 ^ 1);
      barrier_arrive_expect(full, KEYS_BYTES);
      copy_boxes<BOXES, false>(at.keys(stage), SUM_KEY_BOX, made_k_map, full, 0, slot, first, batch);
      copy_boxes<V_BOXES, false>(at.values(stage), SUM_KEY_BOX, made_v_map, full, 0, slot, first, batch);
    }
    return;
  }
  take_registers<232>();
  const int group = warpgroup() - 1, own_rows = first_row + 64 * group, row = own_rows + warp() % 4 * 16 + lane() / 4;  // and 8 below
  SeenKeys seen[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) seen[h] = row + 8 * h < queries ? call.keys(batch, row + 8 * h) : SeenKeys{0, 0, nullptr, 0};
  // Keys that all of the warpgroup's rows see, and those that one of them does. Rows past the last query do not count.
  const int last_own = own_rows + 63 < queries ? own_rows + 63 : queries - 1;
  const bool some = own_rows < queries;
  const int whole_first = some ? static_cast<int>(visible_keys(call.rule, last_own, position, keys).first) : 0, whole_end = some ? static_cast<int>(visible_keys(call.rule, own_rows, position, keys).end) : 0;
  const int own_first = some ? static_cast<int>(visible_keys(call.rule, own_rows, position, keys).first) : 0, own_end = some ? static_cast<int>(visible_keys(call.rule, last_own, position, keys).end) : 0;
  const float factor = CAPPED ? softmax_scale / logits_soft_cap : softmax_scale * LOG2_E, cap = logits_soft_cap * LOG2_E;
  RowSums sums;
  uint32_t number = 0;
  barrier_wait(at.rows_full(), 0);
#pragma unroll 1
  for (int first = begin; first < end; first += SUM_KEYS, ++number) {
    const uint32_t stage = number % SUM_STAGES, full = at.keys_full(stage);
    barrier_wait(full, number / SUM_STAGES % 2);
    const bool works = first < own_end && first + SUM_KEYS > own_first;
    if (works) {
      RowScores s, dp;
      start_product<Element, SUM_KEYS, D>(s, at.queries(group), ROW_BOX, at.keys(stage), SUM_KEY_BOX);
      start_product<Element, SUM_KEYS, DV>(dp, at.douts(group), ROW_BOX, at.values(stage), SUM_KEY_BOX);
      wgmma_wait<1>();
      keep_in_place(s);
      const bool whole = !SEGMENTED && first >= whole_first && first + SUM_KEYS <= whole_end;
      if (whole)
        RowSums::finish_scores<true>(s, factor, cap, first, seen);
      else
        RowSums::finish_scores<false>(s, factor, cap, first, seen);
      sums.weigh(s);
      wgmma_wait<0>();
      keep_in_place(dp);
      if (thread_x() % WARPGROUP == 0) barrier_arrive(full + 8);
      if (whole)
        sums.add_gradients<true>(s, dp);
      else
        sums.add_gradients<false>(s, dp);
    } else if (thread_x() % WARPGROUP == 0) {
      barrier_arrive(full + 8);
    }
  }
  const int64_t to = (batch * turn.count + slot) * space_rows + row;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    for (int mask = 1; mask < 4; mask *= 2) sums.sum[h] += shuffle_xor(sums.sum[h], mask), sums.delta[h] += shuffle_xor(sums.delta[h], mask);
    if (lane() % 4 != 0 || row + 8 * h >= space_rows) continue;
    row_lse[to + 8 * h] = sums.sum[h] == 0 ? INFINITE : sums.reference[h] + log_of(sums.sum[h]) * LOG2_E;
    row_delta[to + 8 * h] = sums.sum[h] == 0 ? 0 : sums.delta[h] / sums.sum[h];
  }
}
