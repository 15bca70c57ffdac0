// A warpgroup of Hopper's mla_decode of bytes and 64 heads a block that multiplies: from scores to outputs. A part of decode_pair_bytes.sm90.cu, whose constants it uses.
#pragma once
#include "mla_decode/cache_bytes.h"
#include "mla_decode/pair_rows.h"

// GROUP 0 weighs even tiles and holds the outputs' first half; it starts with a tile's scores when it has added the tile before to its outputs. GROUP 1
// has the rest, and adds the tile before while it weighs.
template <int GROUP> struct Consumer : PairRows<GROUP> {
  using Rows = PairRows<GROUP>;
  using Rows::at, Rows::OTHER, Rows::WEIGHED, Rows::ALL, Rows::OWN, Rows::rows;
  const int tiles;         // of the part
  static uint32_t me() { return keep_here(thread_x()) % WARPGROUP; }
  static uint32_t own_lane() { return me() % WARP; }
  float to_log, to_tanh;   // take scores, or their tanh, to log 2; scores to what tanh is of
  static constexpr int BLOCKS = SCALES / 2;             // of features with a scale, of a warpgroup's outputs
  typedef float Scores[KEYS / 2];
  typedef float Outputs[BLOCKS][HALF / BLOCKS / 2];
  typedef uint32_t Weights[BLOCKS][KEYS / 16][4];

  static void load_queries(const QueryRows& q) {
    Rows::load_latent_queries(q);
#pragma unroll
    for (int n = 0; n < ROWS * 8 / (GROUPS * WARPGROUP); ++n) {
      const int place = thread_x() - COPIERS + n * GROUPS * WARPGROUP, row = place / 8, chunk = place % 8;
      store_shared_16(at.q() + ROPE_BOX * BOX + row * 128 + (chunk ^ row % 8) * 16, load_pack<4>(reinterpret_cast<const uint32_t*>(q.rope_row(row) + chunk * 8)));
    }
    fence_async();
    sync_some(ALL, GROUPS * WARPGROUP);
  }

  static void await(uint32_t stage, Piece piece, int tile) {
    barrier_wait_all(at.full(stage, piece), tile / 2 % 2);
    fence_async();  // what other threads have stored before
  }
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
  template <class Before> static void make_scores(Scores& s, int tile, Before before) {
    await(GROUP, OWN_PIECE, tile);
    add_block<true>(s, GROUP * BLOCKS, before);
    add_block(s, GROUP * BLOCKS + 1, [] {});
    await(GROUP, OTHER_PIECE, tile);
    multiply<ROPE / 16, true>(s, ROPE_BOX);
    add_block(s, OTHER * BLOCKS, [] {});
    add_block(s, OTHER * BLOCKS + 1, [] {});
  }
  template <bool FIRST = false, class Before> static void add_block(Scores& s, int block, Before before) {
    if constexpr (FIRST) {
      multiply<8>(s, block * 2);
      before();
      scale_block(block, [&](int e, float scale) { s[e] *= scale; });
    } else {
      Scores some;
      multiply<8>(some, block * 2);
      before();
      scale_block(block, [&](int e, float scale) { s[e] += some[e] * scale; });
    }
  }
  // Products of so many slices of 16 features, from a box on.
  template <int SLICES, bool ADDS = false> static void multiply(Scores& s, int box) {
    const uint64_t a = depth_major<128>(keep_here(at.q() + box * BOX)), b = depth_major<128>(keep_here(at.keys(GROUP) + box * BOX));
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
      wgmma<Element, KEYS>(s, moved(a, slice / 4 * BOX + slice % 4 * 32), moved(b, slice / 4 * BOX + slice % 4 * 32), ADDS || slice > 0);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(s);
  }
  // Does something with each element and the scale of its key.
  template <class Do> static void scale_block(int block, Do act) {
    const uint32_t scales = at.scales(GROUP, block, own_lane() % 4 * 2);
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
      if (n % 2 == 0) sync_warp();  // the compiler would load all scales at once, and run out of registers
      float scale[2];
      load_shared_two(scales + n * 32, scale);
#pragma unroll
      for (int e = 0; e < 4; ++e) act(4 * n + e, scale[e % 2]);
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
    const uint32_t l = own_lane(), row = me() / WARP * 16 + l % 16;
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

  // Scores become weights, which go to the other warpgroup, too, when before() has returned: the place of some is that of weights before. Returns whether outputs are to be multiplied by `factor` first.
  template <class Before> bool weigh(Scores& s, Weights& p, float (&factor)[2], Before before) {
    if constexpr (CAPPED) {
#pragma unroll
      for (int j = 0; j < KEYS / 2; ++j) s[j] = far_tanh_of(s[j] * to_tanh);
    }
    hide_unseen(s, at.seen(GROUP), own_lane());
    const bool follows = rows.weigh(s, to_log, factor);
    before();
    store_weights(s, p);
    Rows::store_references(own_lane());
    fence_async();
    arrive_some(WEIGHED + GROUP, GROUPS * WARPGROUP);
    return follows;
  }

  template <class MakeResults> void run(const QueryRows& q, MakeResults results) {
    load_queries(q);
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
        make_scores(s, tile, [&] {
          if (tile > 0) finish_others();
        });
        follows = weigh(s, p, factor, [] {});
      } else {
        make_scores(s, tile, [] {});
        start_others(o, tile - 1);
        follows = weigh(s, p, factor, [&] {
          wgmma_wait<0>();
          finish_others();
        });
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
