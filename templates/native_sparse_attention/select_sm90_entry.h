// Hopper vocabulary: the entry that finds sums over means and selects blocks, on wgmma: 64 means are the rows of a product, 16 query heads of
// each of a warpgroup's four tokens its columns. Means come twice, for sums and then for importance. A part of forward.sm90.cu.
#pragma once
#include "native_sparse_attention/gates.h"
#include "native_sparse_attention/mean_terms.h"
#include "native_sparse_attention/select_blocks_gpu.h"

constexpr int SELECT_GROUPS = 2, SELECT_EACH = 4, SELECT_TOKENS = SELECT_GROUPS * SELECT_EACH, SELECT_THREADS = (SELECT_GROUPS + 1) * WARPGROUP;
constexpr int SELECT_COLUMNS = SELECT_EACH * HEADS, SELECT_STAGES = 2;
constexpr uint32_t SELECT_STAGE = TERMS * KEYS * D * 2, SELECT_PANEL = SELECT_TOKENS * HEADS * 128;
constexpr uint32_t IMPORTANCE_AT = SELECT_STAGES * SELECT_STAGE + SELECT_PANEL * D / 64;
static_assert(TERMS_BYTES == SELECT_STAGE);

struct SelectNotes {
  float largest[SELECT_GROUPS][4][SELECT_COLUMNS], sum[SELECT_GROUPS][4][SELECT_COLUMNS];  // of each warp's means
  uint64_t full[SELECT_STAGES], empty[SELECT_STAGES], queries, queries_read;             // barriers
};

// The four tokens of a warpgroup. A lane's element 4 j + 2 h + c of scores: mean 16 w + g + 8 h, column 8 j + 2 t + c, of token j / 2.
struct Selector {
  uint32_t base;
  SelectNotes& notes;
  int group, first_token, block_size;
  float unit;  // of scores
  Turn<SELECT_STAGES> turn;
  typedef float MeanScores[SELECT_COLUMNS / 2];
  static constexpr int OWN = SELECT_COLUMNS / 4;  // columns of a lane; number 2 j + c
  static int column(int number) { return number / 2 * 8 + lane() % 4 * 2 + number % 2; }

  int barrier() const { return 1 + group; }
  int past(int i) const { return (first_token + i + 1) / block_size; }  // means that token i sees

  // Of means from `first` on, in the stage in turn, which is free afterwards; to the base 2.
  void find_scores(MeanScores& s, int first) {
    MeanScores rest;
    barrier_wait_all(shared_pointer(&notes.full[turn.at]), turn.parity);
    keep_in_place(s);
    keep_in_place(rest);
    const uint64_t means = depth_major<128>(base + turn.at * SELECT_STAGE);
    const uint64_t queries = depth_major<128>(base + SELECT_STAGES * SELECT_STAGE + group * SELECT_COLUMNS * 128);
    wgmma_fence();
#pragma unroll
    for (int term = 0; term < TERMS; ++term)
#pragma unroll
      for (int step = 0; step < D / 16; ++step) {
        const uint64_t a = moved(means, (TERMS - 1 - term) * (KEYS * D * 2) + step / 4 * PANEL + step % 4 * 32);
        const uint64_t b = moved(queries, step / 4 * SELECT_PANEL + step % 4 * 32);
        if (term == 0)
          wgmma<Element, SELECT_COLUMNS>(s, a, b, step > 0);
        else
          wgmma<Element, SELECT_COLUMNS>(rest, a, b, term > 1 || step > 0);
      }
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(s);
    keep_in_place(rest);
    if (lane() == 0) barrier_arrive(shared_pointer(&notes.empty[turn.at]));
    turn.next();
    const int mean = first + warp() % 4 * 16 + lane() / 4;
#pragma unroll
    for (int e = 0; e < SELECT_COLUMNS / 2; ++e)
      s[e] = mean + e / 2 % 2 * 8 < past(e / 8) ? (s[e] + rest[e] * (1 / FACTOR)) * unit : -INFINITE;
  }

  // Of each of the lane's columns the logarithm of its sum over `tiles` of means.
  void find_lse(float (&lse)[OWN], int tiles) {
    float reference[OWN], sum[OWN];  // of the lane's means
#pragma unroll
    for (int n = 0; n < OWN; ++n) reference[n] = LOWEST, sum[n] = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      MeanScores s;
      find_scores(s, tile * KEYS);
#pragma unroll
      for (int n = 0; n < OWN; ++n) {
        const float x = s[n / 2 * 4 + n % 2], y = s[n / 2 * 4 + n % 2 + 2], now = larger_of(reference[n], larger_of(x, y));
        sum[n] = sum[n] * exp2_of(reference[n] - now) + exp2_of(x - now) + exp2_of(y - now);
        reference[n] = now;
      }
    }
#pragma unroll
    for (int n = 0; n < OWN; ++n) {
      float largest = reference[n];
#pragma unroll
      for (int mask = 4; mask < WARP; mask *= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
      float all = sum[n] * exp2_of(reference[n] - largest);
#pragma unroll
      for (int mask = 4; mask < WARP; mask *= 2) all += shuffle_xor(all, mask);
      if (lane() < 4) notes.largest[group][warp() % 4][column(n)] = largest, notes.sum[group][warp() % 4][column(n)] = all;
    }
    sync_some(barrier(), WARPGROUP);
#pragma unroll
    for (int n = 0; n < OWN; ++n) {
      float largest = LOWEST, all = 0;
#pragma unroll
      for (int w = 0; w < 4; ++w) largest = larger_of(largest, notes.largest[group][w][column(n)]);
#pragma unroll
      for (int w = 0; w < 4; ++w) all += notes.sum[group][w][column(n)] * exp2_of(notes.largest[group][w][column(n)] - largest);
      lse[n] = all == 0 ? -INFINITE : largest + log_of(all) * LOG2_E;
    }
    sync_some(barrier(), WARPGROUP);  // others may be told now
  }

  // importance [SELECT_EACH][means] += what `heads` columns of each token weigh, or is set to that.
  void add_importance(float* importance, int means, const float (&lse)[OWN], int tiles, int heads, bool are_first) {
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      MeanScores s;
      find_scores(s, tile * KEYS);
#pragma unroll
      for (int i = 0; i < SELECT_EACH; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float sum = 0;
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const int of = 4 * i + n;
            sum += column(of) % HEADS < heads ? exp2_of(s[of / 2 * 4 + 2 * h + of % 2] - lse[of]) : 0;
          }
          sum += shuffle_xor(sum, 1);
          sum += shuffle_xor(sum, 2);
          const int mean = tile * KEYS + warp() % 4 * 16 + lane() / 4 + 8 * h;
          float* const to = importance + i * means + mean;
          if (lane() % 4 == i && mean < past(i)) *to = are_first ? sum : *to + sum;
        }
    }
  }
};

// choose_blocks where the query's own block is before 32 N: what each block weighs is in registers.
template <int N> static inline void choose_few_blocks(uint32_t* bits, const float* importance, int own, int64_t count) {
  const int room = static_cast<int>(room_beside(count, own) < own ? room_beside(count, own) : own);
  const bool all = room >= own - 1;
  uint32_t order[N], least = 0;
  const auto other = [&](int i) { return 32 * i + lane() > 0 && 32 * i + lane() < own; };
#pragma unroll
  for (int i = 0; i < N; ++i) order[i] = other(i) && !all ? order_of(importance[32 * i + lane()]) : 0;
  const auto count_from_order = [&](uint32_t some) {  // above 0
    int sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += __popc(lanes_where(order[i] >= some));
    return sum;
  };
#pragma unroll 1
  for (uint32_t bit = 1u << 31; !all && bit > 0; bit >>= 1) {
    const int reach = count_from_order(least | bit);
    if (reach >= room) least |= bit;
    if (reach == room) break;
  }
  int equal = all ? 0 : room - (least < 0xffffffffu ? count_from_order(least + 1) : 0);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (32 * i > own) break;
    const int block = 32 * i + lane();
    const uint32_t same = lanes_where(other(i) && !all && order[i] == least);
    const bool fixed = block == 0 || (block == own && count > 1);
    const bool best = other(i) && (all || (room > 0 && (order[i] > least || (order[i] == least && __popc(same & ((1u << lane()) - 1)) < equal))));
    const uint32_t word = lanes_where(fixed || best);
    equal -= __popc(same);
    if (lane() == 0) bits[i] = word;
  }
  sync_warp();
}

// Block (x, y, z): SELECT_TOKENS tokens of row z of the batch, the last first, and kv head y: of each query head the logarithm of its sum over
// means, and the blocks that each token selects.
KERNEL(SELECT_THREADS, 1) select(${parameters('select')}) {
  __shared__ SelectNotes notes;
  const int heads = static_cast<int>(heads_a_kv_head), kv_head = block_y(), batch = block_z(), words = static_cast<int>(block_words);
  const int tokens = static_cast<int>(q_view.shape[1]), size = static_cast<int>(block_size), parts = (heads + HEADS - 1) / HEADS;
  const int first_token = (grid_x() - 1 - block_x()) * SELECT_TOKENS;
  const int last = first_token + SELECT_TOKENS < tokens ? first_token + SELECT_TOKENS - 1 : tokens - 1;
  const uint32_t base = (shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024;
  float* const importance = reinterpret_cast<float*>(dynamic_shared() + (base - shared_pointer(dynamic_shared())) + IMPORTANCE_AT);
  const bool selects = is_given(g_slc_view) && !is_given(block_indices_view);
  const auto chooses = [&](int token) { return selects && room_beside(named_blocks, token / size) < token / size - 1; };
  const int tiles = is_given(g_cmp_view) || chooses(last) ? ((last + 1) / size + KEYS - 1) / KEYS : 0;
  if (thread_x() == 0) {
#pragma unroll 1
    for (int i = 0; i < SELECT_STAGES; ++i) barrier_init(shared_pointer(&notes.full[i]), 1), barrier_init(shared_pointer(&notes.empty[i]), 4 * SELECT_GROUPS);
    barrier_init(shared_pointer(&notes.queries), 1);
    barrier_init(shared_pointer(&notes.queries_read), 4 * SELECT_GROUPS);
    fence_barrier_init();
  }
  sync_block();
  if (uniform(warpgroup()) == SELECT_GROUPS) {
    if (thread_x() % WARPGROUP != 0) return;
    const char* const means_here = reinterpret_cast<const char*>(mean_tiles) + (static_cast<int64_t>(batch) * (q_view.shape[2] / heads) + kv_head) * ((means + KEYS - 1) / KEYS) * TILE_BYTES;
    Turn<SELECT_STAGES> turn;
#pragma unroll 1
    for (int part = 0; part < (tiles > 0 ? parts : 0); ++part) {
      barrier_wait(shared_pointer(&notes.queries_read), part % 2 ^ 1);
      barrier_arrive_expect(shared_pointer(&notes.queries), SELECT_PANEL * D / 64);
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel)
        load_tile(base + SELECT_STAGES * SELECT_STAGE + panel * SELECT_PANEL, q_map, shared_pointer(&notes.queries), {64 * panel, kv_head * heads + part * HEADS, first_token, batch});
#pragma unroll 1
      for (int i = 0; i < (chooses(last) ? 2 : 1) * tiles; ++i, turn.next()) {
        barrier_wait(shared_pointer(&notes.empty[turn.at]), turn.parity ^ 1);
        barrier_arrive_expect(shared_pointer(&notes.full[turn.at]), SELECT_STAGE);
        load_bytes(base + turn.at * SELECT_STAGE, means_here + (i < tiles ? i : i - tiles) * static_cast<int64_t>(TILE_BYTES), SELECT_STAGE, shared_pointer(&notes.full[turn.at]));
      }
    }
    return;
  }
  const int group = uniform(warpgroup()), first = first_token + group * SELECT_EACH;
  Selector selector{base, notes, group, first, size, softmax_scale * LOG2_E, {}};
  float* const own_importance = importance + group * SELECT_EACH * means;
#pragma unroll 1
  for (int part = 0; part < (tiles > 0 ? parts : 0); ++part) {
    const int first_head = kv_head * heads + part * HEADS, count = heads - part * HEADS < HEADS ? heads - part * HEADS : HEADS;
    barrier_wait_all(shared_pointer(&notes.queries), part % 2);
    float lse[Selector::OWN];
    selector.find_lse(lse, tiles);
    if (warp() % 4 == 0 && lane() < 4 && is_given(g_cmp_view)) {
#pragma unroll
      for (int n = 0; n < Selector::OWN; ++n) {
        const int token = first + n / 4, head = Selector::column(n) % HEADS;
        if (token >= tokens || head >= count) continue;
        mean_lse[(static_cast<int64_t>(batch) * q_view.shape[2] + first_head + head) * tokens + token] = lse[n];
        store_branch_lse(branch_lse_view, batch, token, first_head + head, MEANS, lse[n] * LN_2);
      }
    }
    if (chooses(last)) selector.add_importance(own_importance, static_cast<int>(means), lse, tiles, count, part == 0);
    sync_warp();
    if (lane() == 0) barrier_arrive(shared_pointer(&notes.queries_read));
  }
  // A sum over no means, where there is not even a tile of them.
  if (tiles == 0 && is_given(g_cmp_view)) {
#pragma unroll 1
    for (int i = thread_x() % WARPGROUP; i < SELECT_EACH * heads; i += WARPGROUP) {
      const int token = first + i / heads, head = kv_head * heads + i % heads;
      if (token >= tokens) continue;
      mean_lse[(static_cast<int64_t>(batch) * q_view.shape[2] + head) * tokens + token] = -INFINITE;
      store_branch_lse(branch_lse_view, batch, token, head, MEANS, -INFINITE);
    }
  }
  sync_some(selector.barrier(), WARPGROUP);
  const int i = group * SELECT_EACH + warp() % 4, token = first_token + i;
  if (!selects || token >= tokens) return;
  uint32_t* const bits = reinterpret_cast<uint32_t*>(importance + SELECT_TOKENS * means) + i * words;
  const int own = token / size;
  if (own < 4 * WARP)
    choose_few_blocks<4>(bits, importance + i * means, own, named_blocks);
  else if (own < 16 * WARP)
    choose_few_blocks<16>(bits, importance + i * means, own, named_blocks);
  else
    choose_blocks(bits, importance + i * means, own, named_blocks);
  store_selected(selected_view, bits, batch, token, kv_head, own);
  int32_t* const to = block_bits + ((static_cast<int64_t>(batch) * (q_view.shape[2] / heads) + kv_head) * tokens + token) * words;
#pragma unroll 1
  for (int word = lane(); word < words; word += WARP) to[word] = word <= own / 32 ? static_cast<int32_t>(bits[word]) : 0;
}
