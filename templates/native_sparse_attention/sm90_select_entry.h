// Hopper vocabulary: the entry that finds sums over means and selects blocks, on wgmma: 16 query heads of a token are the rows of a warp, 64 means the
// columns. Means come twice through a ring of tiles, for sums and then for importance. A part of forward.sm90.cu, whose constants it uses.
#pragma once
#include "device/attention/softmax.h"
#include "device/matrix/fragment.h"
$if lists
#include "native_sparse_attention/block_lists_gpu.h"
$end
#include "native_sparse_attention/gates.h"
#include "native_sparse_attention/sm90_choose_blocks.h"

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

$if packed
#include "native_sparse_attention/sm90_select_groups.h"

$end
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

// Block (x, y, z): a token a warp of row z of the batch, groups x, x + grid and so on of them, the last first, and kv head y: of each query head the logarithm
// of its sum over means, and the blocks that the token selects.
KERNEL(SELECT_THREADS, SELECT_BLOCKS) select(${parameters('select')}) {
  __shared__ MeanRing ring;
  const Heads<const Element> q(q_view);
  const int heads = static_cast<int>(heads_a_kv_head), kv_head = block_y(), batch = block_z(), words = static_cast<int>(block_words);
  const int tokens = static_cast<int>(q.tokens), size = static_cast<int>(block_size), parts = (heads + ROW_HEADS - 1) / ROW_HEADS;
  const int groups = (tokens + SELECT_WARPS - 1) / SELECT_WARPS${packed ? ' + static_cast<int>(sequences)' : ''};
  const int kv_heads = static_cast<int>(q.heads) / heads, pitch = (static_cast<int>(means) + MEANS_A_TILE - 1) / MEANS_A_TILE * MEANS_A_TILE;
  const bool selects = is_given(g_slc_view) && !is_given(block_indices_view);
  const auto chooses = [&](int last) { return selects && room_beside(named_blocks, last / size) < last / size - 1; };
  const auto tiles_of = [&](int last) { return is_given(g_cmp_view) || chooses(last) ? ((last + 1) / size + MEANS_A_TILE - 1) / MEANS_A_TILE : 0; };
$if packed
  SelectSequence sequence{groups, 0, 0, 0};
  int kept = -1;  // so many tiles of the sequence stay in the ring, which has room for all; -1: they come for each group
  const auto tiles_that_stay = [&](int most) { return most <= static_cast<int>(SELECT_STAGES) ? most : -1; };
$else
  const auto last_of = [&](int group) { return (group + 1) * SELECT_WARPS < tokens ? (group + 1) * SELECT_WARPS - 1 : tokens - 1; };
  const int most = tiles_of(last_of(groups - 1 - block_x()));
  const bool stays = most <= static_cast<int>(SELECT_STAGES);
$end
  const uint32_t base = (shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024;
  if (thread_x() == 0) ring.start();
  sync_block();
  if (uniform(warpgroup()) == SELECTORS) {
    give_registers<24>();
    if (thread_x() != SELECTORS * WARPGROUP) return;
$if packed
    Turn<SELECT_STAGES> turn;
#pragma unroll 1
    for (int group = groups - 1 - block_x(); group >= 0; group -= grid_x()) {
      bool enters;
      if (!sequence.reach(enters, group, cum_seqlens, sequences, tokens)) continue;
      const int last = sequence.last_of(group);
      if (enters) kept = tiles_that_stay(tiles_of(last));
      const char* const terms = reinterpret_cast<const char*>(mean_terms) + (kv_head * tiles_of_means + first_tile_of_means(sequence.sequence, sequence.start, block_size)) * MEANS_BYTES;
#pragma unroll 1
      for (int part = 0; part < (kept < 0 ? parts : enters ? 1 : 0); ++part) ring.copy(turn, base, terms, tiles_of(last), kept < 0 && chooses(last));
    }
$else
    const char* const terms = reinterpret_cast<const char*>(mean_terms) + (static_cast<int64_t>(batch) * kv_heads + kv_head) * (pitch / MEANS_A_TILE) * MEANS_BYTES;
    Turn<SELECT_STAGES> turn;
#pragma unroll 1
    for (int group = groups - 1 - block_x(); group >= 0 && !(stays && group < groups - 1 - block_x()); group -= grid_x())
#pragma unroll 1
      for (int part = 0; part < (stays ? 1 : parts); ++part) ring.copy(turn, base, terms, tiles_of(last_of(group)), !stays && chooses(last_of(group)));
$end
    return;
  }
  take_registers<SELECT_REGISTERS>();
  const int own_warp = uniform(warp());
  Turn<SELECT_STAGES> turn;
#pragma unroll 1
  for (int group = groups - 1 - block_x(); group >= 0; group -= grid_x()) {
$if packed
    bool enters;
    if (!sequence.reach(enters, group, cum_seqlens, sequences, tokens)) continue;
    const int last = sequence.last_of(group), number = sequence.first_of(group) + own_warp, token = sequence.start + number, tiles = tiles_of(last);
    if (enters) {
      ring.leave(turn, kept);
      kept = tiles_that_stay(tiles);
    }
    const bool there = number < sequence.length, choose = chooses(last), stays = kept >= 0;
$else
    const int token = group * SELECT_WARPS + own_warp, tiles = tiles_of(last_of(group));
    const bool there = token < tokens, choose = chooses(last_of(group));
$end
    float* const importance = reinterpret_cast<float*>(dynamic_shared() + (base - shared_pointer(dynamic_shared())) + SELECT_STAGES * MEANS_STAGE) + own_warp * pitch;
    SelectedToken own{base, ring, there ? (${packed ? 'number' : 'token'} + 1) / size : 0, 0, softmax_scale * LOG2_E, stays, turn, ${packed ? 'turn, ' : ''}{}, {}};
#pragma unroll 1
    for (int first = 0; first < heads; first += ROW_HEADS) {
      const int first_head = kv_head * heads + first;
      own.heads = !there ? 0 : heads - first < ROW_HEADS ? heads - first : ROW_HEADS;
      own.load_query(q.row(batch, there ? token : 0, first_head), q.head_stride);
      const int next = token - static_cast<int>(grid_x()) * SELECT_WARPS;
      if (first == 0 && next >= 0) fetch_rows(q.row(batch, next, first_head), q.head_stride, heads < ROW_HEADS ? heads : ROW_HEADS);
      float lse[2];
$if selectors == 3
      own.find_all(lse, importance, tiles, choose, first == 0);
$else
      SelectedToken::MeanScores scores;
      own.find_lse(lse, scores, tiles);
$end
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int head = lane() / 4 + 8 * r;
        if (!is_given(g_cmp_view) || head >= own.heads || lane() % 4 != 0) continue;
        mean_lse[(batch * q.heads + first_head + head) * tokens + token] = lse[r];
        store_branch_lse(branch_lse_view, batch, token, first_head + head, MEANS, lse[r] * LN_2);
      }
$if selectors != 3
      if (choose) own.add_importance(importance, lse, scores, tiles, first == 0);
$end
    }
    ${packed ? 'if (!stays) turn' : 'turn'} = own.turn;
    if (!selects || !there) continue;
    sync_warp();
    uint32_t* const bits = reinterpret_cast<uint32_t*>(importance + (SELECT_WARPS - own_warp) * pitch) + own_warp * words;
    const int own_block = ${packed ? 'number' : 'token'} / size;
    if (own_block <= WARP * HELD_BLOCKS)
      choose_held_blocks<HELD_BLOCKS>(bits, importance, own_block, named_blocks);
    else
      choose_blocks<HopperWarp>(bits, importance, own_block, named_blocks);
    store_selected(selected_view, bits, batch, token, kv_head, ${packed ? 'number' : 'token'} / size);
$if lists
    store_block_list(block_lists + ((static_cast<int64_t>(batch) * kv_heads + kv_head) * tokens + token) * listed_blocks, static_cast<int>(listed_blocks), bits, own_block);
$else
    int32_t* const to = block_bits + ((static_cast<int64_t>(batch) * kv_heads + kv_head) * tokens + token) * words;
#pragma unroll 1
    for (int word = lane(); word < words; word += WARP) to[word] = word <= ${packed ? 'number' : 'token'} / size / 32 ? static_cast<int32_t>(bits[word]) : 0;
$end
    sync_warp();
  }
}
