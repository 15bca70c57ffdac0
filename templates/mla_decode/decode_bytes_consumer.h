// The warpgroups of Hopper's mla_decode of bytes that multiply. A part of decode_bytes.sm90.cu, whose constants it uses.
#pragma once

// The queries of all heads, to shared memory; zeros for those that there are not.
static inline void load_heads(const Places& at, const Element* latent, int64_t latent_stride, const Element* rope, int64_t rope_stride, int heads) {
  constexpr int CHUNKS = BOXES * 8, AT_ONCE = (HEADS * CHUNKS + CONSUMERS - 1) / CONSUMERS;
  Pack<uint32_t, 4> x[AT_ONCE] = {};  // all are on their way together
#pragma unroll
  for (int n = 0; n < AT_ONCE; ++n) {
    const int i = thread_x() + n * CONSUMERS, head = i / CHUNKS, feature = i % CHUNKS * 8;
    if (head < HEADS && head < heads)
      x[n] = load_pack<4>(reinterpret_cast<const uint32_t*>(feature < R ? latent + head * latent_stride + feature : rope + head * rope_stride + (feature - R)));
  }
#pragma unroll
  for (int n = 0; n < AT_ONCE; ++n) {
    const int i = thread_x() + n * CONSUMERS, head = i / CHUNKS, chunk = i % CHUNKS;
    if (head < HEADS) store_shared_16(at.q() + chunk / 8 * HEAD_BOX + head * 128 + (chunk % 8 ^ head % 8) * 16, x[n]);
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

// A lane's heads are those of its columns: number 2 j + c is head 8 j + lane % 4 * 2 + c. Tile t's scores and weights are made by warpgroup t % 2; half of the outputs'
// features are those of each. A warpgroup adds the tile before to its outputs first: so that is soon released.
template <int GROUP> struct Consumer {
  static constexpr int OWN = HEADS / 4, OTHER = 1 - GROUP;
  enum Barrier { ALL = 1, WEIGHED = 2, OWN_WARPS = 4 };  // + warpgroup, of the last two
  const Places& at;
  const float to_log, to_tanh;  // take scores, or their tanh, to log 2; scores to what tanh is of
  float reference[OWN], sum[OWN], o[FEATURE_TILES][HEADS / 2];  // references as of the last tile that was looked at; sums of the lane's own weights
  typedef float Scores[HEADS / 2];

  static int own_head(int n) { return n / 2 * 8 + lane() % 4 * 2 + n % 2; }
  // The key of element e of the scores.
  static int own_key(int e) { return warp() % 4 * 16 + lane() / 4 + e / 2 % 2 * 8; }
  static int head_of(int e) { return e / 4 * 2 + e % 2; }

  // Slices of 16 features from `first` on.
  template <int COUNT> void start_scores(Scores& s, int first) const {
    const uint64_t a = depth_major<128>(at.keys(GROUP) + first / 4 * BOX), b = depth_major<128>(at.q() + first / 4 * HEAD_BOX);
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < COUNT; ++slice)
      wgmma<Element, HEADS>(s, moved(a, slice / 4 * BOX + slice % 4 * 32), moved(b, slice / 4 * HEAD_BOX + slice % 4 * 32), slice > 0);
    wgmma_commit();
  }
  // Of each 128 features apart, whose sums the keys' scales multiply; rope features have none.
  void multiply_keys(Scores& s, const float (&scale)[2][SCALES]) const {
    Scores some[2];
    start_scores<ROPE / 16>(s, R / 16);
    start_scores<8>(some[0], 0);
#pragma unroll
    for (int i = 0; i < SCALES; ++i) {
      if (i + 1 < SCALES) {
        start_scores<8>(some[(i + 1) % 2], 8 * (i + 1));
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
  void load_scales(float (&scale)[2][SCALES]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t x[4];
      load_shared_16(at.scales(GROUP) + own_key(2 * h) * 16, x);
#pragma unroll
      for (int i = 0; i < SCALES; ++i) scale[h][i] = __uint_as_float(x[i]);
    }
  }
  // Starts to add a tile of warpgroup `of`, of this one's features.
  void multiply_values(int of) {
    const uint64_t a = row_major<128>(at.keys(of) + GROUP * FEATURE_TILES * BOX, KEYS);
    keep_outputs();
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < KEYS / 16; ++slice)
#pragma unroll
      for (int m = 0; m < FEATURE_TILES; ++m)
        wgmma<Element, HEADS, true>(o[m], moved(a, m * BOX + slice * 2048), moved(depth_major<128>(at.p(of, (GROUP * FEATURE_TILES + m) / 2)), slice * 32), true);
    wgmma_commit();
  }
  void keep_outputs() {
#pragma unroll
    for (int m = 0; m < FEATURE_TILES; ++m) keep_in_place(o[m]);
  }

  // Of each own head the largest, or the sum, of the lanes that have it, in WARPS warps from `first` on, whose barrier is `barrier`. Combine is associative.
  template <int WARPS, class Combine> void combine_all(float (&x)[OWN], int first, int barrier, Combine combine) const {
#pragma unroll
    for (int n = 0; n < OWN; ++n)
#pragma unroll
      for (int mask = 4; mask < WARP; mask *= 2) x[n] = combine(x[n], shuffle_xor(x[n], mask));
    if (lane() < 4)
#pragma unroll
      for (int n = 0; n < OWN; n += 2) store_two(at.largest(warp()) + own_head(n) * 4, x[n], x[n + 1]);
    sync_some(barrier, WARPS * WARP);
#pragma unroll
    for (int n = 0; n < OWN; n += 2) {
      load_two(at.largest(first) + own_head(n) * 4, x[n], x[n + 1]);
#pragma unroll
      for (int w = 1; w < WARPS; ++w) {
        float y[2];
        load_two(at.largest(first + w) + own_head(n) * 4, y[0], y[1]);
        x[n] = combine(x[n], y[0]), x[n + 1] = combine(x[n + 1], y[1]);
      }
    }
  }
  static void store_two(uint32_t to, float x, float y) { asm volatile("st.shared.v2.f32 [%0], {%1, %2};" : : "r"(to), "f"(x), "f"(y) : "memory"); }
  static void load_two(uint32_t from, float& x, float& y) { asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(from) : "memory"); }
  // Whether x holds in some thread of the warpgroup, which all call it.
  static bool any_in_group(bool x) {
    uint32_t any;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 p, %1, 0;\nbarrier.red.or.pred q, %2, 128, p;\nselp.b32 %0, 1, 0, q;\n}"
                 : "=r"(any) : "r"(static_cast<uint32_t>(x)), "r"(OWN_WARPS + GROUP) : "memory");
    return any;
  }

  // References become `next`; sums and outputs, which no product is being added to, follow.
  void follow(const float (&next)[OWN]) {
    float factor[OWN];
    bool changes = false;
#pragma unroll
    for (int n = 0; n < OWN; ++n) {
      factor[n] = exp2_of(reference[n] - next[n]), reference[n] = next[n], sum[n] *= factor[n];
      changes = changes || factor[n] != 1;
    }
    if (!any_in_warp(changes)) return;
#pragma unroll
    for (int m = 0; m < FEATURE_TILES; ++m)
#pragma unroll
      for (int e = 0; e < HEADS / 2; ++e) o[m][e] *= factor[head_of(e)];
  }

  // Scores become weights, of keys that are seen: of this lane's first and second.
  void weigh(Scores& s, const bool (&seen)[2]) {
    float largest[OWN];
#pragma unroll
    for (int n = 0; n < OWN; ++n) largest[n] = -INFINITE;
#pragma unroll
    for (int e = 0; e < HEADS / 2; ++e) {
      s[e] = (CAPPED ? far_tanh_of(s[e] * to_tanh) : s[e]) * to_log;
      if (!seen[e / 2 % 2]) s[e] = -INFINITE;
      largest[head_of(e)] = larger_of(largest[head_of(e)], s[e]);
    }
    bool ahead = false;
#pragma unroll
    for (int n = 0; n < OWN; ++n) ahead = ahead || largest[n] > reference[n] + HEADROOM;
    if (any_in_group(ahead)) {
      combine_all<4>(largest, 4 * GROUP, OWN_WARPS + GROUP, [](float x, float y) { return larger_of(x, y); });
#pragma unroll
      for (int n = 0; n < OWN; ++n) largest[n] = largest[n] > reference[n] + HEADROOM ? largest[n] : reference[n];
      follow(largest);
    }
#pragma unroll
    for (int e = 0; e < HEADS / 2; ++e) s[e] = exp2_of(s[e] - reference[head_of(e)]), sum[head_of(e)] += s[e];
  }
  // Weights, times factors of the lane's two keys.
  void store_weights(const Scores& s, int scale, float first, float second) const {
    const int matrix = lane() / 8, row = lane() % 8;  // matrices: the first and last 8 of the warp's keys, of 8 heads, then of the next 8
#pragma unroll
    for (int j = 0; j < HEADS / 8; j += 2) {
      const uint32_t pairs[4] = {pack_pair<Element>(s[4 * j] * first, s[4 * j + 1] * first), pack_pair<Element>(s[4 * j + 2] * second, s[4 * j + 3] * second),
                                 pack_pair<Element>(s[4 * j + 4] * first, s[4 * j + 5] * first), pack_pair<Element>(s[4 * j + 6] * second, s[4 * j + 7] * second)};
      store_matrices_transposed(at.p(GROUP, scale) + ((j + matrix / 2) * 8 + row) * 128 + ((warp() % 4 * 2 + matrix % 2) ^ row) * 16, pairs);
    }
  }
  void release(int group) const {
    sync_warp();
    if (lane() == 0) barrier_arrive(at.empty(group));
  }

  void await(int group, int tile) const {
    barrier_wait_all(at.full(group), tile / 2 % 2);
    fence_async();  // what other threads have stored before
  }
  // Takes the references of the other warpgroup's last tile, and starts to add its values.
  void start_others(int tile) {
    sync_some(WEIGHED + OTHER, CONSUMERS);
    await(OTHER, tile);  // what the other warpgroup has seen this one need not have
    float next[OWN];
#pragma unroll
    for (int n = 0; n < OWN; n += 2) load_two(at.reference(OTHER) + own_head(n) * 4, next[n], next[n + 1]);
    follow(next);
    multiply_values(OTHER);
  }
  void weigh_tile(int tile) {
    Scores s;
    float scale[2][SCALES];
    bool seen[2];
    await(GROUP, tile);
    load_scales(scale);
#pragma unroll
    for (int h = 0; h < 2; ++h) seen[h] = load_shared_4(at.seen(GROUP) + own_key(2 * h) / 32 * 4) >> own_key(2 * h) % 32 & 1;
    multiply_keys(s, scale);
    weigh(s, seen);
#pragma unroll
    for (int i = 0; i < SCALES; ++i) store_weights(s, i, scale[0][i], scale[1][i]);
    if (thread_x() % WARPGROUP < 4)
#pragma unroll
      for (int n = 0; n < OWN; n += 2) store_two(at.reference(GROUP) + own_head(n) * 4, reference[n], reference[n + 1]);
    fence_async();
    arrive_some(WEIGHED + GROUP, CONSUMERS);
    sync_some(OWN_WARPS + GROUP, WARPGROUP);
  }
  void finish_values(int group) {
    wgmma_wait<0>();
    keep_outputs();
    release(group);
  }

  void run(int tiles) {
#pragma unroll
    for (int n = 0; n < OWN; ++n) reference[n] = LOWEST, sum[n] = 0;
#pragma unroll
    for (int m = 0; m < FEATURE_TILES; ++m)
#pragma unroll
      for (int e = 0; e < HEADS / 2; ++e) o[m][e] = 0;
#pragma unroll 1
    for (int tile = GROUP; tile < tiles; tile += 2) {
      if (tile > 0) {
        start_others(tile - 1);
        finish_values(OTHER);
      }
      weigh_tile(tile);
      multiply_values(GROUP);
      finish_values(GROUP);
    }
    if (tiles > 0 && (tiles - 1) % 2 == OTHER) {
      start_others(tiles - 1);
      finish_values(OTHER);
    }
  }

  void finish(const Results& results) {
    combine_all<CONSUMER_WARPS>(sum, 0, ALL, [](float x, float y) { return x + y; });
    const bool whole = results.parts == 1;
    float factor[OWN];
#pragma unroll
    for (int n = 0; n < OWN; ++n) factor[n] = whole ? sum[n] == 0 ? 0 : reciprocal(sum[n]) : 1;
#pragma unroll
    for (int m = 0; m < FEATURE_TILES; ++m)
#pragma unroll
      for (int e = 0; e < HEADS / 2; ++e) {
        const int head = own_head(head_of(e)), feature = (GROUP * FEATURE_TILES + m) * 64 + own_key(e);
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
