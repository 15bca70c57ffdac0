// The warpgroup of Hopper's mla_decode of bytes in registers that makes scores and weights. A part of decode_raw_bytes.sm90.cu, whose constants it uses.
#pragma once
#include "mla_decode/raw_bytes_weights.h"

struct Scorer : Weigher {
  typedef uint32_t Operands[2][2][4];  // of four slices of 16 features

  // A step has 64 features of the warp's keys, in two pairs of slices. Where heads are few, sums of all blocks grow side by side, since each product would wait for that before.
  static constexpr int STEPS = R / 64;
  typedef Scores Sums[SPREAD ? BLOCKS : 1];
  // The number of 32 features.
  static constexpr int pair_of(int step, int pair) { return SPREAD ? (step % 2 * 2 + pair) * 4 + step / 2 : step * 2 + pair; }

  // Of each pair: the first and last 8 keys of a slice, then of the other. from: where the lane's part of the first one lies.
  uint32_t first_pair(uint32_t stage) const {
    const int l = own_lane();
    return at.chunk(stage, own_warp() * 16 + l % 16, l / 16);
  }
  static void load_step(uint32_t (&bytes)[2][4], uint32_t from, int step) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) load_matrices(bytes[pair], Places::pair(from, pair_of(step, pair)));
  }
  static void widen_step(Operands& a, const uint32_t (&bytes)[2][4]) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair)
#pragma unroll
      for (int m = 0; m < 4; ++m) widen_bytes<float8_e4m3>(bytes[pair][m], a[pair][m / 2][m % 2], a[pair][m / 2][m % 2 + 2]);
  }
  // Starts to add their products with queries; of the first ones of a block: to set.
  static void start_step(Sums& some, const Operands& a, uint64_t queries, int step) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int pair = SPREAD ? i % 2 : i / 2, slice = SPREAD ? i / 2 : i % 2, n = pair_of(step, pair);
      wgmma<::half, HEADS>(some[SPREAD ? n / 4 : 0], a[pair][slice], moved(queries, n / 2 * HEAD_BOX + n % 2 * 64 + slice * 32), n % 4 > 0 || slice > 0);
    }
    wgmma_commit();
  }
$if gathered
  static void start_rope(Scores& s, uint64_t keys, uint64_t queries) {
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < ROPE / 16; ++slice) wgmma<Element, HEADS>(s, moved(keys, slice * 32), moved(queries, slice * 32), slice > 0);
    wgmma_commit();
  }
$else
  // a: where the keys' rope features may stay until these products are done.
  static void start_rope(Scores& s, Operands& a, uint32_t from, uint64_t queries) {
#pragma unroll
    for (int slice = 0; slice < ROPE / 16; ++slice) load_matrices(a[slice / 2][slice % 2], from + R + BLOCKS * 4 + slice * 32);
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < ROPE / 16; ++slice) wgmma<Element, HEADS>(s, a[slice / 2][slice % 2], moved(queries, slice * 32), slice > 0);
    wgmma_commit();
  }
$end
  // Each 128 features apart, whose sums the keys' scales multiply; rope features have none.
  void make_scores(Scores& s, ${gathered ? 'Split& split, ' : ''}uint32_t stage) const {
    const uint64_t queries = depth_major<128>(at.q());
    const uint32_t from = first_pair(stage);
    Sums some;
    Operands a[2];
    constexpr int AHEAD = SPREAD ? 2 : 1;  // steps whose bytes are on their way
    uint32_t bytes[AHEAD][2][4];
#pragma unroll
    for (int step = 0; step < AHEAD; ++step) load_step(bytes[step], from, step);
$if gathered
    start_rope(s, depth_major<128>(at.keys(stage) + ROPE_BOX * BOX), moved(queries, R / 64 * HEAD_BOX));
$else
    start_rope(s, a[1], from, moved(queries, R / 64 * HEAD_BOX));
$end
    widen_step(a[0], bytes[0]);
    load_step(bytes[0], from, AHEAD);
#pragma unroll
    for (int i = 0; i < (SPREAD ? BLOCKS : 1); ++i) keep_in_place(some[i]);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      start_step(some, a[step % 2], queries, step);
      if (step + 1 < STEPS) {
        wgmma_wait<1>();  // the step before, whose operands these were
        widen_step(a[(step + 1) % 2], bytes[(step + 1) % AHEAD]);
        if (step + 1 + AHEAD < STEPS) load_step(bytes[(step + 1) % AHEAD], from, step + 1 + AHEAD);
      }
$if gathered
      if (step + 1 == STEPS) split = split_scales(stage);  // while products are made
$end
      if (!SPREAD && step % 2 == 1) add_block(s, some[0], stage, step / 2);
    }
    if constexpr (SPREAD)
#pragma unroll
      for (int i = 0; i < BLOCKS; ++i) add_block(s, some[i], stage, i);
  }
  void add_block(Scores& s, Scores& some, uint32_t stage, int block) const {
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) scale[h] = __uint_as_float(load_shared_4(at.scales(stage, own_key(2 * h)) + block * 4));
    wgmma_wait<0>();
    if (block == 0) keep_in_place(s);
    keep_in_place(some);
#pragma unroll
    for (int e = 0; e < HEADS / 2; ++e) s[e] += some[e] * scale[e / 2 % 2];
  }

  static void arrive(uint32_t barrier) {
    sync_warp();
    if (own_lane() == 0) barrier_arrive(barrier);
  }

$if not gathered
  // Keys behind the last one, which may be anything, become zeros.
  void clear_behind(uint32_t stage, int left) const {
#pragma unroll 1
    for (uint32_t i = left * KEY_ROW + thread_x() % WARPGROUP * 16; i < Places::KEY_BYTES; i += WARPGROUP * 16) store_shared_16(at.keys(stage) + i, {});
    sync_some(SCORING, WARPGROUP);
  }
$else
  // Keys that are not there get no weight.
  void hide_keys(Split& split, uint32_t stage) const {
    const uint32_t seen = load_shared_4(at.seen(stage) + own_warp() / 2 * 4) >> (own_warp() % 2 * 16 + own_lane() / 4);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if (!(seen >> 8 * h & 1)) split.exponent[h] = -INFINITE;
  }
$end
  void wait_for_keys(const Turn<STAGES>& stage, int left) const {
    barrier_wait_all(at.full(stage.at), stage.parity);
    if constexpr (GATHERED) fence_async();  // what other threads have stored before
$if not gathered
    if (left < KEYS) clear_behind(stage.at, left);
$end
  }
  void make_weights(Scores& s, OwnSums& sums, ${gathered ? 'const Split& split, ' : ''}int tile) const {
    const uint32_t turn = tile % 2;
$if gathered
    barrier_wait_all(at.added(turn), tile / 2 % 2 ^ 1);
    store_ratios(split, turn);
$else
    barrier_wait_all(at.split(turn), tile / 2 % 2);  // when those who add values have left the weights before, too
    const Split split = split_of(turn);
$end
    weigh(s, sums, split, turn);
    store_weights(s, turn);
    fence_async();
  }

  // left: keys from the part's first one on.
  void run(int tiles, int left, OwnSums& sums) const {
#pragma unroll
    for (int n = 0; n < OWN; n += 2) store_sums(sums, n, 0, 0);
    if (thread_x() % WARPGROUP < HEADS) store_shared_4(at.references() + thread_x() % WARPGROUP * 4, 0);
    sync_some(SCORING, WARPGROUP);
    Turn<STAGES> stage;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, left -= KEYS) {
      wait_for_keys(stage, left);
      Scores s;
$if gathered
      Split split;
      make_scores(s, split, stage.at);
$else
      make_scores(s, stage.at);
$end
      // Where heads are many, weights are handed on when the next tile's products are done: those of values would make these slower, and then leave tensor cores idle.
      if (!SPREAD && tile > 0) arrive(at.weighed((tile - 1) % 2));
$if gathered
      hide_keys(split, stage.at);
$end
      arrive(at.empty(stage.at));
      make_weights(s, sums, ${gathered ? 'split, ' : ''}tile);
      if (SPREAD || tile + 1 == tiles) arrive(at.weighed(tile % 2));
      stage.next();
    }
  }
};
