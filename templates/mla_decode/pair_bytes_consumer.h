// A warpgroup of Hopper's mla_decode of bytes and 64 heads a block that multiplies: from scores to outputs. A part of decode_pair_bytes.sm90.cu, whose constants it uses.
#pragma once
#include "mla_decode/pair_rows.h"

// GROUP 0 weighs even tiles and holds the outputs' first half; it starts with a tile's scores when it has added the tile before to its outputs. GROUP 1
// has the rest, and adds the tile before while it weighs.
template <int GROUP> struct Consumer : PairRows<GROUP> {
  using Rows = PairRows<GROUP>;
  using Rows::at, Rows::OTHER, Rows::WEIGHED, Rows::ALL, Rows::OWN, Rows::rows, Rows::me, Rows::own_lane, Rows::first_row;
  const int tiles;         // of the part
  float to_log, to_tanh;   // take scores, or their tanh, to log 2; scores to what tanh is of
  static constexpr int BLOCKS = SCALES / 2;             // of features with a scale, of a warpgroup's outputs
  typedef uint32_t Held[ROPE / 16][4];                  // queries' rope features
  typedef float Scores[KEYS / 2];
  typedef float Outputs[BLOCKS][HALF / BLOCKS / 2];
  typedef uint32_t Weights[BLOCKS][KEYS / 16][4];

  static void load_queries(const QueryRows& q, const void* ropes) {
    Rows::load_latent_queries(q);
    if (thread_x() < COPIERS + ROWS)
      store_shared_4(at.rope_row(thread_x() - COPIERS), static_cast<uint32_t>((reinterpret_cast<const char*>(q.rope_row(thread_x() - COPIERS)) - static_cast<const char*>(ropes)) / 16));
    fence_async();
    sync_some(ALL, GROUPS * WARPGROUP);
  }

  // Queries' rope features: of each tile anew, since registers are few. Where rows begin is in shared memory.
  static void load_rope(const void* data, Held& held) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const char* const row = static_cast<const char*>(data) + static_cast<int64_t>(static_cast<int>(load_shared_4(at.rope_row(first_row() + 8 * h)))) * 16 + own_lane() % 4 * 4;
#pragma unroll
      for (int slice = 0; slice < ROPE / 16; ++slice)
#pragma unroll
        for (int i = 0; i < 2; ++i) held[slice][2 * i + h] = *reinterpret_cast<const volatile uint32_t*>(row + slice * 32 + i * 16);
    }
  }

  static void await(uint32_t stage, Piece piece, int tile) { barrier_wait_all(at.full(stage, piece), tile / 2 % 2); }
  // A piece of a stage is not needed any more.
  static void release(uint32_t stage, Piece piece) {
    sync_warp();
    if (own_lane() == 0) barrier_arrive(at.empty(stage, piece));
  }
  static void keep_outputs(Outputs& o) {
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) keep_in_place(o[i]);
  }
  static void scale_outputs(Outputs& o, const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) scale_rows(o[i], factor);
  }

  // Of each 128 features apart, whose sums the keys' scales multiply; rope features have none. Before(): products that were started before are done.
  template <class Before> static void make_scores(Scores& s, const void* ropes, int tile, Before before) {
    await(GROUP, OWN_PIECE, tile);
    add_block<true>(s, GROUP * BLOCKS, before);
    add_block(s, GROUP * BLOCKS + 1, [] {});
    Held held;
    load_rope(ropes, held);
    await(GROUP, OTHER_PIECE, tile);
    const uint64_t rope = depth_major<128>(keep_here(at.keys(GROUP) + ROPE_BOX * BOX));
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < ROPE / 16; ++slice) wgmma<Element, KEYS>(s, held[slice], moved(rope, slice * 32), true);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(s);
    add_block(s, OTHER * BLOCKS, [] {});
    add_block(s, OTHER * BLOCKS + 1, [] {});
  }
  // Half of a tile's keys at a time: registers are few.
  template <bool FIRST = false, class Before> static void add_block(Scores& s, int block, Before before) {
    constexpr int SOME = KEYS / 2;
    const uint64_t a = depth_major<128>(keep_here(at.q() + block * 2 * BOX));
#pragma unroll
    for (int h = 0; h < KEYS / SOME; ++h) {
      float some[SOME / 2];
      const uint64_t b = depth_major<128>(keep_here(at.keys(GROUP) + block * 2 * BOX + h * SOME * 128));
      keep_in_place(some);
      wgmma_fence();
#pragma unroll
      for (int slice = 0; slice < 8; ++slice)
        wgmma<Element, SOME>(some, moved(a, slice / 4 * BOX + slice % 4 * 32), moved(b, slice / 4 * BOX + slice % 4 * 32), slice > 0);
      wgmma_commit();
      wgmma_wait<0>();
      keep_in_place(some);
      if (h == 0) before();
      const uint32_t scales = at.scales(GROUP, block, h * SOME + own_lane() % 4 * 2);
#pragma unroll
      for (int n = 0; n < SOME / 8; ++n) {
        float scale[2];
        load_shared_two(scales + n * 32, scale);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = s[h * SOME / 2 + 4 * n + e];
          sum = (FIRST ? 0 : sum) + some[4 * n + e] * scale[e % 2];
        }
      }
    }
  }

  static uint64_t values(uint32_t stage, int block) { return row_major<128>(keep_here(at.keys(stage) + (GROUP * HALF_BOXES + block * 2) * BOX), KEYS); }

  // Adds an own tile's values.
  static void start_own(Outputs& o, const Weights& p) {
    keep_outputs(o);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) {
      const uint64_t b = values(GROUP, i);
#pragma unroll
      for (int slice = 0; slice < KEYS / 16; ++slice) wgmma<Element, HALF / BLOCKS, true>(o[i], p[i][slice], moved(b, slice * 2048), true);
    }
    wgmma_commit();
  }

  // Takes references of the other warpgroup's last tile, and starts to add its values.
  void start_others(Outputs& o, int tile) {
    sync_some(WEIGHED + OTHER, GROUPS * WARPGROUP);
    await(OTHER, OTHER_PIECE, tile);
    float factor[2];
    Rows::take_references(factor);
    if (any_in_warp(factor[0] != 1 || factor[1] != 1)) scale_outputs(o, factor);
    keep_outputs(o);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) {
      const uint64_t a = depth_major<128>(keep_here(at.weights(OTHER, i))), b = values(OTHER, i);
#pragma unroll
      for (int slice = 0; slice < KEYS / 16; ++slice) wgmma<Element, HALF / BLOCKS, false, true>(o[i], moved(a, slice * 32), moved(b, slice * 2048), true);
    }
    wgmma_commit();
  }

  // Weights times the scales of each block of features: this warpgroup's stay in registers.
  static void store_weights(const Scores& s, Weights& p) {
    sync_some(OWN + GROUP, WARPGROUP);  // rope features have been read by all warps
    const int l = own_lane(), row = me() / WARP * 16 + l % 16;
#pragma unroll
    for (int n = 0; n < KEYS / 16; ++n)
#pragma unroll
      for (int i = 0; i < SCALES; ++i) {
        float scale[2][2];
#pragma unroll
        for (int k = 0; k < 2; ++k) load_shared_two(at.scales(GROUP, i, n * 16 + k * 8 + l % 4 * 2), scale[k]);
        uint32_t words[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) words[w] = pack_pair<Element>(s[8 * n + 2 * w] * scale[w / 2][0], s[8 * n + 2 * w + 1] * scale[w / 2][1]);
        if (i / BLOCKS == GROUP)
          for (int w = 0; w < 4; ++w) p[i % BLOCKS][n][w] = words[w];
        else
          store_matrices(at.weights(GROUP, i % BLOCKS) + row * 128 + ((2 * n + l / 16) ^ row % 8) * 16, words);
      }
  }

  // Scores become weights, which go to the other warpgroup, too. Returns whether outputs are to be multiplied by `factor` first.
  bool weigh(Scores& s, Weights& p, float (&factor)[2]) {
    if constexpr (CAPPED) {
#pragma unroll
      for (int j = 0; j < KEYS / 2; ++j) s[j] = tanh_of(s[j] * to_tanh);
    }
    hide_unseen(s, at.seen(GROUP), own_lane());
    const bool follows = rows.weigh(s, to_log, factor);
    store_weights(s, p);
    Rows::store_references(own_lane());
    fence_async();
    arrive_some(WEIGHED + GROUP, GROUPS * WARPGROUP);
    return follows;
  }

  template <class MakeResults> void run(const QueryRows& q, const void* ropes, MakeResults results) {
    load_queries(q, ropes);
    Outputs o;
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
      for (int j = 0; j < HALF / BLOCKS / 2; ++j) o[i][j] = 0;
    Scores s;
    Weights p;
    const auto finish_others = [&] {
      keep_outputs(o);
      release(OTHER, OTHER_PIECE);
    };
#pragma unroll 1
    for (int tile = GROUP; tile < tiles; tile += 2) {
      float factor[2];
      bool follows;
      if constexpr (GROUP == 0) {
        if (tile > 0) start_others(o, tile - 1);
        make_scores(s, ropes, tile, [&] {
          if (tile > 0) finish_others();
        });
        follows = weigh(s, p, factor);
      } else {
        make_scores(s, ropes, tile, [] {});
        start_others(o, tile - 1);
        follows = weigh(s, p, factor);
        wgmma_wait<0>();
        finish_others();
      }
      if (follows) scale_outputs(o, factor);
      start_own(o, p);
      wgmma_wait<0>();
      keep_outputs(o);
      release(GROUP, OWN_PIECE);
    }
    if (tiles > 0 && (tiles - 1) % 2 == OTHER) {
      start_others(o, tiles - 1);
      wgmma_wait<0>();
      keep_outputs(o);
    }
    Rows::finish(results(), [&](auto store) {
#pragma unroll
      for (int i = 0; i < BLOCKS; ++i) store(o[i], GROUP * HALF + i * (HALF / BLOCKS));
    });
  }
};
