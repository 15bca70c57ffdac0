// A warpgroup of Hopper's native sparse attention: GROUP_TOKENS tokens of 16 query heads each. Scores and outputs are made transposed, so that
// the 64 keys of a tile, and 64 features of values, are the rows of a product, the query heads its columns. A part of forward.sm90.cu.
#pragma once

// Of one of so many warps that meet at a barrier: whether x holds in any of their threads. (barrier.red.or)
static inline bool any_in_some(int id, int threads, bool x) {
  uint32_t any;
  asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 q, %3, 0;\nbarrier.cta.red.or.pred p, %1, %2, q;\nselp.b32 %0, 1, 0, p;\n}"
               : "=r"(any) : "r"(id), "r"(threads), "r"(static_cast<uint32_t>(x)) : "memory");
  return any != 0;
}

// Lane 4 g + t of warp w holds of scores [64][16], element 4 j + 2 h + c: key 16 w + g + 8 h, head 8 j + 2 t + c; of outputs the same, with
// features for keys. Column 2 j + c: that head.
typedef float Scores[HEADS / 2];
static inline int column_of(int element) { return element / 4 * 2 + element % 2; }

struct Consumer {
  const Places& at;
  Notes& notes;
  int group;  // the warpgroup
  float unit;  // of scores
  uint32_t turn = 0;  // of the two places of weights
  float output[GROUP_TOKENS][DV / 64][HEADS / 2];
  float sum[GROUP_TOKENS][4];  // of the weights of the lane's own keys

  int own_warp() const { return warp() % 4; }
  int token(int i) const { return group * GROUP_TOKENS + i; }  // of the block's
  int barrier() const { return 1 + group; }
  // Of the head of a column.
  static int head_of(int column) { return column / 2 * 8 + lane() % 4 * 2 + column % 2; }

  void start() {
#pragma unroll
    for (int i = 0; i < GROUP_TOKENS; ++i) {
#pragma unroll
      for (int h = 0; h < DV / 64; ++h)
#pragma unroll
        for (int e = 0; e < HEADS / 2; ++e) output[i][h][e] = 0;
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[i][c] = 0;
    }
#pragma unroll 1
    for (int i = thread_x() % WARPGROUP; i < GROUP_TOKENS * HEADS; i += WARPGROUP)
      notes.reference[token(i / HEADS)][i % HEADS] = LOWEST, notes.factor[token(i / HEADS)][i % HEADS] = 1;
    sync_some(barrier(), WARPGROUP);
  }

  void find_scores(Scores& s, uint32_t keys, uint32_t queries) const {
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < D / 16; ++step)
      wgmma<Element, HEADS>(s, moved(depth_major<128>(keys), step / 4 * PANEL + step % 4 * 32),
                            moved(depth_major<128>(queries), step / 4 * QUERY_PANEL + step % 4 * 32), step > 0);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(s);
  }

  // Elements in pairs of 64 rows and 16 columns, as wgmma has them, to 16 rows of 128 bytes, swizzled.
  void store_transposed(uint32_t to, const Scores& x) const {
    uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) r[i] = pack_pair<Element>(x[2 * i], x[2 * i + 1]);
    const int l = lane(), row = l / 16 * 8 + l % 8, chunk = 2 * own_warp() + l / 8 % 2;
    store_matrices_transposed(to + row * 128 + (chunk ^ row % 8) * 16, r);
  }

  // Outputs += values^T weights.
  void add_values(float (&o)[DV / 64][HEADS / 2], uint32_t values, uint32_t weights) const {
#pragma unroll
    for (int h = 0; h < DV / 64; ++h) keep_in_place(o[h]);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < KEYS / 16; ++step)
#pragma unroll
      for (int h = 0; h < DV / 64; ++h)
        wgmma<Element, HEADS, true>(o[h], moved(row_major<128>(values, KEYS), h * PANEL + step * 2048), moved(depth_major<128>(weights), step * 32), true);
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int h = 0; h < DV / 64; ++h) keep_in_place(o[h]);
  }
  // The same of the first `count` keys: the others' values may not be finite.
  void add_some_values(float (&o)[DV / 64][HEADS / 2], uint32_t values, uint32_t weights, int count) const {
    const int l = lane(), key = l / 16 * 8 + l % 8, chunk = 2 * own_warp() + l / 8 % 2;
    const uint32_t from = values + key * 128 + (chunk ^ key % 8) * 16;
#pragma unroll
    for (int h = 0; h < DV / 64; ++h) {
      uint32_t a[KEYS / 16][4];
#pragma unroll
      for (int step = 0; step < KEYS / 16; ++step) {
        load_matrices_transposed(a[step], from + h * PANEL + step * 2048);
#pragma unroll
        for (int half_of = 0; half_of < 2; ++half_of) {
          const int first = 16 * step + 8 * half_of + l % 4 * 2;
          const uint32_t kept = (first < count ? 0xffffu : 0) | (first + 1 < count ? 0xffff0000u : 0);
          a[step][2 * half_of] &= kept, a[step][2 * half_of + 1] &= kept;
        }
      }
      keep_in_place(o[h]);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < KEYS / 16; ++step) wgmma<Element, HEADS>(o[h], a[step], moved(depth_major<128>(weights), step * 32), true);
      wgmma_commit();
      wgmma_wait<0>();
      keep_in_place(o[h]);
    }
  }

  // The largest of a column, or its sum, over all keys: of each warp to `exchange`, where all find them after a barrier.
  template <class Join> void tell(const float (&column)[4], const Join& join) const {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float x = column[c];
#pragma unroll
      for (int mask = 4; mask < WARP; mask *= 2) x = join(x, shuffle_xor(x, mask));
      if (lane() < 4) notes.exchange[group][own_warp()][head_of(c)] = x;
    }
    sync_some(barrier(), WARPGROUP);
  }

  // References follow the largest scores, and what was added up follows them.
  void follow(float (&o)[DV / 64][HEADS / 2], float (&sums)[4], float (&reference)[4], int of, const Scores& s) const {
    float largest[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) largest[c] = larger_of(s[c / 2 * 4 + c % 2], s[c / 2 * 4 + c % 2 + 2]);
    tell(largest, [](float a, float b) { return larger_of(a, b); });
    float by[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float now = reference[c];
#pragma unroll
      for (int w = 0; w < 4; ++w) now = larger_of(now, notes.exchange[group][w][head_of(c)]);
      by[c] = exp2_of(reference[c] - now);
      reference[c] = now, sums[c] *= by[c];
    }
#pragma unroll
    for (int h = 0; h < DV / 64; ++h)
#pragma unroll
      for (int e = 0; e < HEADS / 2; ++e) o[h][e] *= by[column_of(e)];
    sync_some(barrier(), WARPGROUP);
    if (own_warp() == 0 && lane() < 4) {
#pragma unroll
      for (int c = 0; c < 4; ++c) notes.reference[of][head_of(c)] = reference[c];
    }
  }

  // Token i of the group, which sees the first `count` keys of the stage's tile.
  void meet(float (&o)[DV / 64][HEADS / 2], float (&sums)[4], int of, uint32_t stage, int count) {
    Scores s;
    find_scores(s, at.keys(stage), at.queries(of));
    float reference[4], factor[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) reference[c] = notes.reference[of][head_of(c)], factor[c] = notes.factor[of][head_of(c)];
    const int key = own_warp() * 16 + lane() / 4;
    bool far = false;
#pragma unroll
    for (int e = 0; e < HEADS / 2; ++e) {
      s[e] = key + e / 2 % 2 * 8 < count ? s[e] * unit : -INFINITE;
      far = far || s[e] > reference[column_of(e)] + HEADROOM;
    }
    const uint32_t weights = at.weights(group, turn & 1);
    ++turn;
    Scores w;
    const auto weigh = [&] {
#pragma unroll
      for (int e = 0; e < HEADS / 2; ++e) w[e] = exp2_of(s[e] - reference[column_of(e)]);
      Scores times;
#pragma unroll
      for (int e = 0; e < HEADS / 2; ++e) times[e] = w[e] * factor[column_of(e)];
      store_transposed(weights, times);
      fence_async();
    };
    weigh();
    if (any_in_some(barrier(), WARPGROUP, far)) {
      follow(o, sums, reference, of, s);
      weigh();
      sync_some(barrier(), WARPGROUP);
    }
#pragma unroll
    for (int e = 0; e < HEADS / 2; ++e) sums[column_of(e)] += w[e];
    if (count >= KEYS)
      add_values(o, at.values(stage), weights);
    else
      add_some_values(o, at.values(stage), weights, count);
  }

  // All tiles of a kind; `turn_of`: the ring's. end(i): keys that token i sees.
  template <class End> void meet_tiles(TileKind kind, Turn<STAGES>& ring, const End& end) {
#pragma unroll 1
    for (;; ring.next()) {
      barrier_wait_all(shared_pointer(&notes.full[ring.at]), ring.parity);
      const uint32_t wanted = uniform(notes.wanted[ring.at]);
      if (wanted >> 16 != static_cast<uint32_t>(kind)) return;
      const int first = notes.first[ring.at];
#pragma unroll
      for (int i = 0; i < GROUP_TOKENS; ++i)
        if (wanted >> token(i) & 1) meet(output[i], sum[i], token(i), ring.at, end(token(i)) - first);
      sync_warp();
      if (lane() == 0) barrier_arrive(shared_pointer(&notes.empty[ring.at]));
    }
  }

  // Of token i, after its blocks: outputs become averages times gates; log-sum-exps to the base 2 are given away. From now on
  // weights are relative to `known(head)`, times `known_factor(head)`.
  template <class Gate, class Give, class Known, class Factor>
  void change(int i, const Gate& gate, const Give& give, const Known& known, const Factor& known_factor) {
    tell(sum[i], [](float a, float b) { return a + b; });
    const int of = token(i);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float all = 0;
#pragma unroll
      for (int w = 0; w < 4; ++w) all += notes.exchange[group][w][head_of(c)];
      const float by = all == 0 ? 0 : gate(head_of(c)) / all;
      if (own_warp() == 0 && lane() < 4) give(head_of(c), all == 0 ? -INFINITE : notes.reference[of][head_of(c)] + log_of(all) * LOG2_E);
#pragma unroll
      for (int h = 0; h < DV / 64; ++h)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float& o = output[i][h][c / 2 * 4 + 2 * r + c % 2];
          o = all == 0 ? 0 : o * by;
        }
    }
    sync_some(barrier(), WARPGROUP);
    if (own_warp() == 0 && lane() < 4) {
#pragma unroll
      for (int c = 0; c < 4; ++c) notes.reference[of][head_of(c)] = known(head_of(c)), notes.factor[of][head_of(c)] = known_factor(head_of(c));
    }
  }

  // `row(i)`: where head 0 of token i goes, null: nowhere.
  template <class Row> void store(const Row& row, int64_t head_stride, int heads) {
    sync_some(barrier(), WARPGROUP);  // queries have been read
#pragma unroll
    for (int i = 0; i < GROUP_TOKENS; ++i)
#pragma unroll
      for (int h = 0; h < DV / 64; ++h) store_transposed(at.queries(token(i)) + h * QUERY_PANEL, output[i][h]);
    sync_some(barrier(), WARPGROUP);
    constexpr int ACROSS = DV / 8;
#pragma unroll 1
    for (int j = thread_x() % WARPGROUP; j < GROUP_TOKENS * HEADS * ACROSS; j += WARPGROUP) {
      const int chunk = j % ACROSS, head = j / ACROSS % HEADS, i = j / (ACROSS * HEADS);
      Element* const to = row(token(i));
      if (!to || head >= heads) continue;
      const uint32_t from = at.queries(token(i)) + chunk / 8 * QUERY_PANEL + head * 128 + (chunk % 8 ^ head % 8) * 16;
      Pack<uint32_t, 4> x;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.at[0]), "=r"(x.at[1]), "=r"(x.at[2]), "=r"(x.at[3]) : "r"(from) : "memory");
      store_pack(reinterpret_cast<uint32_t*>(to + head * head_stride + chunk * 8), x);
    }
  }
};
