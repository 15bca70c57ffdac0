// Weights of scores: a part of the warpgroup of Hopper's mla_decode of bytes in registers that makes both. A part of decode_raw_bytes.sm90.cu, whose constants it uses.
#pragma once

// A lane's heads are those of its columns: number 2 j + c is head 8 j + lane % 4 * 2 + c. It has two keys.
struct Weigher {
  static constexpr int OWN = HEADS / 4;
  // A weight is at most MOST, so that it is a half; where a reference follows, the largest one becomes USUAL.
  static constexpr float MOST = 15, USUAL = 7;  // logarithms
  typedef float Scores[HEADS / 2];
  const Places& at;
  const float to_log, to_tanh;  // take scores, or their tanh, to log 2; scores to what tanh is of

  // Asked for where they are used: what is made of them would else stay in registers, which are few.
  static int own_lane() { return static_cast<int>(keep_here(thread_x())) % WARP; }
  static int own_warp() { return static_cast<int>(keep_here(thread_x())) / WARP % 4; }
  static int own_head(int n) { return n / 2 * 8 + own_lane() % 4 * 2 + n % 2; }
  // The key of element e of the scores.
  static int own_key(int e) { return own_warp() * 16 + own_lane() / 4 + e / 2 % 2 * 8; }
  static int element_of(int n) { return n / 2 * 4 + n % 2; }  // of its first key; that of the second one is 2 on

  static constexpr bool SPREAD = HEADS < 64;  // registers are many

  // Of both keys: their scales are 2^exponent times halves, which are far from the end of their range.
  struct Split {
    float exponent[2], inverse[2];  // inverse: 2^-exponent. The exponent of keys that are not seen is -infinite
$if gathered
    uint32_t ratios;                // block lane % 4's of both keys
$end
  };
$if gathered
  Split split_scales(uint32_t stage) const {
    Split split;
    const int block = own_lane() % 4;
    float own[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t x[BLOCKS];
      load_shared_16(at.scales(stage, own_key(2 * h)), x);
      float scale[BLOCKS], largest = 0;
#pragma unroll
      for (int i = 0; i < BLOCKS; ++i) scale[i] = __uint_as_float(x[i]), largest = larger_of(largest, size_of(scale[i]));
      const int exponent = exponent_of(largest, 60) - 6;
      split.exponent[h] = static_cast<float>(exponent), split.inverse[h] = power_of_two(-exponent);
      own[h] = (block < 2 ? block == 0 ? scale[0] : scale[1] : block == 2 ? scale[2] : scale[3]) * split.inverse[h];
    }
    split.ratios = pack_pair<half>(own[0], own[1]);
    return split;
  }
  void store_ratios(const Split& split, uint32_t turn) const {
    const uint32_t row = own_lane() / 4, to = at.ratios(turn, own_lane() % 4) + (row / 2 * 8 + own_warp() * 2) * 4 + row % 2 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) store_shared_2(to + 4 * h, static_cast<uint16_t>(split.ratios >> 16 * h));
  }
$else
  Split split_of(uint32_t turn) const {
    Split split;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float x[2];
      load_shared_two(at.powers(turn, own_key(2 * h)), x);
      split.exponent[h] = x[0], split.inverse[h] = x[1];
    }
    return split;
  }
$end

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

  // Of each own head the sum of the lane's own weights; and, a bit each, whether no key has been looked at: then its reference, which is 0, does not count.
  struct OwnSums {
    float of[SPREAD ? OWN : 1] = {};
    uint32_t fresh = (1u << OWN) - 1;
    bool is_fresh(int n) const { return fresh >> n & 1; }
  };

  // Two heads' at a time: in shared memory where registers are few.
  uint32_t sums_at(int n) const { return at.sums(n / 2) + keep_here(thread_x()) % WARPGROUP * 8; }
  void load_sums(float (&x)[2], const OwnSums& sums, int n) const {
    if constexpr (SPREAD)
      x[0] = sums.of[n], x[1] = sums.of[n + 1];
    else
      load_shared_two(sums_at(n), x);
  }
  void store_sums(OwnSums& sums, int n, float x, float y) const {
    if constexpr (SPREAD)
      sums.of[n] = x, sums.of[n + 1] = y;
    else
      store_shared_two(sums_at(n), {{x, y}});
  }

  // References that are too low follow; those who add values get the factors of their sums. s: logarithms of weights.
  void follow(Scores& s, OwnSums& sums, uint32_t turn) const {
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
      float largest[2], rise[2], factor[2], sum[2];
      combine_warps(largest, n, larger);
      load_sums(sum, sums, n);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const bool some = largest[c] > -INFINITE, fresh = sums.is_fresh(n + c);
        rise[c] = largest[c] > MOST || fresh && some ? largest[c] - USUAL : 0;
        factor[c] = fresh ? 1 : exp2_of(-rise[c]);
        s[element_of(n) + c] -= rise[c], s[element_of(n) + c + 2] -= rise[c], sum[c] *= factor[c];
        if (some) sums.fresh &= ~(1u << (n + c));
      }
      store_sums(sums, n, sum[0], sum[1]);
      if (own_warp() == 0 && own_lane() < 4) {
        float reference[2];
        load_shared_two(at.references() + own_head(n) * 4, reference);
        store_shared_two(at.references() + own_head(n) * 4, {{reference[0] + rise[0], reference[1] + rise[1]}});
        store_shared_two(at.factors(turn) + own_head(n) * 4, {{factor[0], factor[1]}});
      }
    }
    sync_some(SCORING, WARPGROUP);
  }

  // Scores become weights.
  void weigh(Scores& s, OwnSums& sums, const Split& split, uint32_t turn) const {
    float largest = -INFINITE;
#pragma unroll
    for (int n = 0; n < OWN; n += 2) {
      float reference[2];
      load_shared_two(at.references() + own_head(n) * 4, reference);
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& score = s[element_of(n) + 2 * h + c];
          score = (CAPPED ? far_tanh_of(score * to_tanh) : score) * to_log + (split.exponent[h] - reference[c]);
          largest = larger_of(largest, score);
        }
    }
    const bool follows = any_in_group(largest > MOST || sums.fresh != 0 && largest > -INFINITE);
    if (thread_x() % WARPGROUP == 0) store_shared_4(at.follows(turn), follows);
    if (follows) follow(s, sums, turn);
#pragma unroll
    for (int n = 0; n < OWN; n += 2) {
      float sum[2];
      load_sums(sum, sums, n);
#pragma unroll
      for (int c = 0; c < 2; ++c)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& score = s[element_of(n) + 2 * h + c];
          score = exp2_of(score), sum[c] += score * split.inverse[h];
        }
      store_sums(sums, n, sum[0], sum[1]);
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
#pragma unroll
        for (int c = 0; c < 2; ++c)
          if (sums.is_fresh(n + c)) reference[c] = LOWEST;
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
