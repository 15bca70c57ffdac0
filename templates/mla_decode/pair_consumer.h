// A warpgroup of Hopper's mla_decode of whole features that multiplies: from scores to outputs. A part of decode_pair.sm90.cu, whose constants it uses.
#pragma once
#include "mla_decode/pair_rows.h"
#include "mla_decode/pair_merge.h"

// GROUP 0 weighs even tiles and holds the outputs' first half; it starts with a tile's scores when it has added the tile before to its outputs. GROUP 1
// has the rest, and adds the tile before while it weighs; but EAGER ones release the tile before first, and then wait for the next one.
template <int GROUP, bool PAIRED> struct Consumer : ClusterMerge<GROUP> {
  using Merge = ClusterMerge<GROUP>;
  using Rows = PairRows<GROUP>;
  using Rows::at, Rows::OTHER, Rows::WEIGHED, Rows::ALL, Rows::OWN, Rows::rows, Rows::me, Rows::own_lane, Rows::first_row;
  const int tiles, count;  // of the part; keys of the query token from the part's first one on
  float to_log, to_tanh;   // take scores, or their tanh, to log 2; scores to what tanh is of
  typedef uint32_t Held[ROPE / 16][4];  // queries' rope features
  typedef float Scores[KEYS / 2];
  typedef float Outputs[HALF / 2];
  typedef uint32_t Weights[KEYS / 16][4];

  int keys_from(int tile) const { return count - tile * KEYS; }

  // Rope features; the copier brings the others.
  static void load_queries(const QueryRows& q, Held& held) {
#pragma unroll
    for (int slice = 0; slice < ROPE / 16; ++slice)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        held[slice][i] = *reinterpret_cast<const uint32_t*>(q.rope_row(first_row() + i % 2 * 8) + slice * 16 + own_lane() % 4 * 2 + i / 2 * 8);
    barrier_wait_all(at.q_full(), 0);
  }

  static void await(uint32_t stage, int box, int tile) {
    barrier_wait_all(at.full(stage, box), tile / 2 % 2);
    if constexpr (GATHERED) fence_async();
  }

  // With one fence.
  static void await_half(uint32_t stage, int half, int tile) {
#pragma unroll
    for (int box = 0; box < HALF_BOXES; ++box) barrier_wait_all(at.full(stage, half * HALF_BOXES + box), tile / 2 % 2);
    if constexpr (GATHERED) fence_async();
  }

  // Latent features of an own tile behind the last key, which may be anything, become zeros.
  void clear_behind(int tile) const {
    const int left = keys_from(tile);
#pragma unroll 1
    for (int box = 0; box < LATENT_BOXES; ++box) await(GROUP, box, tile);
#pragma unroll 1
    for (int i = me(); i < (KEYS - left) * (R / 8); i += WARPGROUP)
      store_shared_16(at.keys(GROUP) + i % (R / 8) / 8 * BOX + (left + i / (R / 8)) * 128 + i % 8 * 16, {});
    fence_async();
    sync_some(OWN + GROUP, WARPGROUP);
  }

  // Scores of an own tile start box by box, as those come: rope and the half of warpgroup GROUP, then the other half.
  void start_first_scores(Scores& s, const Held& held, int tile) const {
    const uint64_t b = depth_major<128>(keep_here(at.keys(GROUP) + ROPE_BOX * BOX));
    if (!GATHERED && keys_from(tile) < KEYS) clear_behind(tile);
    await(GROUP, ROPE_BOX, tile);
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < ROPE / 16; ++slice) wgmma<Element, KEYS>(s, held[slice], moved(b, slice * 32), slice > 0);
    multiply_half(s, GROUP, tile);
    wgmma_commit();
  }
  void start_other_scores(Scores& s, int tile) const {
    multiply_half(s, OTHER, tile);
    wgmma_commit();
  }
  static void multiply_half(Scores& s, int half, int tile) {
    const uint64_t a = depth_major<128>(keep_here(at.q() + half * HALF_BOXES * BOX)), b = depth_major<128>(keep_here(at.keys(GROUP) + half * HALF_BOXES * BOX));
    if constexpr (GATHERED) await_half(GROUP, half, tile);
#pragma unroll
    for (int box = 0; box < HALF_BOXES; ++box) {
      if constexpr (!GATHERED) await(GROUP, half * HALF_BOXES + box, tile);
#pragma unroll
      for (int slice = 0; slice < 4; ++slice) wgmma<Element, KEYS>(s, moved(a, box * BOX + slice * 32), moved(b, box * BOX + slice * 32), true);
    }
  }

  static uint64_t values(uint32_t stage) { return row_major<128>(keep_here(at.keys(stage) + GROUP * HALF_BOXES * BOX), KEYS); }

  // Adds an own tile's values.
  static void start_own(Outputs& o, const Weights& p) {
    const uint64_t b = values(GROUP);
    keep_in_place(o);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < KEYS / 16; ++slice) wgmma<Element, HALF, true>(o, p[slice], moved(b, slice * 2048), true);
    wgmma_commit();
  }

  // Takes references of the other warpgroup's last tile, and starts to add its values.
  void start_others(Outputs& o, int tile) {
    sync_some(WEIGHED + OTHER, GROUPS * WARPGROUP);
    await_half(OTHER, GROUP, tile);
    float factor[2];
    Rows::take_references(factor);
    if (any_in_warp(factor[0] != 1 || factor[1] != 1)) scale_rows(o, factor);
    const uint64_t a = depth_major<128>(keep_here(at.weights(OTHER))), b = values(OTHER);
    keep_in_place(o);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < KEYS / 16; ++slice) wgmma<Element, HALF, false, true>(o, moved(a, slice * 32), moved(b, slice * 2048), true);
    wgmma_commit();
  }

  // A piece of a stage is not needed any more.
  static void release(uint32_t stage, Piece piece) {
    sync_warp();
    if (own_lane() == 0) barrier_arrive(at.empty(stage, piece));
  }

  // Scores become weights, which go to the other warpgroup, too. Returns whether outputs are to be multiplied by `factor` first.
  bool weigh(Scores& s, Weights& p, float (&factor)[2], int tile) {
    if constexpr (CAPPED) {
#pragma unroll
      for (int j = 0; j < KEYS / 2; ++j) s[j] = far_tanh_of(s[j] * to_tanh);
    }
    if constexpr (GATHERED) {
      hide_unseen(s, at.seen(GROUP), own_lane());
    } else if (keys_from(tile) < KEYS) {
      const int left = keys_from(tile) - own_lane() % 4 * 2;
#pragma unroll
      for (int j = 0; j < KEYS / 2; ++j)
        if (j / 4 * 8 + j % 2 >= left) s[j] = -INFINITE;
    }
    const bool follows = rows.weigh(s, to_log, factor);
    pack_weights<Element, KEYS>(p, s);
    const int l = own_lane(), row = me() / WARP * 16 + l % 16;
#pragma unroll
    for (int n = 0; n < KEYS / 16; ++n) store_matrices(at.weights(GROUP) + row * 128 + ((2 * n + l / 16) ^ row % 8) * 16, p[n]);
    Rows::store_references(l);
    fence_async();
    arrive_some(WEIGHED + GROUP, GROUPS * WARPGROUP);
    return follows;
  }

  template <class MakeResults> void run(const QueryRows& q, MakeResults results) {
    Held held;
    load_queries(q, held);
    Outputs o;
#pragma unroll
    for (int j = 0; j < HALF / 2; ++j) o[j] = 0;
    Scores s;
    Weights p;
#pragma unroll 1
    for (int tile = GROUP; tile < tiles; tile += 2) {
      float factor[2];
      bool follows;
      if constexpr (GROUP == 0 || EAGER) {
        if (tile > 0) start_others(o, tile - 1);
        if (EAGER && tile > 0) {
          wgmma_wait<0>();
          keep_in_place(o);
          release(OTHER, OTHER_PIECE);
        }
        start_first_scores(s, held, tile);
        if (!EAGER && tile > 0) {
          wgmma_wait<1>();
          keep_in_place(o);
          release(OTHER, OTHER_PIECE);
        }
        start_other_scores(s, tile);
        wgmma_wait<0>();
        keep_in_place(s);
        release(GROUP, ROPE_PIECE);
        follows = weigh(s, p, factor, tile);
      } else {
        start_first_scores(s, held, tile);
        start_other_scores(s, tile);
        start_others(o, tile - 1);
        wgmma_wait<1>();
        keep_in_place(s);
        release(GROUP, ROPE_PIECE);
        follows = weigh(s, p, factor, tile);
        wgmma_wait<0>();
        keep_in_place(o);
        release(OTHER, OTHER_PIECE);
      }
      if (follows) scale_rows(o, factor);
      start_own(o, p);
      wgmma_wait<0>();
      keep_in_place(o);
      release(GROUP, OWN_PIECE);
    }
    if (tiles > 0 && (tiles - 1) % 2 == OTHER) {
      start_others(o, tiles - 1);
      wgmma_wait<0>();
      keep_in_place(o);
    }
    const auto outputs = [&](auto store) { store(o, GROUP * HALF); };
    if constexpr (PAIRED) {
      Rows::add_groups();
      Merge::meet();
      if (cluster_rank() == GROUP)
        Merge::receive(o);
      else
        Merge::send(o, 1 - cluster_rank());
      arrive_cluster();
      if (cluster_rank() == GROUP) Rows::store(results(), outputs, Merge::stage(), GROUP == 0);
      wait_cluster();  // what was sent has come
    } else {
      Rows::finish(results(), outputs);
    }
  }
};
