// Hopper vocabulary: a warp's token against means on wgmma, its 16 query heads the rows, 64 means the columns: sums over means, and the importance of blocks.
// Means come twice through a ring of tiles, for sums and then for importance. A part of forward.sm90.cu, whose constants it uses.
#pragma once
#include "device/attention/softmax.h"
#include "device/matrix/fragment.h"
#include "device/sm90/sm90_uniform.h"

constexpr int MEANS_A_TILE = 64, SELECT_WARPS = 4 * SELECTORS;  // a token each
constexpr int SELECT_THREADS = (SELECTORS + 1) * WARPGROUP;     // a warp of the last warpgroup copies
constexpr int HELD_TILES = SELECTORS == 3 ? 2 : 0;              // of means there are no more than so many, whose scores stay in registers
constexpr int HELD_BLOCKS = SELECTORS == 3 ? 4 : 16;             // a query whose own block is no later than 32 times that has their importance in registers
constexpr int SELECT_REGISTERS = SELECTORS == 4 ? 112 : SELECTORS == 3 ? 160 : 104;
static_assert(SELECTORS * SELECT_REGISTERS + 24 <= (SELECTORS + 1) * (65536 / SELECT_BLOCKS / SELECT_THREADS / 8 * 8), "fewer registers or warpgroups");
// A mean, and a row of queries in bf16, are told as f16 times a power of two of their own. A mean is the sum of two f16, of which the first reach 2^14: what is
// lost is 2^-23 of a feature, or less than 2^-39 of the largest one.
constexpr int TERMS = 2, MEAN_REACH = 14;
constexpr uint32_t TERM_BYTES = MEANS_A_TILE * D * 2, TERMS_BYTES = TERMS * TERM_BYTES;
constexpr uint32_t MEANS_BYTES = TERMS_BYTES + MEANS_A_TILE * 4, MEANS_STAGE = TERMS_BYTES + 1024;  // terms, then a power of two of each mean

// Of a number with these bits, without its sign, 2^REACH over the power of two at or below it; `up`: the reciprocal of that. Both are normal numbers.
template <int REACH> static inline float power_down(uint32_t bits, float& up) {
  const uint32_t found = bits >> 23, exponent = found < 2 + REACH ? 2 + REACH : found > 252 ? 252 : found;
  up = __uint_as_float((exponent - REACH) << 23);
  return __uint_as_float((254 + REACH - exponent) << 23);
}

// Where feature d of mean `row` of a tile is among the elements of a term: 128 bytes of features side by side, swizzled, and of each 32 in the
// order in which lanes load 16 bytes of a query (SelectedToken).
static inline int place_of_mean(int row, int d) {
  const int of = d % 8, depth = d / 32 * 32 + of / 4 * 16 + of / 2 % 2 * 8 + d % 32 / 8 * 2 + of % 2;
  return depth / 64 * (MEANS_A_TILE * 64) + row * 64 + (depth % 64 / 8 ^ row % 8) * 8 + depth % 8;
}

// By a warp: rows of so many heads of a token, which are read later, come to the cache of all processors.
static inline void fetch_rows(const Element* rows, int64_t head_stride, int heads) {
  constexpr int LINES = D / 64;
  if (lane() < heads * LINES) fetch(rows + lane() / LINES * head_stride + lane() % LINES * 64);
}

struct MeanRing {
  uint64_t full[SELECT_STAGES], empty[SELECT_STAGES];  // barriers
  void start() {
#pragma unroll 1
    for (uint32_t i = 0; i < SELECT_STAGES; ++i) barrier_init(shared_pointer(&full[i]), 1), barrier_init(shared_pointer(&empty[i]), SELECT_WARPS);
    fence_barrier_init();
  }
  // `tiles` from the first on, and back again from the last but one where they come `twice`: its scores are still there. By one thread.
  void copy(Turn<SELECT_STAGES>& turn, uint32_t to, const char* terms, int tiles, bool twice) {
#pragma unroll 1
    for (int back = 0; back <= (twice ? 1 : 0); ++back)
#pragma unroll 1
      for (int i = back; i < tiles; ++i, turn.next()) {
        const int tile = back ? tiles - 1 - i : i;
        barrier_wait(shared_pointer(&empty[turn.at]), turn.parity ^ 1);
        barrier_arrive_expect(shared_pointer(&full[turn.at]), MEANS_BYTES);
        load_bytes(to + turn.at * MEANS_STAGE, terms + static_cast<int64_t>(tile) * MEANS_BYTES, MEANS_BYTES, shared_pointer(&full[turn.at]));
      }
  }
$if packed
  // By each warp: tiles that stayed are not needed any more.
  void leave(Turn<SELECT_STAGES>& turn, int tiles) {
    sync_warp();
#pragma unroll 1
    for (int i = 0; i < tiles; ++i, turn.next())
      if (lane() == 0) barrier_arrive(shared_pointer(&empty[turn.at]));
  }
$end
};

$if packed
// So many places behind another.
static inline Turn<SELECT_STAGES> turn_behind(const Turn<SELECT_STAGES>& turn, int tiles) {
  const uint32_t at = turn.at + static_cast<uint32_t>(tiles);
  return at < SELECT_STAGES ? Turn<SELECT_STAGES>{at, turn.parity} : Turn<SELECT_STAGES>{at - SELECT_STAGES, turn.parity ^ 1};
}

$end
// A warp's token, which sees `past` means. Element 4 j + 2 r + c of scores: head lane / 4 + 8 r, mean 8 j + lane % 4 * 2 + c.
struct SelectedToken {
  uint32_t tiles;
  MeanRing& ring;
  int past, heads;
  float unit;  // of scores
  bool stays;  // the ring has room for all tiles: they come once, and stay
  Turn<SELECT_STAGES> turn;
$if packed
  Turn<SELECT_STAGES> first;  // where tiles that stay begin
$end
  uint32_t query[D / 16][4];  // f16
  float power[2];             // of heads lane / 4 and that + 8: what the query, and all scores, are to be multiplied by
  typedef float MeanScores[MEANS_A_TILE / 2];

  void load_query(const Element* queries, int64_t head_stride) {
    const int l = static_cast<int>(keep_here(static_cast<uint32_t>(lane())));  // what is made of it stays in no register
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = l / 4 + 8 * r;
#pragma unroll
      for (int step = 0; step < D / 32; ++step) {
        Pack<uint32_t, 4> words{};
        if (head < heads) words = load_pack<4>(reinterpret_cast<const uint32_t*>(queries + head * head_stride + 32 * step + l % 4 * 8));
        query[2 * step][r] = words.at[0], query[2 * step][2 + r] = words.at[1];
        query[2 * step + 1][r] = words.at[2], query[2 * step + 1][2 + r] = words.at[3];
      }
      power[r] = 1;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (!IS_HALF<Element> && 8 * r < heads) narrow_query(r);  // a branch, so that both at once need no registers
  }
  void narrow_query(int r) {
    uint32_t largest = 0;  // of two halves
#pragma unroll
    for (int i = 0; i < D / 8; ++i) largest = __vmaxu2(largest, query[i / 2][i % 2 * 2 + r] & 0x7fff7fff);
    largest = __vmaxu2(largest, shuffle_xor(largest, 1));
    largest = __vmaxu2(largest, shuffle_xor(largest, 2));
    largest = largest >> 16 > (largest & 0xffff) ? largest >> 16 : largest & 0xffff;
    const float down = power_down<0>(largest << 16, power[r]);
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      uint32_t& word = query[i / 2][i % 2 * 2 + r];
      word = pack_pair<half>(__uint_as_float(word << 16) * down, __uint_as_float(word & 0xffff0000) * down);
    }
  }

  // Of a tile in shared memory. The last terms are the smallest: they are added up first.
  void start_scores(MeanScores& s, uint32_t tile) const {
#pragma unroll
    for (int term = TERMS - 1; term >= 0; --term)
#pragma unroll
      for (int step = 0; step < D / 16; ++step)
        wgmma<half, MEANS_A_TILE>(s, query[step], moved(depth_major<128>(tile), term * TERM_BYTES + step / 4 * (MEANS_A_TILE * 128) + step % 4 * 32), term < TERMS - 1 || step > 0);
  }
  // To the base 2, and to be multiplied by `power`.
  void end_scores(MeanScores& s, uint32_t tile) const {
#pragma unroll
    for (int j = 0; j < MEANS_A_TILE / 8; ++j) {
      float of_mean[2];
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(of_mean[0]), "=f"(of_mean[1]) : "r"(tile + TERMS_BYTES + 32 * j + lane() % 4 * 8) : "memory");
#pragma unroll
      for (int e = 0; e < 4; ++e) s[4 * j + e] *= of_mean[e % 2] * unit;
    }
  }
  // Of the tile in turn, which is free afterwards.
  void find_scores(MeanScores& s) {
    barrier_wait_all(shared_pointer(&ring.full[turn.at]), turn.parity);
    const uint32_t tile = tiles + turn.at * MEANS_STAGE;
    keep_in_place(s);
    wgmma_fence();
    start_scores(s, tile);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(s);
    end_scores(s, tile);
    sync_warp();
    if (lane() == 0 && !stays) barrier_arrive(shared_pointer(&ring.empty[turn.at]));
    turn.next();
  }

  // Scores of means from number `seen` on are not seen.
  static void hide_future(MeanScores& s, int seen) {
    seen -= lane() % 4 * 2;
#pragma unroll
    for (int e = 0; e < MEANS_A_TILE / 2; ++e) s[e] = e / 4 * 8 + e % 2 < seen ? s[e] : -INFINITE;
  }

  // Nor are those of heads that are not there: means may not be finite.
  void hide_heads(MeanScores& s) const {
#pragma unroll
    for (int e = 0; e < MEANS_A_TILE / 2; ++e) s[e] = lane() / 4 + e / 2 % 2 * 8 < heads ? s[e] : -INFINITE;
  }

  // Half of x, summed with the lane whose bit `mask` differs: the upper half where the bit is set.
  template <int N> static void fold(float (&x)[N], int count, int mask) {
    const bool upper = (lane() & mask) != 0;
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      if (i < count / 2) x[i] = (upper ? x[i + count / 2] : x[i]) + shuffle_xor(upper ? x[i] : x[i + count / 2], mask);
  }

  // Adds x of means 8 j + lane % 4 * 2 + c of a tile, element 2 j + c, of all lanes, to their importance, or sets it. x is used up.
  static void give_importance(float* to, float (&x)[MEANS_A_TILE / 4], bool are_first) {
    fold(x, 16, 16), fold(x, 8, 8), fold(x, 4, 4);  // means 2 lane and the next are left
    to += 2 * lane();
    to[0] = are_first ? x[0] : to[0] + x[0], to[1] = are_first ? x[1] : to[1] + x[1];
  }

  // Of heads lane / 4 and that + 8 the logarithm of the sum over `count` tiles of means. s: scores of the last tile.
  void find_lse(float (&lse)[2], MeanScores& s, int count) {
    float reference[2] = {LOWEST, LOWEST}, sum[2] = {0, 0};  // of this lane's means
    if (stays) turn = ${packed ? 'first' : '{}'};
#pragma unroll 1
    for (int first = 0; first < count * MEANS_A_TILE; first += MEANS_A_TILE) {
      find_scores(s);
      if (past - first < MEANS_A_TILE) hide_future(s, past - first);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float now = reference[r];
#pragma unroll
        for (int e = 0; e < MEANS_A_TILE / 4; ++e) now = larger_of(now, s[e / 2 * 4 + 2 * r + e % 2]);
        sum[r] *= exp2_of((reference[r] - now) * power[r]);
        const float less = larger_of(now * power[r], LOWEST);
#pragma unroll
        for (int e = 0; e < MEANS_A_TILE / 4; ++e) sum[r] += exp2_of(s[e / 2 * 4 + 2 * r + e % 2] * power[r] - less);
        reference[r] = now;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float largest = largest_of_fragment_row(reference[r]);
      float all = sum[r] * exp2_of((reference[r] - largest) * power[r]);
      all += shuffle_xor(all, 1);
      all += shuffle_xor(all, 2);
      lse[r] = all == 0 ? -INFINITE : largest * power[r] + log_of(all) * LOG2_E;
    }
  }

  // Adds to the importance (or, where these are the first heads, sets it) of all means of the tiles what the rows weigh; of those behind the
  // token's past what is of no use. From the last tile, whose scores find_lse left, to the first.
  void add_importance(float* importance, const float (&lse)[2], MeanScores& s, int count, bool are_first) {
    float less[2];  // heads that are not there weigh nothing
#pragma unroll
    for (int r = 0; r < 2; ++r) less[r] = lane() / 4 + 8 * r < heads ? lse[r] : INFINITE;
#pragma unroll 1
    for (int tile = count - 1; tile >= 0; --tile) {
      if (tile < count - 1) {
        if (stays) turn = ${packed ? 'turn_behind(first, tile)' : '{static_cast<uint32_t>(tile), 0}'};
        find_scores(s);
      }
      if (heads < ROW_HEADS) hide_heads(s);
      float x[MEANS_A_TILE / 4];
#pragma unroll
      for (int e = 0; e < MEANS_A_TILE / 4; ++e) {
        x[e] = 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) x[e] += exp2_of(s[e / 2 * 4 + 2 * r + e % 2] * power[r] - less[r]);
      }
      give_importance(importance + tile * MEANS_A_TILE, x, are_first);
    }
  }

$if selectors == 3
  // Both, the importance where `adds`, of `count` tiles by one pass.
  void find_all(float (&lse)[2], float* importance, int count, bool adds, bool are_first) {
    MeanScores s[HELD_TILES];
    float largest[2] = {LOWEST, LOWEST}, sum[2] = {0, 0};
    turn = ${packed ? 'first' : '{}'};
#pragma unroll
    for (int tile = 0; tile < HELD_TILES; ++tile) {
      if (tile < count) find_scores(s[tile]);
      if (heads < ROW_HEADS) hide_heads(s[tile]);
      const int seen = tile < count ? past - tile * MEANS_A_TILE : 0;
      if (seen < MEANS_A_TILE) hide_future(s[tile], seen);
#pragma unroll
      for (int e = 0; e < MEANS_A_TILE / 2; ++e) largest[e / 2 % 2] = larger_of(largest[e / 2 % 2], s[tile][e]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) largest[r] = larger_of(largest_of_fragment_row(largest[r]) * power[r], LOWEST);
#pragma unroll
    for (int tile = 0; tile < HELD_TILES; ++tile)
#pragma unroll
      for (int e = 0; e < MEANS_A_TILE / 2; ++e) s[tile][e] = exp2_of(s[tile][e] * power[e / 2 % 2] - largest[e / 2 % 2]), sum[e / 2 % 2] += s[tile][e];
    float by[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += shuffle_xor(sum[r], 1);
      sum[r] += shuffle_xor(sum[r], 2);
      lse[r] = sum[r] == 0 ? -INFINITE : largest[r] + log_of(sum[r]) * LOG2_E;
      by[r] = sum[r] == 0 || lane() / 4 + 8 * r >= heads ? 0 : 1 / sum[r];
    }
#pragma unroll
    for (int tile = 0; tile < HELD_TILES; ++tile) {
      if (!adds || tile >= count) continue;
      float x[MEANS_A_TILE / 4];
#pragma unroll
      for (int e = 0; e < MEANS_A_TILE / 4; ++e) x[e] = s[tile][e / 2 * 4 + e % 2] * by[0] + s[tile][e / 2 * 4 + 2 + e % 2] * by[1];
      give_importance(importance + tile * MEANS_A_TILE, x, are_first);
    }
  }
$end
};
