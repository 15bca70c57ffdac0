// The warpgroup of Hopper's mla_decode of bytes in registers that makes scores and weights. A part of decode_raw_bytes.sm90.cu, whose constants it uses.
#pragma once

// A lane's heads are those of its columns: number 2 j + c is head 8 j + lane % 4 * 2 + c. It has two keys.
struct Scorer {
  static constexpr int OWN = HEADS / 4;
  // A weight is at most MOST, so that it is a half; where a reference follows, the largest one becomes USUAL.
  static constexpr float MOST = 15, USUAL = 7;  // logarithms
  typedef float Scores[HEADS / 2];
  typedef uint32_t Operands[2][2][4];  // of four slices of 16 features
  const Places& at;
  const float to_log, to_tanh;  // take scores, or their tanh, to log 2; scores to what tanh is of

  // Asked for where they are used: what is made of them would else stay in registers, which are few.
  static int own_lane() { return static_cast<int>(keep_here(thread_x())) % WARP; }
  static int own_warp() { return static_cast<int>(keep_here(thread_x())) / WARP % 4; }
  static int own_head(int n) { return n / 2 * 8 + own_lane() % 4 * 2 + n % 2; }
  // The key of element e of the scores.
  static int own_key(int e) { return own_warp() * 16 + own_lane() / 4 + e / 2 % 2 * 8; }
  static int element_of(int n) { return n / 2 * 4 + n % 2; }  // of its first key; that of the second one is 2 on

  // A step has 64 features of the warp's keys, in two pairs of slices. Where heads are few, sums of all blocks grow side by side, since each product would wait for that before.
  static constexpr bool SPREAD = HEADS < 64;
  static constexpr int STEPS = R / 64;
  typedef Scores Sums[SPREAD ? BLOCKS : 1];
  // The number of 32 features.
  static constexpr int pair_of(int step, int pair) { return SPREAD ? (step % 2 * 2 + pair) * 4 + step / 2 : step * 2 + pair; }

  // Of each pair: the first and last 8 keys of a slice, then of the other. from: where the lane's part of the first one lies.
  uint32_t first_pair(uint32_t stage) const {
    const int l = own_lane();
    return at.keys(stage) + (own_warp() * 16 + l % 16) * 128 + (l / 16 ^ l % 8) * 16;
  }
  static void load_step(uint32_t (&bytes)[2][4], uint32_t from, int step) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) load_matrices(bytes[pair], (from ^ pair_of(step, pair) % 4 * 32) + pair_of(step, pair) / 4 * BOX);
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
  static void start_rope(Scores& s, uint64_t keys, uint64_t queries) {
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < ROPE / 16; ++slice) wgmma<Element, HEADS>(s, moved(keys, slice * 32), moved(queries, slice * 32), slice > 0);
    wgmma_commit();
  }
  // A key's scales as 2^exponent times halves, which are far from the end of their range.
  struct Split {
    int exponent[2];
    uint32_t ratios;  // block lane % 4's of both keys
  };
  // Each 128 features apart, whose sums the keys' scales multiply; rope features have none.
  void make_scores(Scores& s, Split& split, uint32_t stage) const {
    const uint64_t queries = depth_major<128>(at.q());
    const uint32_t from = first_pair(stage);
    Sums some;
    Operands a[2];
    constexpr int AHEAD = SPREAD ? 2 : 1;  // steps whose bytes are on their way
    uint32_t bytes[AHEAD][2][4];
#pragma unroll
    for (int step = 0; step < AHEAD; ++step) load_step(bytes[step], from, step);
    start_rope(s, depth_major<128>(at.keys(stage) + ROPE_BOX * BOX), moved(queries, R / 64 * HEAD_BOX));
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
      if (step + 1 == STEPS) split = split_scales(stage);  // while products are made
      if (!SPREAD && step % 2 == 1) add_block(s, some[0], stage, step / 2);
    }
    if constexpr (SPREAD)
#pragma unroll
      for (int i = 0; i < BLOCKS; ++i) add_block(s, some[i], stage, i);
  }
  void add_block(Scores& s, Scores& some, uint32_t stage, int block) const {
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) scale[h] = __uint_as_float(load_shared_4(at.scales(stage) + own_key(2 * h) * 16 + block * 4));
    wgmma_wait<0>();
    if (block == 0) keep_in_place(s);
    keep_in_place(some);
#pragma unroll
    for (int e = 0; e < HEADS / 2; ++e) s[e] += some[e] * scale[e / 2 % 2];
  }

  Split split_scales(uint32_t stage) const {
    Split split;
    const int block = own_lane() % 4;
    float own[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t x[BLOCKS];
      load_shared_16(at.scales(stage) + own_key(2 * h) * 16, x);
      float scale[BLOCKS], largest = 0;
#pragma unroll
      for (int i = 0; i < BLOCKS; ++i) scale[i] = __uint_as_float(x[i]), largest = larger_of(largest, size_of(scale[i]));
      split.exponent[h] = exponent_of(largest, 60) - 6;
      own[h] = (block < 2 ? block == 0 ? scale[0] : scale[1] : block == 2 ? scale[2] : scale[3]) * power_of_two(-split.exponent[h]);
    }
    split.ratios = pack_pair<half>(own[0], own[1]);
    return split;
  }
  void store_ratios(const Split& split, uint32_t turn) const {
    const uint32_t row = own_lane() / 4, to = at.ratios(turn, own_lane() % 4) + (row / 2 * 8 + own_warp() * 2) * 4 + row % 2 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) store_shared_2(to + 4 * h, static_cast<uint16_t>(split.ratios >> 16 * h));
  }

  // Of two own heads: the largest, or the sum, of the lanes of a warp that have them, and of all warps when these are there. Combine is associative.
  template <class Combine> void combine_in_warp(float (&x)[2], int n, Combine combine) const {
#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
      for (int mask = 4; mask < WARP; mask *= 2) x[c] = combine(x[c], shuffle_xor(x[c], mask));
    if (own_lane() < 4) store_shared_two(at.largest(own_warp()) + own_head(n) * 4, {{x[0], x[1]}});
  }
  template <class Combine> void combine_warps(float (&x)[2], int n, Combine combine) const {
    load_shared_two(at.largest(0) + own_head(n) * 4, x);
#pragma unroll
    for (int w = 1; w < 4; ++w) {
      float y[2];
      load_shared_two(at.largest(w) + own_head(n) * 4, y);
      x[0] = combine(x[0], y[0]), x[1] = combine(x[1], y[1]);
    }
  }
  // Whether x holds in some thread of the warpgroup, which all call it.
  static bool any_in_group(bool x) {
    uint32_t any;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 p, %1, 0;\nbarrier.red.or.pred q, %2, 128, p;\nselp.b32 %0, 1, 0, q;\n}"
                 : "=r"(any) : "r"(static_cast<uint32_t>(x)), "n"(static_cast<int>(SCORING)) : "memory");
    return any;
  }

  // Sums of the lane's own weights, two heads' at a time: in shared memory where registers are few.
  typedef float OwnSums[SPREAD ? OWN : 1];
  uint32_t sums_at(int n) const { return at.sums(n / 2) + keep_here(thread_x()) % WARPGROUP * 8; }
  void load_sums(float (&x)[2], const OwnSums& sums, int n) const {
    if constexpr (SPREAD)
      x[0] = sums[n], x[1] = sums[n + 1];
    else
      load_shared_two(sums_at(n), x);
  }
  void store_sums(OwnSums& sums, int n, float x, float y) const {
    if constexpr (SPREAD)
      sums[n] = x, sums[n + 1] = y;
    else
      store_shared_two(sums_at(n), {{x, y}});
  }

  // References that are too low follow; those who add values get the factors of their sums.
  void follow(const Scores& s, OwnSums& sums, uint32_t turn) const {
    const auto larger = [](float x, float y) { return larger_of(x, y); };
#pragma unroll
    for (int n = 0; n < OWN; n += 2) {
      float largest[2];
      for (int c = 0; c < 2; ++c) largest[c] = larger_of(s[element_of(n) + c], s[element_of(n) + c + 2]);
      combine_in_warp(largest, n, larger);
    }
    sync_some(SCORING, WARPGROUP);
#pragma unroll
    for (int n = 0; n < OWN; n += 2) {
      float largest[2], reference[2], sum[2], factor[2];
      combine_warps(largest, n, larger);
      load_shared_two(at.references() + own_head(n) * 4, reference);
      load_sums(sum, sums, n);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        factor[c] = largest[c] > reference[c] + MOST ? exp2_of(reference[c] - (largest[c] - USUAL)) : 1;
        sum[c] *= factor[c];
      }
      store_sums(sums, n, sum[0], sum[1]);
      if (own_warp() == 0 && own_lane() < 4) store_shared_two(at.factors(turn) + own_head(n) * 4, {{factor[0], factor[1]}});
    }
    sync_some(SCORING, WARPGROUP);  // references have been read
    if (own_warp() == 0 && own_lane() < 4) {
#pragma unroll
      for (int n = 0; n < OWN; n += 2) {
        float largest[2], reference[2];
        combine_warps(largest, n, larger);
        load_shared_two(at.references() + own_head(n) * 4, reference);
#pragma unroll
        for (int c = 0; c < 2; ++c)
          if (largest[c] > reference[c] + MOST) reference[c] = largest[c] - USUAL;
        store_shared_two(at.references() + own_head(n) * 4, {{reference[0], reference[1]}});
      }
    }
    sync_some(SCORING, WARPGROUP);
  }

  // Scores become weights, of keys that are seen: bits 0 and 8 are those of this lane's.
  void weigh(Scores& s, OwnSums& sums, uint32_t seen, const Split& split, uint32_t turn) const {
    bool ahead = false;
#pragma unroll
    for (int n = 0; n < OWN; n += 2) {
      float reference[2];
      load_shared_two(at.references() + own_head(n) * 4, reference);
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& score = s[element_of(n) + 2 * h + c];
          score = (CAPPED ? far_tanh_of(score * to_tanh) : score) * to_log + static_cast<float>(split.exponent[h]);
          if (!(seen >> 8 * h & 1)) score = -INFINITE;
          ahead = ahead || score > reference[c] + MOST;
        }
    }
    const bool follows = any_in_group(ahead);
    if (thread_x() % WARPGROUP == 0) store_shared_4(at.follows(turn), follows);
    if (follows) follow(s, sums, turn);
    const float inverse[2] = {power_of_two(-split.exponent[0]), power_of_two(-split.exponent[1])};
    constexpr int AT_ONCE = OWN < 8 ? OWN : 8;  // heads whose references and sums are on their way together
#pragma unroll
    for (int first = 0; first < OWN; first += AT_ONCE) {
      float reference[AT_ONCE / 2][2], sum[AT_ONCE / 2][2];
#pragma unroll
      for (int n = 0; n < AT_ONCE; n += 2) load_shared_two(at.references() + own_head(first + n) * 4, reference[n / 2]);
#pragma unroll
      for (int n = 0; n < AT_ONCE; n += 2) load_sums(sum[n / 2], sums, first + n);
#pragma unroll
      for (int n = 0; n < AT_ONCE; n += 2) {
#pragma unroll
        for (int c = 0; c < 2; ++c)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float& score = s[element_of(first + n) + 2 * h + c];
            score = exp2_of(score - reference[n / 2][c]), sum[n / 2][c] += score * inverse[h];
          }
        store_sums(sums, first + n, sum[n / 2][0], sum[n / 2][1]);
      }
    }
  }
  void store_weights(const Scores& s, uint32_t turn) const {
    const int matrix = own_lane() / 8, row = own_lane() % 8, chunk = own_warp() * 2;  // matrices: the first and last 8 of the warp's keys, of 8 heads, then of the next 8
#pragma unroll
    for (int j = 0; j < HEADS / 8; j += 2) {
      uint32_t pairs[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) pairs[w] = pack_pair<half>(s[4 * j + 2 * w], s[4 * j + 2 * w + 1]);
      store_matrices_transposed(at.weights(turn) + ((j + matrix / 2) * 8 + row) * 128 + ((chunk + matrix % 2) ^ row) * 16, pairs);
    }
  }
  static void arrive(uint32_t barrier) {
    sync_warp();
    if (own_lane() == 0) barrier_arrive(barrier);
  }

  // Keys behind the last one, which may be anything, become zeros.
  void clear_behind(uint32_t stage, int left) const {
    const int thread = thread_x() % WARPGROUP;
#pragma unroll 1
    for (int i = left * 8 + thread; i < KEYS * 8; i += WARPGROUP)
#pragma unroll
      for (uint32_t box = 0; box < BLOCKS; ++box) store_shared_16(at.keys(stage) + box * BOX + i * 16, {});
    if (thread >= left && thread < KEYS) store_shared_16(at.scales(stage) + thread * 16, {});
    sync_some(SCORING, WARPGROUP);
  }
  // Bits 0 and 8: whether the lane's keys are there.
  uint32_t seen_keys(uint32_t stage, int left) const {
    if constexpr (GATHERED) return load_shared_4(at.seen(stage) + own_warp() / 2 * 4) >> (own_warp() % 2 * 16 + own_lane() / 4);
    return left >= KEYS ? 0x101 : (own_key(0) < left ? 1 : 0) | (own_key(2) < left ? 0x100 : 0);
  }

  // left: keys from the part's first one on.
  void run(int tiles, int left, OwnSums& sums) const {
#pragma unroll
    for (int n = 0; n < OWN; n += 2) store_sums(sums, n, 0, 0);
    if (thread_x() % WARPGROUP < HEADS) store_shared_4(at.references() + thread_x() % WARPGROUP * 4, __float_as_uint(LOWEST));
    sync_some(SCORING, WARPGROUP);
    Turn<STAGES> stage;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, left -= KEYS) {
      const uint32_t turn = tile % 2;
      barrier_wait_all(at.full(stage.at), stage.parity);
      if constexpr (GATHERED) fence_async();  // what other threads have stored before
      if (!GATHERED && left < KEYS) clear_behind(stage.at, left);
      Scores s;
      Split split;
      make_scores(s, split, stage.at);
      // Where heads are many, weights are handed on when the next tile's products are done: those of values would make these slower, and then leave tensor cores idle.
      if (!SPREAD && tile > 0) arrive(at.weighed(turn ^ 1));
      const uint32_t seen = seen_keys(stage.at, left);
      arrive(at.empty(stage.at));
      barrier_wait_all(at.added(turn), tile / 2 % 2 ^ 1);
      store_ratios(split, turn);
      weigh(s, sums, seen, split, turn);
      store_weights(s, turn);
      fence_async();
      if (SPREAD || tile + 1 == tiles) arrive(at.weighed(turn));
      stage.next();
    }
  }

  // References and sums of all keys go to those who add values; PAIRED: of both blocks of the cluster.
  template <bool PAIRED> void finish(const OwnSums& sums, const Results& results) const {
    const auto add = [](float x, float y) { return x + y; };
#pragma unroll
    for (int n = 0; n < OWN; n += 2) {
      float sum[2];
      load_sums(sum, sums, n);
      combine_in_warp(sum, n, add);
    }
    sync_some(SCORING, WARPGROUP);
    if constexpr (PAIRED) sync_cluster();
    const int rank = PAIRED ? cluster_rank() : 0;
    const bool counts = thread_x() % WARPGROUP < 4;
    if (counts)
#pragma unroll
      for (int n = 0; n < OWN; n += 2) {
        float reference[2], sum[2];
        load_shared_two(at.references() + own_head(n) * 4, reference);
        combine_warps(sum, n, add);
        const uint32_t to = at.softmax(rank, own_head(n));
        store_shared_16(to, {{__float_as_uint(reference[0]), __float_as_uint(sum[0]), __float_as_uint(reference[1]), __float_as_uint(sum[1])}});
        if constexpr (PAIRED)
          store_to_cluster(address_in_block(to, 1 - rank), {{__float_as_uint(reference[0]), __float_as_uint(sum[0]), __float_as_uint(reference[1]), __float_as_uint(sum[1])}});
      }
    sync_warp();
    if constexpr (PAIRED)
      sync_cluster();
    else
      sync_some(CONSUMING, CONSUMERS);
    if (!counts || rank > 0) return;
#pragma unroll
    for (int n = 0; n < OWN; ++n) {
      const int head = own_head(n);
      if (!results.has(head)) continue;
      const Softmax all = softmax_of<PAIRED>(at, head);
      if (results.parts == 1)
        results.store_lse(head, all.reference, all.sum);
      else
        results.softmaxes[results.piece(head)] = all;
    }
  }
};
