// A warpgroup of Hopper's native sparse attention: softmax and outputs of its tokens. A part of forward.sm90.cu, whose constants it uses.
#pragma once
#include "native_sparse_attention/sm90_token_group.h"

// What is small, in shared memory.
struct Notes {
  float reference[TOKENS][ROW_HEADS];  // of weights of blocks, to the base 2; in the end logarithms of their sums
  float exchange[GROUPS][4][ROW_HEADS];
$if gated
  float block_gate[TOKENS][ROW_HEADS], mean_gate[TOKENS][ROW_HEADS], mean_sum[TOKENS][ROW_HEADS];  // sums: logarithms to the base 2
$end
  TileRing ring;
  // Where the block's tokens are: read again where it is needed, for registers are few. past: means that all see; a token from `next_past` on sees one more.
  int first_token, first_head, heads, batch, past, next_past;
};
typedef float Outputs[DV / 64][ROW_HEADS / 2];
// Sums of weights that a lane holds of a token, its own and those of the lane 16 from it: of columns 0 and 1, or from lane 16 on 2 and 3.
typedef float HalfSums[2];

// Columns summed over two lanes.
static inline void halve_columns(HalfSums& to, const float (&x)[4]) {
  const bool upper = lane() & 16;
#pragma unroll
  for (int c = 0; c < 2; ++c) to[c] = (upper ? x[2 + c] : x[c]) + shuffle_xor(upper ? x[c] : x[2 + c], 16);
}

struct Consumer {
  Notes& notes;
  TokenGroup own;
  uint32_t tiles, queries, weights;  // addresses; of weights the group's two places
  float unit;                        // of scores
  uint32_t turn = 0;                 // of the two
  Outputs output[GROUP_TOKENS];
  HalfSums sum[GROUP_TOKENS];

  void start() {
#pragma unroll
    for (int i = 0; i < GROUP_TOKENS; ++i) {
#pragma unroll
      for (int h = 0; h < DV / 64; ++h)
#pragma unroll
        for (int e = 0; e < ROW_HEADS / 2; ++e) output[i][h][e] = 0;
      sum[i][0] = sum[i][1] = 0;
    }
#pragma unroll 1
    for (int i = thread_x() % WARPGROUP; i < GROUP_TOKENS * ROW_HEADS; i += WARPGROUP)
      notes.reference[own.token(i / ROW_HEADS)][i % ROW_HEADS] = LOWEST;
    own.sync();
  }

  // References follow the largest scores, and what was added up follows them.
  void follow(Outputs& o, HalfSums& held, float (&reference)[4], float (&references)[ROW_HEADS], const Scores& s) const {
    float largest[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) largest[c] = larger_of(s[c / 2 * 4 + c % 2], s[c / 2 * 4 + c % 2 + 2]);
    own.join_columns(largest, [](float a, float b) { return larger_of(a, b); });
    float by[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float now = larger_of(reference[c], largest[c]);
      by[c] = exp2_of(reference[c] - now);
      reference[c] = now;
    }
    held[0] *= lane() & 16 ? by[2] : by[0], held[1] *= lane() & 16 ? by[3] : by[1];
#pragma unroll
    for (int h = 0; h < DV / 64; ++h)
#pragma unroll
      for (int e = 0; e < ROW_HEADS / 2; ++e) o[h][e] *= by[column_of(e)];
    own.sync();
    if (TokenGroup::speaks()) {
#pragma unroll
      for (int c = 0; c < 4; ++c) references[head_of(c)] = reference[c];
    }
  }

  // Token `of` of the block's, which sees the first `count` keys of the stage's tile.
  template <TileKind KIND> void meet(Outputs& o, HalfSums& held, int of, uint32_t stage, int count) {
    const uint32_t keys = tiles + stage * STAGE_BYTES, values = keys + PANEL * D / 64;
    float(&references)[ROW_HEADS] = ${gated ? 'KIND == TILE_OF_MEANS ? notes.mean_sum[of] : ' : ''}notes.reference[of];
    float reference[4];
    Scores s;
    {
      ScoreParts parts;
      keep_in_place(parts);
      wgmma_fence();
      start_scores<D>(parts, keys, queries + of * (ROW_HEADS * 128));
      wgmma_commit();
#pragma unroll
      for (int c = 0; c < 4; ++c) reference[c] = references[head_of(c)];
      wgmma_wait<0>();
      keep_in_place(parts);
      join_parts(s, parts);
    }
    if (count >= KEYS_A_TILE) {
#pragma unroll
      for (int e = 0; e < ROW_HEADS / 2; ++e) s[e] *= unit;
    } else {
      const int key = warp() % 4 * 16 + lane() / 4;
#pragma unroll
      for (int e = 0; e < ROW_HEADS / 2; ++e) s[e] = key + e / 2 % 2 * 8 < count ? s[e] * unit : -INFINITE;
    }
    float over = -INFINITE;  // how far scores are above their references
#pragma unroll
    for (int e = 0; e < ROW_HEADS / 2; ++e) over = larger_of(over, s[e] - reference[column_of(e)]);
    const uint32_t place = weights + turn % 2 * WEIGHT_BYTES;
    ++turn;
    HalfSums added;
    const auto weigh = [&] {
      Scores w;
#pragma unroll
      for (int e = 0; e < ROW_HEADS / 2; ++e) w[e] = exp2_of(s[e] - reference[column_of(e)]);
      float all[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) all[c] = w[c / 2 * 4 + c % 2] + w[c / 2 * 4 + c % 2 + 2];
$if gated
      if (KIND == TILE_OF_MEANS) {
#pragma unroll
        for (int e = 0; e < ROW_HEADS / 2; ++e) w[e] *= notes.mean_gate[of][head_of(column_of(e))];
      }
$end
      store_transposed(place, w);
      fence_async();
      halve_columns(added, all);
    };
    weigh();
    if (any_in_some(own.barrier(), WARPGROUP, over > HEADROOM)) {
      follow(o, held, reference, references, s);
      weigh();
      own.sync();
    }
    held[0] += added[0], held[1] += added[1];
    if (count >= KEYS_A_TILE)
      add_weighed<DV, ROW_HEADS>(o, values, place);
    else
      add_some_weighed<DV, ROW_HEADS>(o, values, place, count);
  }

  // All tiles of a kind. end(token of the block's): keys that it sees.
  template <TileKind KIND, class End> void meet_tiles(Turn<STAGES>& ring_turn, const End& end) {
    own.meet_tiles(KIND, notes.ring, ring_turn, [&](int i, uint32_t stage, int first) { meet<KIND>(output[i], sum[i], own.token(i), stage, end(own.token(i)) - first); });
  }

  // After blocks: outputs become averages times gate(token of the block's, head), and references logarithms of sums.
  template <class Gate> void end_blocks(const Gate& gate) {
#pragma unroll
    for (int i = 0; i < GROUP_TOKENS; ++i) {
      const int of = own.token(i);
      float sums[4];
      own.find_columns(sums, (lane() & 8 ? sum[i][1] : sum[i][0]) + shuffle_xor(lane() & 8 ? sum[i][0] : sum[i][1], 8));
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float all = sums[c], by = all == 0 ? 0 : gate(of, head_of(c)) / all;
        if (TokenGroup::speaks()) {
          float& reference = notes.reference[of][head_of(c)];
          reference = all == 0 ? -INFINITE : reference + log_of(all) * LOG2_E;
        }
#pragma unroll
        for (int h = 0; h < DV / 64; ++h)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float& o = output[i][h][c / 2 * 4 + 2 * r + c % 2];
            o = all == 0 ? 0 : o * by;
          }
      }
    }
    own.sync();
  }
  // give(token of the block's, head, logarithm of its sum over blocks).
  template <class Give> void give_sums(const Give& give) const {
#pragma unroll 1
    for (int i = thread_x() % WARPGROUP; i < GROUP_TOKENS * ROW_HEADS; i += WARPGROUP) give(own.token(i / ROW_HEADS), i % ROW_HEADS, notes.reference[own.token(i / ROW_HEADS)][i % ROW_HEADS] * LN_2);
  }
};
