// A warpgroup of the gradient of Hopper's native sparse attention: dq of its tokens. A part of backward.sm90.cu, whose constants it uses.
#pragma once
#include "native_sparse_attention/sm90_token_group.h"

// What is small, in shared memory. Of the branch that is under way: sums of weights to the base 2, gates, and `about`.
struct Notes {
  float log_sum[TOKENS][ROW_HEADS], gate[TOKENS][ROW_HEADS], about[TOKENS][ROW_HEADS];
  float exchange[GROUPS][4][ROW_HEADS];
  TileRing ring;
};
// Elements of slopes' columns, then of weights'.
typedef float QuerySums[D / 64][ROW_HEADS];

// With w the weights of a branch and p = dout . v, dq takes sum of w (p - delta) k, where delta = sum of w p is not known before: so w (p - about) k
// and w k are summed side by side, `about` as the first tile has it.
struct GradientConsumer {
  Notes& notes;
  TokenGroup own;
  uint32_t tiles, queries, douts, weights;  // addresses; of weights the group's two places
  float unit;                               // of scores
  uint32_t turn = 0;                        // of the two
  uint32_t begun = 0;                       // tokens that have met keys of the branch, a bit each
  QuerySums sums[GROUP_TOKENS];
  float weight[GROUP_TOKENS], product[GROUP_TOKENS];  // of the column that the lane holds: sums of w, of w (p - about)

  void start() {
#pragma unroll
    for (int i = 0; i < GROUP_TOKENS; ++i) {
#pragma unroll
      for (int h = 0; h < D / 64; ++h)
#pragma unroll
        for (int e = 0; e < ROW_HEADS; ++e) sums[i][h][e] = 0;
      weight[i] = product[i] = 0;
    }
  }
  // log_of(token of the block's, head): to the base 2.
  template <class Log, class Gate> void start_branch(const Log& log_of, const Gate& gate) {
    own.sync();
#pragma unroll 1
    for (int i = thread_x() % WARPGROUP; i < GROUP_TOKENS * ROW_HEADS; i += WARPGROUP) {
      const int of = own.token(i / ROW_HEADS), head = i % ROW_HEADS;
      const float log = log_of(of, head);
      notes.log_sum[of][head] = log > -INFINITE ? log : 0, notes.gate[of][head] = gate(of, head), notes.about[of][head] = 0;
    }
    own.sync();
    begun = 0;
  }

  // `about`, by the weights and products of the first tile that token `of` meets.
  void find_about(float (&about)[4], int of, const Scores& w, const Scores& p) const {
    float all[4] = {0, 0, 0, 0}, of_gate[4] = {0, 0, 0, 0};
#pragma unroll
    for (int e = 0; e < ROW_HEADS / 2; ++e) all[column_of(e)] += w[e], of_gate[column_of(e)] += w[e] == 0 ? 0 : w[e] * p[e];
    const auto add = [](float a, float b) { return a + b; };
    own.join_columns(all, add);
    own.sync();
    own.join_columns(of_gate, add);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      about[c] = all[c] == 0 ? 0 : of_gate[c] / all[c];
      if (TokenGroup::speaks()) notes.about[of][head_of(c)] = about[c];
    }
  }

  // Token i of the group, `of` of the block's, which sees the first `count` keys of the stage's tile.
  void meet(int i, int of, uint32_t stage, int count) {
    const uint32_t keys = tiles + stage * STAGE_BYTES, values = keys + PANEL * D / 64;
    Scores w, p;
    {
      ScoreParts of_keys, of_values;
      keep_in_place(of_keys);
      keep_in_place(of_values);
      wgmma_fence();
      start_scores<D>(of_keys, keys, queries + of * (ROW_HEADS * 128));
      start_scores<DV>(of_values, values, douts + of * (ROW_HEADS * 128));
      wgmma_commit();
      wgmma_wait<0>();
      keep_in_place(of_keys);
      keep_in_place(of_values);
      join_parts(w, of_keys);
      join_parts(p, of_values);
    }
    const int key = warp() % 4 * 16 + lane() / 4;
    float gate[4], about[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) gate[c] = notes.gate[of][head_of(c)], about[c] = notes.about[of][head_of(c)];
#pragma unroll
    for (int e = 0; e < ROW_HEADS / 2; ++e)
      w[e] = key + e / 2 % 2 * 8 < count ? exp2_of(w[e] * unit - notes.log_sum[of][head_of(column_of(e))]) : 0;
    if (!(begun >> i & 1)) find_about(about, of, w, p);
    begun |= 1u << i;
    const uint32_t place = weights + turn % 2 * WEIGHT_BYTES;
    ++turn;
    float all[4] = {0, 0, 0, 0}, products[4] = {0, 0, 0, 0};
#pragma unroll
    for (int e = 0; e < ROW_HEADS / 2; ++e) {
      const int c = column_of(e);
      p[e] = w[e] == 0 ? 0 : w[e] * (p[e] - about[c]);  // what lies behind a weight of 0 may not be finite
      all[c] += w[e], products[c] += p[e];
      w[e] *= gate[c], p[e] *= gate[c];
    }
    weight[i] += share_columns(all), product[i] += share_columns(products);
    store_transposed(place, p);
    store_transposed(place + ROW_HEADS * 128, w);
    fence_async();
    own.sync();
    if (count >= KEYS_A_TILE)
      add_weighed<D, 2 * ROW_HEADS>(sums[i], keys, place);
    else
      add_some_weighed<D, 2 * ROW_HEADS>(sums[i], keys, place, count);
  }

  // All tiles of a kind. end(token of the block's): keys that it sees.
  template <class End> void meet_tiles(TileKind kind, Turn<STAGES>& ring_turn, const End& end) {
    own.meet_tiles(kind, notes.ring, ring_turn, [&](int i, uint32_t stage, int first) { meet(i, own.token(i), stage, end(own.token(i)) - first); });
  }

  // give(token of the block's, head, sum of w p): the gradient of the gate. Not by the log-sum-exp alone, whose rounding would stay where
  // gradients cancel.
  template <class Give> void finish_branch(const Give& give) {
#pragma unroll
    for (int i = 0; i < GROUP_TOKENS; ++i) {
      const int of = own.token(i);
      float all[4], products[4];
      own.find_columns(all, weight[i]);
      own.find_columns(products, product[i]);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float rest = all[c] == 0 ? 0 : products[c] / all[c];
        if (TokenGroup::speaks()) give(of, head_of(c), notes.about[of][head_of(c)] + rest);
#pragma unroll
        for (int h = 0; h < D / 64; ++h)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int e = c / 2 * 4 + 2 * r + c % 2;
            sums[i][h][e] -= rest * sums[i][h][ROW_HEADS / 2 + e];
            sums[i][h][ROW_HEADS / 2 + e] = 0;
          }
      }
      weight[i] = product[i] = 0;
    }
  }
};
