// Hopper vocabulary: the entries of the gradient of native sparse attention's keys, on wgmma. A block of threads has 64 keys, or means, of a block, which two
// warpgroups take through a list of tokens in turns of four, 16 query heads of each. Part of backward.sm90.cu, whose constants it uses.
//
// Scores are made transposed, S^T = K Q^T and dP^T = V dout^T, so that weights are operands, from registers, of the sums dv += P^T dout and dk += dS^T Q.
// Each warpgroup has sums of its own, which the first one adds up in the end.
#pragma once
#include "native_sparse_attention/sm90_tile_ring.h"
#include "native_sparse_attention/token_lists.h"

constexpr int TURN_TOKENS = 4, TURN_ROWS = TURN_TOKENS * ROW_HEADS, KEY_GROUPS = 2, KEY_THREADS = (KEY_GROUPS + 1) * WARPGROUP;
constexpr uint32_t TURNS_AHEAD = 4, TURN_BYTES = TURN_ROWS * 2 * (D + DV), DOUT_AT = TURN_ROWS * 2 * D;
constexpr int RULE_WARPS = 2, RULE_REGISTERS = 40, MULTIPLYING_REGISTERS = 232;

static_assert(TURNS_AHEAD % RULE_WARPS == 0);  // so that a warp waits for every phase of its places: of a barrier one cannot tell more than two apart

// What rows of a turn count, in shared memory.
struct RowRules {
  float lse[TURN_ROWS], delta[TURN_ROWS], gate[TURN_ROWS];  // sums to the base 2
  int end[TURN_TOKENS];                                     // so many keys of the tile does the token see
};
struct KeyNotes {
  RowRules rules[TURNS_AHEAD];
  uint64_t full[TURNS_AHEAD], empty[TURNS_AHEAD], keys;  // barriers

  void start() {
#pragma unroll 1
    for (uint32_t i = 0; i < TURNS_AHEAD; ++i) barrier_init(shared_pointer(&full[i]), 2), barrier_init(shared_pointer(&empty[i]), WARPGROUP / WARP);
    barrier_init(shared_pointer(&keys), 1);
    fence_barrier_init();
  }
};

// The gradient's inputs of a branch.
struct BranchInputs {
  const View &q, &lse, &gates;  // gates: not given: 1
  const float* delta;
  int64_t lse_branch;  // elements to the branch's log-sum-exps
  int branch, heads, batch, kv_head;
};

// Tokens number 0, 1, ... of a list, or of those from `first` on, each with its query heads in parts of 16: units, four a turn. Of a tile's keys a
// token sees those before end(token).
struct TokenUnits {
  const int32_t* list;  // null: those from `first` on
  int first, count, parts;
  int first_key, keys;  // of the tile
  int size;             // of a branch of means: tokens a block, else 0
$if packed
  int start;            // of a branch of means: the row of the sequence's first token; other tokens and keys are rows
$end

  int turns() const { return (count * parts + TURN_TOKENS - 1) / TURN_TOKENS; }
  // -1: none.
  int token(int unit) const {
    const int i = unit / parts;
    return i >= count ? -1 : list ? list[i] : first + i;
  }
  int end(int token) const {
    const int to = (size > 0 ? (token + 1${packed ? ' - start' : ''}) / size : token + 1) - first_key;
    return token < 0 || to < 0 ? 0 : to < keys ? to : keys;
  }
};

// Copies rows of queries and output gradients, a lane a panel of a token; rows that are none become zeros.
static inline void copy_turns(KeyNotes& notes, uint32_t stages, const TokenUnits& units, const BranchInputs& in, const TensorMap& q_map, const TensorMap& dout_map) {
  constexpr int PANELS = (D + DV) / 64;
  const int slot = lane() / 4, panel = lane() % 4, box_heads = in.heads < ROW_HEADS ? in.heads : ROW_HEADS;
  const bool of_queries = panel < D / 64;
  Turn<TURNS_AHEAD> turn;
  int next = units.token(slot);
#pragma unroll 1
  for (int i = 0; i < units.turns(); ++i, turn.next()) {
    const int unit = i * TURN_TOKENS + slot, known = next;
    next = units.token(unit + TURN_TOKENS);  // on its way while others read
    const int token = known < 0 ? static_cast<int>(in.q.shape[1]) : known, head = in.kv_head * in.heads + unit % units.parts * ROW_HEADS;  // behind the last: zeros
    barrier_wait_all(shared_pointer(&notes.empty[turn.at]), turn.parity ^ 1);
    const uint32_t full = shared_pointer(&notes.full[turn.at]), stage = stages + turn.at * TURN_BYTES;
    if (lane() == 0) barrier_arrive_expect(full, TURN_TOKENS * PANELS * box_heads * 128);
    sync_warp();
    if (slot < TURN_TOKENS && panel < PANELS)
      load_tile(stage + panel * (TURN_ROWS * 128) + slot * (ROW_HEADS * 128), of_queries ? q_map : dout_map, full, {64 * (of_queries ? panel : panel - D / 64), head, token, in.batch});
    sync_warp();
  }
}

// Every RULE_WARPS-th turn's rules, from turn `number` on, by a warp.
static inline void write_rules(KeyNotes& notes, const TokenUnits& units, const BranchInputs& in, float lse_unit, int number) {
#pragma unroll 1
  for (int i = number; i < units.turns(); i += RULE_WARPS) {
    float lse[2], delta[2], gate[2];
    int end[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = lane() + WARP * j, unit = i * TURN_TOKENS + row / ROW_HEADS, of_kv_head = unit % units.parts * ROW_HEADS + row % ROW_HEADS;
      const int token = of_kv_head < in.heads ? units.token(unit) : -1, head = in.kv_head * in.heads + of_kv_head, tokens = static_cast<int>(in.q.shape[1]);
      lse[j] = delta[j] = gate[j] = 0, end[j] = units.end(units.token(unit));
      if (token < 0) continue;
      const float sum = static_cast<const float*>(in.lse.data)[in.batch * in.lse.strides[0] + head * in.lse.strides[1] + in.lse_branch + token * in.lse.strides[in.lse.rank - 1]];
      lse[j] = sum > -INFINITE ? sum * lse_unit : 0;
      delta[j] = in.delta[((static_cast<int64_t>(in.batch) * in.q.shape[2] + head) * 3 + in.branch) * tokens + token];
      gate[j] = is_given(in.gates) ? to_float(static_cast<const Element*>(in.gates.data)[in.batch * in.gates.strides[0] + token * in.gates.strides[1] + head * in.gates.strides[2]]) : 1;
    }
    const uint32_t at = i % TURNS_AHEAD;
    barrier_wait_all(shared_pointer(&notes.empty[at]), i / TURNS_AHEAD % 2 ^ 1);
    RowRules& to = notes.rules[at];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = lane() + WARP * j;
      to.lse[row] = lse[j], to.delta[row] = delta[j], to.gate[row] = gate[j];
      if (row % ROW_HEADS == 0) to.end[row / ROW_HEADS] = end[j];
    }
    sync_warp();
    if (lane() == 0) barrier_arrive(shared_pointer(&notes.full[at]));
  }
}

// Of a warpgroup, over all of its turns.
struct KeyGradients {
  float dk[D / 2], dv[DV / 2];
  typedef float TurnScores[TURN_ROWS / 2];

  void start() {
#pragma unroll
    for (int e = 0; e < D / 2; ++e) dk[e] = 0;
#pragma unroll
    for (int e = 0; e < DV / 2; ++e) dv[e] = 0;
  }
  // Rows of 64 keys times a turn's: panels of 64 features.
  template <int FEATURES> static void start_scores(TurnScores& s, uint32_t keys, uint32_t rows) {
#pragma unroll
    for (int step = 0; step < FEATURES / 16; ++step)
      wgmma<Element, TURN_ROWS>(s, moved(depth_major<128>(keys), step / 4 * PANEL + step % 4 * 32), moved(depth_major<128>(rows), step / 4 * (TURN_ROWS * 128) + step % 4 * 32), step > 0);
  }
  // sums += weights rows, where weights are of 64 keys.
  template <int FEATURES> static void start_sums(float (&sums)[FEATURES / 2], const uint32_t (&weights)[TURN_ROWS / 16][4], uint32_t rows) {
#pragma unroll
    for (int step = 0; step < TURN_ROWS / 16; ++step)
      wgmma<Element, FEATURES, true>(sums, weights[step], moved(row_major<128>(rows, TURN_ROWS), step * 2048), true);
  }
  static void pack(uint32_t (&to)[TURN_ROWS / 16][4], const TurnScores& x) {
#pragma unroll
    for (int e = 0; e < TURN_ROWS / 4; ++e) to[e / 4][e % 4] = pack_pair<Element>(x[2 * e], x[2 * e + 1]);
  }

  // A turn, whose rows lie at `rows`; of keys and values at `tile`.
  void meet(uint32_t tile, uint32_t rows, const RowRules& rules, float unit) {
    TurnScores w, p;
    keep_in_place(w);
    keep_in_place(p);
    wgmma_fence();
    start_scores<D>(w, tile, rows);
    start_scores<DV>(p, tile + PANEL * D / 64, rows + DOUT_AT);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(w);
    keep_in_place(p);
    const int key = warp() % 4 * 16 + lane() / 4;
#pragma unroll
    for (int e = 0; e < TURN_ROWS / 2; ++e) {
      const int row = e / 4 * 8 + lane() % 4 * 2 + e % 2;
      const float weight = key + e / 2 % 2 * 8 < rules.end[e / 8] ? exp2_of(w[e] * unit - rules.lse[row]) * rules.gate[row] : 0;
      w[e] = weight;
      p[e] = weight == 0 ? 0 : weight * (p[e] - rules.delta[row]);  // what lies behind a weight of 0 may not be finite
    }
    uint32_t weights[TURN_ROWS / 16][4], slopes[TURN_ROWS / 16][4];
    pack(weights, w);
    pack(slopes, p);
    keep_in_place(dv);
    keep_in_place(dk);
    wgmma_fence();
    start_sums<DV>(dv, weights, rows + DOUT_AT);
    start_sums<D>(dk, slopes, rows);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(dv);
    keep_in_place(dk);
  }

  // add(place of two elements, the two): of keys g and g + 8 of the warp's, lane 4 g + t. [64][D + DV]
  template <class Add> void each_pair(const Add& add) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = warp() % 4 * 16 + lane() / 4 + 8 * r;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) add(key, key * (D + DV) + lane() % 4 * 2 + 8 * n, dk[4 * n + 2 * r], dk[4 * n + 2 * r + 1]);
#pragma unroll
      for (int n = 0; n < DV / 8; ++n) add(key, key * (D + DV) + D + lane() % 4 * 2 + 8 * n, dv[4 * n + 2 * r], dv[4 * n + 2 * r + 1]);
    }
  }
};

// All of the units, by all threads of the block. load_keys(address, barrier): by one thread, STAGE_BYTES of keys and values. to: [64][D + DV], of which
// `units.keys` rows are written.
template <class Load> static inline void sum_keys(const TokenUnits& units, const BranchInputs& in, const TensorMap& q_map, const TensorMap& dout_map, float softmax_scale, float* to, const Load& load_keys) {
  __shared__ KeyNotes notes;
  const uint32_t base = (shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024, stages = base + STAGE_BYTES;
  float* const other = reinterpret_cast<float*>(dynamic_shared() + (base - shared_pointer(dynamic_shared())) + STAGE_BYTES);
  if (thread_x() == 0) notes.start();
  if (in.heads < ROW_HEADS) {  // rows that no copy writes
#pragma unroll 1
    for (uint32_t i = thread_x(); i < TURNS_AHEAD * TURN_BYTES / 4; i += KEY_THREADS) other[i] = 0;
    fence_async();
  }
  sync_block();
  const int group = uniform(warpgroup());
  if (group == KEY_GROUPS) {
    give_registers<RULE_REGISTERS>();
    const int number = uniform(warp()) % 4;
    if (number == 0) {
      if (lane() == 0) {
        barrier_arrive_expect(shared_pointer(&notes.keys), STAGE_BYTES);
        load_keys(base, shared_pointer(&notes.keys));
      }
      sync_warp();
      copy_turns(notes, stages, units, in, q_map, dout_map);
    } else if (number <= RULE_WARPS) {
      write_rules(notes, units, in, LOG2_E, number - 1);
    }
    sync_block();
    return;
  }
  take_registers<MULTIPLYING_REGISTERS>();
  KeyGradients sums;
  sums.start();
  barrier_wait_all(shared_pointer(&notes.keys), 0);
#pragma unroll 1
  for (int i = group; i < units.turns(); i += KEY_GROUPS) {
    const uint32_t at = i % TURNS_AHEAD;
    barrier_wait_all(shared_pointer(&notes.full[at]), i / TURNS_AHEAD % 2);
    sums.meet(base, stages + at * TURN_BYTES, notes.rules[at], softmax_scale * LOG2_E);
    sync_warp();
    if (lane() == 0) barrier_arrive(shared_pointer(&notes.empty[at]));
  }
  const auto give = [&](int, int at, float x, float y) { other[at] = x, other[at + 1] = y; };
  // The rows of all turns have been read.
  sync_some(1, KEY_GROUPS * WARPGROUP);
  if (group == 1) sums.each_pair(give);
  sync_block();
  if (group == 1) return;
  sums.each_pair([&](int key, int at, float x, float y) {
    if (key < units.keys) store_pack(to + at, Pack<float, 2>{{x + other[at], y + other[at + 1]}});
  });
}

// Block (x, y, z): a part of a list of kv head y of row z of the batch, and 64 keys of its block.
KERNEL(KEY_THREADS, 1) differentiate_blocks(${parameters('differentiate_blocks')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tile = static_cast<int>(block_x() % tiles_a_block), number = static_cast<int>(block_x() / tiles_a_block), heads = static_cast<int>(heads_a_kv_head);
  const int tokens = static_cast<int>(q_view.shape[1]);
  const ListPart part = reinterpret_cast<const ListPart*>(list_parts)[kv_row * parts + number];
  if (part.block < 0) return;
$if packed
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, part.block, block_size, true, tokens);
  const int first = static_cast<int>(block.of.first + block.number * block_size) + tile * KEYS_A_TILE, kv_head = block_y(), batch = 0;
  const int left = static_cast<int>(block.of.first + block.of.length) - first, keys = left < KEYS_A_TILE ? left : KEYS_A_TILE;
$else
  const int first = part.block * static_cast<int>(block_size) + tile * KEYS_A_TILE, kv_head = block_y(), batch = block_z();
  const int keys = tokens - first < KEYS_A_TILE ? tokens - first : KEYS_A_TILE;
$end
  if (keys <= 0) return;
  const View none = no_view();
  sum_keys({list_tokens + kv_row * listed + part.first, 0, part.count, (heads + ROW_HEADS - 1) / ROW_HEADS, first, keys, 0${packed ? ', 0' : ''}},
           {q_view, ${gated ? 'branch_lse_view, g_slc_view' : 'lse_view, none'}, delta, ${gated ? 'BLOCKS * branch_lse_view.strides[2]' : '0'}, BLOCKS, heads, batch, kv_head}, q_map, dout_map, softmax_scale,
           block_sums + (kv_row * grid_x() + block_x()) * (KEYS_A_TILE * (D + DV)), [&](uint32_t to, uint32_t barrier) {
#pragma unroll
             for (int panel = 0; panel < D / 64; ++panel) load_tile(to + panel * PANEL, k_map, barrier, {64 * panel, kv_head, first, batch});
#pragma unroll
             for (int panel = 0; panel < DV / 64; ++panel) load_tile(to + PANEL * D / 64 + panel * PANEL, v_map, barrier, {64 * panel, kv_head, first, batch});
           });
  (void)none;
}

$if gated
// Block (x, y, z): 64 means of kv head y of row z of the batch, through mean_tokens tokens.
KERNEL(KEY_THREADS, 1) differentiate_means(${parameters('differentiate_means')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tile = static_cast<int>(block_x() % mean_tiles), part = static_cast<int>(block_x() / mean_tiles), heads = static_cast<int>(heads_a_kv_head);
$if packed
  const SequencePart own = part_of_sequence(cum_seqlens, sequences, tile, KEYS_A_TILE * block_size, true, q_view.shape[1]);
  const int size = static_cast<int>(block_size), start = static_cast<int>(own.of.first), tokens = start + static_cast<int>(own.of.length), kv_head = block_y(), batch = 0;
  const int first = static_cast<int>(own.number) * KEYS_A_TILE, left = own.of_none ? 0 : static_cast<int>(own.of.length) / size - first, keys = left < KEYS_A_TILE ? left : KEYS_A_TILE;
  if (keys <= 0) return;
  const int64_t end = (part + 1) * mean_tokens < tokens ? (part + 1) * mean_tokens : tokens, seen = start + (first + int64_t{1}) * size - 1;
$else
  const int tokens = static_cast<int>(q_view.shape[1]), size = static_cast<int>(block_size), kv_head = block_y(), batch = block_z();
  const int first = tile * KEYS_A_TILE, keys = static_cast<int>(means) - first < KEYS_A_TILE ? static_cast<int>(means) - first : KEYS_A_TILE;
  const int64_t end = (part + 1) * mean_tokens < tokens ? (part + 1) * mean_tokens : tokens, seen = (first + int64_t{1}) * size - 1;
$end
  const int64_t begin = part * mean_tokens > seen ? part * mean_tokens : seen;
  const int count = end > begin ? static_cast<int>(end - begin) : 0;
  sum_keys({nullptr, static_cast<int>(begin), count, (heads + ROW_HEADS - 1) / ROW_HEADS, first, keys, size${packed ? ', start' : ''}},
           {q_view, branch_lse_view, g_cmp_view, delta, MEANS * branch_lse_view.strides[2], MEANS, heads, batch, kv_head}, q_map, dout_map, softmax_scale,
           mean_sums + ((part * q_view.shape[0] * grid_y() + kv_row) * means + ${packed ? 'own.of.first_mean(block_size) + ' : ''}first) * (D + DV),
           [&](uint32_t to, uint32_t barrier) { load_bytes(to, reinterpret_cast<const char*>(means_in_tiles) + (kv_row * mean_tiles + tile) * STAGE_BYTES, STAGE_BYTES, barrier); });
}
$end
