// The warpgroups of Hopper's mla_decode of bytes that multiply. A part of decode_bytes.sm90.cu, whose constants it uses.
#pragma once

// The queries of all heads, to shared memory; zeros for those that there are not.
static inline void load_heads(const Places& at, const Element* latent, int64_t latent_stride, const Element* rope, int64_t rope_stride, int heads) {
#pragma unroll 4
  for (int i = thread_x(); i < HEADS * static_cast<int>(BOXES) * 8; i += CONSUMERS) {
    const int head = i / (BOXES * 8), chunk = i % (BOXES * 8), box = chunk / 8;
    Pack<uint32_t, 4> x{};
    if (head < heads) x = load_pack<4>(reinterpret_cast<const uint32_t*>(box < R / 64 ? latent + head * latent_stride + chunk * 8 : rope + head * rope_stride + (chunk * 8 - R)));
    store_shared_16(at.q() + box * HEAD_BOX + head * 128 + (chunk % 8 ^ head % 8) * 16, x);
  }
  fence_async();
  sync_some(1, CONSUMERS);
}

// Where outputs go.
struct Results {
  const View &out, &lse;
  float* partial;
  Softmax* softmaxes;
  int sequence, i, token, first_head, heads, part, parts;

  bool has(int head) const { return first_head + head < heads; }
  int64_t piece(int head) const { return (int64_t{token} * heads + first_head + head) * parts + part; }
  Element* row(int head) const { return static_cast<Element*>(out.data) + sequence * out.strides[0] + i * out.strides[1] + (first_head + head) * out.strides[2]; }
  void store_lse(int head, float reference, float sum) const {
    if (is_given(lse))
      static_cast<float*>(lse.data)[sequence * lse.strides[0] + (first_head + head) * lse.strides[1] + i * lse.strides[2]] = sum == 0 ? -INFINITE : reference * LN_2 + log_of(sum);
  }
};

// A lane's heads are those of its columns: number 2 j + c is head 8 j + lane % 4 * 2 + c.
struct Consumer {
  static constexpr int OWN = HEADS / 4;
  const Places& at;
  const float to_log, to_tanh;  // take scores, or their tanh, to log 2; scores to what tanh is of
  float reference[OWN], sum[OWN], o[FEATURE_TILES][HEADS / 2];
  typedef float Scores[HEADS / 2];

  static int group() { return uniform(thread_x() / WARPGROUP); }
  static int own_head(int n) { return n / 2 * 8 + lane() % 4 * 2 + n % 2; }
  // The key of element e of the scores, of the warpgroup's.
  static int own_key(int e) { return warp() % 4 * 16 + lane() / 4 + e / 2 % 2 * 8; }
  static int head_of(int e) { return e / 4 * 2 + e % 2; }

  // Slices of 16 features from `first` on.
  template <int COUNT> void start_scores(Scores& s, int group, int first) const {
    const uint64_t a = depth_major<128>(at.keys(group) + first / 4 * BOX), b = depth_major<128>(at.q() + first / 4 * HEAD_BOX);
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < COUNT; ++slice)
      wgmma<Element, HEADS>(s, moved(a, slice / 4 * BOX + slice % 4 * 32), moved(b, slice / 4 * HEAD_BOX + slice % 4 * 32), slice > 0);
    wgmma_commit();
  }
  // Of each 128 features apart, whose sums the keys' scales multiply; rope features have none.
  void multiply_keys(Scores& s, const float (&scale)[2][SCALES], int group) const {
    Scores some[2];
    start_scores<ROPE / 16>(s, group, R / 16);
    start_scores<8>(some[0], group, 0);
#pragma unroll
    for (int i = 0; i < SCALES; ++i) {
      if (i + 1 < SCALES) {
        start_scores<8>(some[(i + 1) % 2], group, 8 * (i + 1));
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
      }
      if (i == 0) keep_in_place(s);
      keep_in_place(some[i % 2]);
#pragma unroll
      for (int e = 0; e < HEADS / 2; ++e) s[e] += some[i % 2][e] * scale[e / 2 % 2][i];
    }
  }
  void load_scales(float (&scale)[2][SCALES], int group) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t x[4];
      load_shared_16(at.scales(group) + own_key(2 * h) * 16, x);
#pragma unroll
      for (int i = 0; i < SCALES; ++i) scale[h][i] = __uint_as_float(x[i]);
    }
  }
  // Of the keys of warpgroup `of` by all of this one's features.
  void multiply_values(int of) {
    const uint64_t a = row_major<128>(at.keys(of) + group() * FEATURE_TILES * BOX, KEYS);
#pragma unroll
    for (int m = 0; m < FEATURE_TILES; ++m) keep_in_place(o[m]);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < KEYS / 16; ++slice)
#pragma unroll
      for (int m = 0; m < FEATURE_TILES; ++m)
        wgmma<Element, HEADS, true>(o[m], moved(a, m * BOX + slice * 2048), moved(depth_major<128>(at.p(of, (group() * FEATURE_TILES + m) / 2)), slice * 32), true);
    wgmma_commit();
  }
  void keep_outputs() {
#pragma unroll
    for (int m = 0; m < FEATURE_TILES; ++m) keep_in_place(o[m]);
  }

  // Of each own head the largest of the lanes that have it, in all warps. Combine is associative.
  template <class Combine> void combine_all(float (&x)[OWN], Combine combine) const {
#pragma unroll
    for (int n = 0; n < OWN; ++n)
#pragma unroll
      for (int mask = 4; mask < WARP; mask *= 2) x[n] = combine(x[n], shuffle_xor(x[n], mask));
    if (lane() < 4)
#pragma unroll
      for (int n = 0; n < OWN; n += 2) store_two(at.largest(warp()) + own_head(n) * 4, x[n], x[n + 1]);
    sync_some(1, CONSUMERS);
#pragma unroll
    for (int n = 0; n < OWN; n += 2) {
      load_two(at.largest(0) + own_head(n) * 4, x[n], x[n + 1]);
#pragma unroll
      for (int w = 1; w < CONSUMER_WARPS; ++w) {
        float y[2];
        load_two(at.largest(w) + own_head(n) * 4, y[0], y[1]);
        x[n] = combine(x[n], y[0]), x[n + 1] = combine(x[n + 1], y[1]);
      }
    }
  }
  static void store_two(uint32_t to, float x, float y) { asm volatile("st.shared.v2.f32 [%0], {%1, %2};" : : "r"(to), "f"(x), "f"(y) : "memory"); }
  static void load_two(uint32_t from, float& x, float& y) { asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(from) : "memory"); }

  // Scores become weights, of keys that are seen: of this lane's first and second. Outputs follow the references.
  void weigh(Scores& s, const bool (&seen)[2]) {
    float largest[OWN];
#pragma unroll
    for (int n = 0; n < OWN; ++n) largest[n] = -INFINITE;
#pragma unroll
    for (int e = 0; e < HEADS / 2; ++e) {
      s[e] = (CAPPED ? tanh_of(s[e] * to_tanh) : s[e]) * to_log;
      if (!seen[e / 2 % 2]) s[e] = -INFINITE;
      largest[head_of(e)] = larger_of(largest[head_of(e)], s[e]);
    }
    combine_all(largest, [](float x, float y) { return larger_of(x, y); });
    float factor[OWN];
    bool changes = false;
#pragma unroll
    for (int n = 0; n < OWN; ++n) {
      const float now = largest[n] > reference[n] + HEADROOM ? largest[n] : reference[n];
      factor[n] = exp2_of(reference[n] - now), reference[n] = now, sum[n] *= factor[n];
      changes = changes || factor[n] != 1;
    }
#pragma unroll
    for (int e = 0; e < HEADS / 2; ++e) s[e] = exp2_of(s[e] - reference[head_of(e)]), sum[head_of(e)] += s[e];
    if (!any_in_warp(changes)) return;
#pragma unroll
    for (int m = 0; m < FEATURE_TILES; ++m)
#pragma unroll
      for (int e = 0; e < HEADS / 2; ++e) o[m][e] *= factor[head_of(e)];
  }
  // Weights, times factors of the lane's two keys.
  void store_weights(const Scores& s, int group, int scale, float first, float second) const {
    const int matrix = lane() / 8, row = lane() % 8;  // matrices: the first and last 8 of the warp's keys, of 8 heads, then of the next 8
#pragma unroll
    for (int j = 0; j < HEADS / 8; j += 2) {
      const uint32_t pairs[4] = {pack_pair<Element>(s[4 * j] * first, s[4 * j + 1] * first), pack_pair<Element>(s[4 * j + 2] * second, s[4 * j + 3] * second),
                                 pack_pair<Element>(s[4 * j + 4] * first, s[4 * j + 5] * first), pack_pair<Element>(s[4 * j + 6] * second, s[4 * j + 7] * second)};
      store_matrices_transposed(at.p(group, scale) + ((j + matrix / 2) * 8 + row) * 128 + ((warp() % 4 * 2 + matrix % 2) ^ row) * 16, pairs);
    }
  }
  void release(int group) const {
    sync_warp();
    if (lane() == 0) barrier_arrive(at.empty(group));
  }

  void run(int left) {
#pragma unroll
    for (int n = 0; n < OWN; ++n) reference[n] = LOWEST, sum[n] = 0;
#pragma unroll
    for (int m = 0; m < FEATURE_TILES; ++m)
#pragma unroll
      for (int e = 0; e < HEADS / 2; ++e) o[m][e] = 0;
    const int mine = group();
    uint32_t parity = 0;
#pragma unroll 1
    for (; left > 0; left -= GROUPS * KEYS, parity ^= 1) {
      const int own = left - mine * KEYS;  // keys of this warpgroup
      Scores s = {};
      bool seen[2] = {};
      float scale[2][SCALES] = {};
      if (own > 0) {
        barrier_wait_all(at.full(mine), parity);
        load_scales(scale, mine);
#pragma unroll
        for (int h = 0; h < 2; ++h) seen[h] = load_shared_4(at.seen(mine) + own_key(2 * h) / 32 * 4) >> own_key(2 * h) % 32 & 1;
        multiply_keys(s, scale, mine);
      }
      weigh(s, seen);
#pragma unroll
      for (int i = 0; i < SCALES; ++i) store_weights(s, mine, i, scale[0][i], scale[1][i]);
      fence_async();
      if (mine == 0 && left > KEYS) barrier_wait_all(at.full(1), parity);  // what the other warpgroup has seen this one need not have
      if (mine == 1) barrier_wait_all(at.full(0), parity);
      sync_some(2, CONSUMERS);
      multiply_values(0);
      if (left > KEYS) {
        multiply_values(1);
        wgmma_wait<1>();
        release(0);
      }
      wgmma_wait<0>();
      keep_outputs();
      release(left > KEYS ? 1 : 0);
    }
  }

  void finish(const Results& results) {
    sync_some(2, CONSUMERS);
    combine_all(sum, [](float x, float y) { return x + y; });
    const bool whole = results.parts == 1;
    float factor[OWN];
#pragma unroll
    for (int n = 0; n < OWN; ++n) factor[n] = whole ? sum[n] == 0 ? 0 : reciprocal(sum[n]) : 1;
#pragma unroll
    for (int m = 0; m < FEATURE_TILES; ++m)
#pragma unroll
      for (int e = 0; e < HEADS / 2; ++e) {
        const int head = own_head(head_of(e)), feature = (group() * FEATURE_TILES + m) * 64 + own_key(e);
        if (!results.has(head)) continue;
        const float x = o[m][e] * factor[head_of(e)];
        if (whole)
          results.row(head)[feature] = from_float<Element>(x);
        else
          results.partial[results.piece(head) * R + feature] = x;
      }
    if (thread_x() >= 4) return;
#pragma unroll
    for (int n = 0; n < OWN; ++n) {
      if (!results.has(own_head(n))) continue;
      if (whole)
        results.store_lse(own_head(n), reference[n], sum[n]);
      else
        results.softmaxes[results.piece(own_head(n))] = {reference[n], sum[n]};
    }
  }
};
