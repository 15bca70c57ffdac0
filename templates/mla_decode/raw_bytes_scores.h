// The warpgroup of Hopper's mla_decode of bytes in registers that makes scores and weights. A part of decode_raw_bytes.sm90.cu, whose constants it uses.
#pragma once

// A lane's heads are those of its columns: number 2 j + c is head 8 j + lane % 4 * 2 + c. It has two keys.
struct Scorer {
  static constexpr int OWN = HEADS / 4;
  // A weight is at most MOST, so that it is a half; where a reference follows, the largest one becomes USUAL.
  static constexpr float MOST = 15, USUAL = 7;  // logarithms
  typedef float Scores[HEADS / 2];
  typedef uint32_t Operands[2][4];  // of two slices of 16 features
  const Places& at;
  const float to_log, to_tanh;  // take scores, or their tanh, to log 2; scores to what tanh is of
  float sum[OWN];               // of the lane's own weights

  // Asked for where they are used: what is made of them would else stay in registers, which are few.
  static int own_lane() { return static_cast<int>(keep_here(thread_x())) % WARP; }
  static int own_warp() { return static_cast<int>(keep_here(thread_x())) / WARP % 4; }
  static int own_head(int n) { return n / 2 * 8 + lane() % 4 * 2 + n % 2; }
  // The key of element e of the scores.
  static int own_key(int e) { return warp() % 4 * 16 + lane() / 4 + e / 2 % 2 * 8; }
  static int head_of(int e) { return e / 4 * 2 + e % 2; }
  static void load_two(uint32_t from, float& x, float& y) {
    float two[2];
    load_shared_two(from, two);
    x = two[0], y = two[1];
  }

  // Step n: 32 features of the warp's keys from 32 n on, in two slices: the first and last 8 keys of one, then of the other.
  void load_step(uint32_t (&bytes)[4], uint32_t stage, int step) const {
    const int l = lane();
    load_matrices(bytes, at.keys(stage) + (warp() % 4 * 16 + l % 16) * 128 + step / 4 * BOX + ((l / 16 ^ l % 8) * 16 ^ step % 4 * 32));
  }
  static void widen_step(Operands& a, const uint32_t (&bytes)[4]) {
#pragma unroll
    for (int m = 0; m < 4; ++m) widen_bytes<float8_e4m3>(bytes[m], a[m / 2][m % 2], a[m / 2][m % 2 + 2]);
  }
  // Starts to add their products with queries; of the first step of a block: to set.
  void start_step(Scores& some, const Operands& a, int step) const {
    const uint64_t b = depth_major<128>(at.q() + step / 2 * HEAD_BOX + step % 2 * 64);
    if (step % 4 == 0) keep_in_place(some);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < 2; ++slice) wgmma<::half, HEADS>(some, a[slice], moved(b, slice * 32), step % 4 > 0 || slice > 0);
    wgmma_commit();
  }
  void start_rope(Scores& s, uint32_t stage) const {
    const uint64_t a = depth_major<128>(at.keys(stage) + ROPE_BOX * BOX), b = depth_major<128>(at.q() + R / 64 * HEAD_BOX);
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < ROPE / 16; ++slice) wgmma<Element, HEADS>(s, moved(a, slice * 32), moved(b, slice * 32), slice > 0);
    wgmma_commit();
  }
  // Of each 128 features apart, whose sums the keys' scales multiply; rope features have none.
  void make_scores(Scores& s, uint32_t stage, const float (&scale)[2][BLOCKS]) const {
    constexpr int STEPS = R / 32;
    Scores some;
    Operands a[2];
    uint32_t bytes[2][4];
    start_rope(s, stage);
    load_step(bytes[0], stage, 0);
    load_step(bytes[1], stage, 1);
    widen_step(a[0], bytes[0]);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      start_step(some, a[step % 2], step);
      if (step + 2 < STEPS) load_step(bytes[step % 2], stage, step + 2);
      if (step + 1 < STEPS) {
        if (step % 4 > 0) wgmma_wait<1>();  // the step before, whose operands these were
        widen_step(a[(step + 1) % 2], bytes[(step + 1) % 2]);
      }
      if (step % 4 == 3) {
        wgmma_wait<0>();
        if (step == 3) keep_in_place(s);
        keep_in_place(some);
#pragma unroll
        for (int e = 0; e < HEADS / 2; ++e) s[e] += some[e] * scale[e / 2 % 2][step / 4];
      }
    }
  }
  void load_scales(float (&scale)[2][BLOCKS], uint32_t stage) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t x[4];
      load_shared_16(at.scales(stage) + own_key(2 * h) * 16, x);
#pragma unroll
      for (int i = 0; i < BLOCKS; ++i) scale[h][i] = __uint_as_float(x[i]);
    }
  }

  // A key's scales as 2^exponent times halves, which are far from the end of their range.
  struct Split {
    float exponent[2], inverse[2];  // of 2^exponent
  };
  Split split_scales(const float (&scale)[2][BLOCKS], uint32_t turn) const {
    Split split;
    const int block = own_lane() % 4, key = own_warp() * 16 + own_lane() / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = 0;
#pragma unroll
      for (int i = 0; i < BLOCKS; ++i) largest = larger_of(largest, size_of(scale[h][i]));
      const int exponent = exponent_of(largest, 60) - 6;
      split.exponent[h] = static_cast<float>(exponent), split.inverse[h] = power_of_two(-exponent);
      const float own = block < 2 ? block == 0 ? scale[h][0] : scale[h][1] : block == 2 ? scale[h][2] : scale[h][3];
      store_shared_2(at.ratios(turn, block) + Places::ratio_of(key + 8 * h), static_cast<uint16_t>(pack_pair<half>(own * split.inverse[h], 0)));
    }
    return split;
  }

  // Of each own head the largest, or the sum, of the lanes that have it. Combine is associative.
  template <class Combine> void combine_all(float (&x)[OWN], Combine combine) const {
#pragma unroll
    for (int n = 0; n < OWN; ++n)
#pragma unroll
      for (int mask = 4; mask < WARP; mask *= 2) x[n] = combine(x[n], shuffle_xor(x[n], mask));
    if (lane() < 4)
#pragma unroll
      for (int n = 0; n < OWN; n += 2) store_shared_two(at.largest(warp() % 4) + own_head(n) * 4, {{x[n], x[n + 1]}});
    sync_some(SCORING, WARPGROUP);
#pragma unroll
    for (int n = 0; n < OWN; n += 2) {
      load_two(at.largest(0) + own_head(n) * 4, x[n], x[n + 1]);
#pragma unroll
      for (int w = 1; w < 4; ++w) {
        float y[2];
        load_shared_two(at.largest(w) + own_head(n) * 4, y);
        x[n] = combine(x[n], y[0]), x[n + 1] = combine(x[n + 1], y[1]);
      }
    }
  }
  // Whether x holds in some thread of the warpgroup, which all call it.
  static bool any_in_group(bool x) {
    uint32_t any;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 p, %1, 0;\nbarrier.red.or.pred q, %2, 128, p;\nselp.b32 %0, 1, 0, q;\n}"
                 : "=r"(any) : "r"(static_cast<uint32_t>(x)), "n"(static_cast<int>(SCORING)) : "memory");
    return any;
  }

  // References that are too low follow; those who add values get the factors of their sums.
  void follow(float (&reference)[OWN], float (&largest)[OWN], uint32_t turn) {
    combine_all(largest, [](float x, float y) { return larger_of(x, y); });
    const bool stores = warp() % 4 == 0 && lane() < 4;
#pragma unroll
    for (int n = 0; n < OWN; n += 2) {
      float factor[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float old = reference[n + c];
        reference[n + c] = largest[n + c] > old + MOST ? largest[n + c] - USUAL : old;
        factor[c] = exp2_of(old - reference[n + c]), sum[n + c] *= factor[c];
      }
      if (stores) {
        store_shared_two(at.references() + own_head(n) * 4, {{reference[n], reference[n + 1]}});
        store_shared_two(at.factors(turn) + own_head(n) * 4, {{factor[0], factor[1]}});
      }
    }
    sync_some(SCORING, WARPGROUP);
  }

  // Scores become weights, of keys that are seen: bits 0 and 8 are those of this lane's.
  void weigh(Scores& s, uint32_t seen, const Split& split, uint32_t turn) {
    float reference[OWN], largest[OWN];
    bool ahead = false;
#pragma unroll
    for (int n = 0; n < OWN; n += 2) {
      load_two(at.references() + own_head(n) * 4, reference[n], reference[n + 1]);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& score = s[2 * n + 2 * h + c];
          score = (CAPPED ? tanh_of(score * to_tanh) : score) * to_log + split.exponent[h];
          if (!(seen >> 8 * h & 1)) score = -INFINITE;
        }
        largest[n + c] = larger_of(s[2 * n + c], s[2 * n + 2 + c]);
        ahead = ahead || largest[n + c] > reference[n + c] + MOST;
      }
    }
    const bool follows = any_in_group(ahead);
    if (thread_x() % WARPGROUP == 0) store_shared_4(at.follows(turn), follows);
    if (follows) follow(reference, largest, turn);
#pragma unroll
    for (int e = 0; e < HEADS / 2; ++e) s[e] = exp2_of(s[e] - reference[head_of(e)]), sum[head_of(e)] += s[e] * split.inverse[e / 2 % 2];
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
    if (lane() == 0) barrier_arrive(barrier);
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
    if constexpr (GATHERED) return load_shared_4(at.seen(stage) + warp() % 4 / 2 * 4) >> (warp() % 2 * 16 + lane() / 4);
    return left >= KEYS ? 0x101 : (own_key(0) < left ? 1 : 0) | (own_key(2) < left ? 0x100 : 0);
  }

  // left: keys from the part's first one on.
  void run(int tiles, int left) {
#pragma unroll
    for (int n = 0; n < OWN; ++n) sum[n] = 0;
    if (thread_x() % WARPGROUP < HEADS) store_shared_4(at.references() + thread_x() % WARPGROUP * 4, __float_as_uint(LOWEST));
    sync_some(SCORING, WARPGROUP);
    Turn<STAGES> stage;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, left -= KEYS) {
      const uint32_t turn = tile % 2;
      barrier_wait_all(at.full(stage.at), stage.parity);
      if constexpr (GATHERED) fence_async();  // what other threads have stored before
      if (!GATHERED && left < KEYS) clear_behind(stage.at, left);
      float scale[2][BLOCKS];
      Scores s;
      load_scales(scale, stage.at);
      const uint32_t seen = seen_keys(stage.at, left);
      make_scores(s, stage.at, scale);
      arrive(at.empty(stage.at));
      barrier_wait_all(at.added(turn), tile / 2 % 2 ^ 1);
      const Split split = split_scales(scale, turn);
      weigh(s, seen, split, turn);
      store_weights(s, turn);
      fence_async();
      arrive(at.weighed(turn));
      stage.next();
    }
  }

  // What outputs are multiplied by goes where references were.
  void finish(const Results& results) {
    float reference[OWN];
#pragma unroll
    for (int n = 0; n < OWN; n += 2) load_two(at.references() + own_head(n) * 4, reference[n], reference[n + 1]);
    sync_some(SCORING, WARPGROUP);  // they have been read, and what was the largest, too
    combine_all(sum, [](float x, float y) { return x + y; });
    if (thread_x() % WARPGROUP < 4)
#pragma unroll
      for (int n = 0; n < OWN; ++n) {
        const int head = own_head(n);
        store_shared_4(at.references() + head * 4, __float_as_uint(results.parts > 1 ? 1 : sum[n] == 0 ? 0 : reciprocal(sum[n])));
        if (!results.has(head)) continue;
        if (results.parts == 1)
          results.store_lse(head, reference[n], sum[n]);
        else
          results.softmaxes[results.piece(head)] = {reference[n], sum[n]};
      }
    sync_some(CONSUMING, CONSUMERS);
  }
};
