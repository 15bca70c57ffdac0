// flash_attention_bwd on Hopper. A block takes 128 keys of one kv head through all queries that see them, BLOCK_M queries of one query head
// (a turn) at a time: warpgroup 0 copies queries and output gradients, a turn ahead; the two others have 64 keys each.
//
// They make scores transposed, S^T = K Q^T and dP^T = V dout^T, so that the weights P^T and dS^T = P^T (dP^T - delta) are operands, from
// registers, of the sums dv += P^T dout and dk += dS^T Q. dS goes through shared memory too, where both warpgroups take it for dq: each has
// half of dS K's rows or features, and adds it to f32 sums in global memory; `finish` makes dq of them. With DEFERRED a warpgroup does the
// last turn's share of dq, so that it does not wait for the other one's dS.
//
// A value that is not finite, behind a weight of 0, can make sums NaN of keys and rows that do not see it: `finish` does those again by the
// definition.
#include "device/gpu.h"
#include "device/sm90_attention_rows.h"
#include "device/later.h"
#include "device/sums.h"
#include "device/attention_backward_plain.h"

$require D % 8 == 0 and Dv % 8 == 0 and block_m % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                     // head dim of q and k; of v and out
constexpr bool PACKED = ${packed}, CAPPED = ${capped};  // sequences end to end; soft cap
constexpr int GROUPS = 2, BLOCK_N = GROUPS * 64;        // warpgroups that multiply; keys of a block
constexpr int BLOCK_M = ${block_m};                     // queries of a turn
constexpr bool DEFERRED = ${deferred};                  // dq's share of a turn is added in the next one
constexpr bool ROOM = (D + DV) / 2 + BLOCK_M * 3 / 2 <= 184;  // registers for operands of dv's products beside what follows their start
constexpr uint32_t STAGES = 2;                          // turns in shared memory
constexpr int THREADS = (GROUPS + 1) * WARPGROUP, PREPARE_THREADS = 128, FINISH_THREADS = GROUPS * WARPGROUP;
constexpr int SHIFT = ${E == 'f16' ? 15 : 0};           // weights are scaled by 2^SHIFT: halves have few digits below 2^-14

constexpr int BOXES = (D + 63) / 64, V_BOXES = (DV + 63) / 64;  // of 64 features
constexpr uint32_t KEY_BOX = BLOCK_N * 128, QUERY_BOX = BLOCK_M * 128;
constexpr uint32_t K_BYTES = BOXES * KEY_BOX, V_BYTES = V_BOXES * KEY_BOX, Q_BYTES = BOXES * QUERY_BOX, DOUT_BYTES = V_BOXES * QUERY_BOX;
constexpr uint32_t DS_BYTES = GROUPS * QUERY_BOX, ROW_BYTES = BLOCK_M * 4;

// A warpgroup's share of a turn's dq, transposed: 64 of the features of all queries, or all features of half of the queries.
constexpr bool BY_FEATURES = D > 64;
constexpr int DQ_FEATURES = BY_FEATURES ? GROUPS * 64 : 64, DQ_QUERIES = BY_FEATURES ? BLOCK_M : BLOCK_M / GROUPS;
constexpr int DQ_CHUNKS = DQ_QUERIES / 8;
static inline int share_feature(int part) { return BY_FEATURES ? part * 64 : 0; }
static inline int share_query(int part) { return BY_FEATURES ? 0 : part * DQ_QUERIES; }
// Floats of a turn's sums: each warpgroup's, then its accumulators four at a time, then its warps and their lanes.
constexpr int DQ_SUMS = BLOCK_M * DQ_FEATURES;
static inline int sums_place(int part, int chunk, int warp_of_part) { return ((part * DQ_CHUNKS + chunk) * 4 + warp_of_part) * 128; }

// Barriers come in pairs: full, then empty.
struct Places {  // in shared memory
  uint32_t base;
  static constexpr uint32_t V = K_BYTES, Q = V + V_BYTES, DOUT = Q + STAGES * Q_BYTES, DS = DOUT + STAGES * DOUT_BYTES, LOGS = DS + 2 * DS_BYTES,
                            DELTAS = LOGS + STAGES * ROW_BYTES, BARRIERS = DELTAS + STAGES * ROW_BYTES;
  uint32_t k() const { return base; }
  uint32_t v() const { return base + V; }
  uint32_t q(uint32_t i) const { return base + Q + i * Q_BYTES; }
  uint32_t dout(uint32_t i) const { return base + DOUT + i * DOUT_BYTES; }
  uint32_t ds(uint32_t i) const { return base + DS + i * DS_BYTES; }
  uint32_t logs(uint32_t i) const { return base + LOGS + i * ROW_BYTES; }
  uint32_t deltas(uint32_t i) const { return base + DELTAS + i * ROW_BYTES; }
  uint32_t q_full(uint32_t i) const { return base + BARRIERS + 16 * i; }
  uint32_t dout_full(uint32_t i) const { return q_full(STAGES + i); }
  uint32_t ds_full(uint32_t i) const { return q_full(2 * STAGES + i); }
  uint32_t k_full() const { return q_full(3 * STAGES); }
  uint32_t v_full() const { return q_full(3 * STAGES + 1); }
};
static_assert(STAGES == 2);
static inline Pack<float, 2> load_two(uint32_t from) {  // in the order of other such words: not long before it is needed
  Pack<float, 2> x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.at[0]), "=f"(x.at[1]) : "r"(from) : "memory");
  return x;
}
static inline uint32_t empty(uint32_t full) { return full + 8; }

// What a block goes by.
struct Plan {
  Sequence sequence;
  int kv_head, first_head, first_key;
  int keys;                     // from first_key on, past the last sequence's too
  int first_step, end_step;     // BLOCK_M queries each: those of which some see some of the keys; of each query head
  int first_whole[GROUPS], end_whole[GROUPS];  // every query sees every key of the warpgroup
  int64_t first_row;            // of the first query head of the group, in the workspace
  int blocks_a_head;            // BLOCK_M rows each, in the workspace
};

// The `block`-th BLOCK_N keys (packed: of all sequences) of kv head `numbered`, where those of all rows of the batch are numbered through.
// A whole warp calls it. False: there are none.
static inline bool find_plan(const Sequences& sequences, const Visibility& visibility, const RowSpace& space, int kv_heads, int numbered,
                             int block, Plan& plan) {
  const int batch = PACKED ? 0 : numbered / kv_heads;
  plan.kv_head = numbered - batch * kv_heads;
  if (plan.kv_head >= kv_heads || (!PACKED && batch >= sequences.count)) return false;  // the last group of heads may be smaller
  Sequence sequence = sequences[batch];
  int64_t item = block, all_keys = sequence.keys;
  if (PACKED && !find_keys(sequences, item, BLOCK_N, sequence, all_keys)) return false;
  plan.sequence = sequence;
  plan.first_head = plan.kv_head * static_cast<int>(space.heads / kv_heads);
  plan.first_key = static_cast<int>(item) * BLOCK_N, plan.keys = static_cast<int>(all_keys) - plan.first_key;
  plan.first_row = space.first(sequence, plan.first_head), plan.blocks_a_head = static_cast<int>(space.rows / BLOCK_M);
  const int keys = static_cast<int>(sequence.keys), queries = static_cast<int>(sequence.queries);
  const auto seeing = [&](int key) { return seeing_queries(visibility, key, sequence.offset, queries); };
  const int end_key = plan.first_key + BLOCK_N < keys ? plan.first_key + BLOCK_N : keys;
  const RowRange of_first = seeing(plan.first_key), of_last = seeing(end_key - 1);
  const bool some = plan.first_key < keys && of_first.first < of_last.end;
  plan.first_step = some ? of_first.first / BLOCK_M : 0, plan.end_step = some ? (of_last.end + BLOCK_M - 1) / BLOCK_M : 0;
  for (int part = 0; part < GROUPS; ++part) {
    const int first = plan.first_key + part * 64, end = first + 64;
    const RowRange low = seeing(first), high = seeing(end - 1);
    plan.first_whole[part] = (high.first + BLOCK_M - 1) / BLOCK_M;
    plan.end_whole[part] = end > keys ? 0 : low.end == queries && !PACKED ? (queries + BLOCK_M - 1) / BLOCK_M : low.end / BLOCK_M;
  }
  return true;
}

// A turn: BLOCK_M queries of one query head of the group, and their stage of those in shared memory.
struct Turn {
  int number = 0, step;
  int block;  // of BLOCK_M rows, in the workspace from the group's first head on

  explicit Turn(const Plan& plan) : step(plan.first_step), block(plan.first_step) {}
  void next(const Plan& plan) {
    ++number, ++block;
    if (++step < plan.end_step) return;
    block += plan.blocks_a_head - (plan.end_step - plan.first_step);
    step = plan.first_step;
  }
  uint32_t stage() const { return number % STAGES; }
  uint32_t parity() const { return number / STAGES % 2; }
};

// Box i of 64 features, `token` of the batch's row on.
static inline void copy_box(uint32_t to, const TensorMap& map, uint32_t full, int i, int head, int64_t token, int64_t batch) {
  if constexpr (PACKED)
    load_tile(to, map, full, {64 * i, head, static_cast<int>(token)});
  else
    load_tile(to, map, full, {64 * i, head, static_cast<int>(token), static_cast<int>(batch)});
}

// All copies of a block, by one thread.
struct Producer {
  const Places& at;
  const Plan& plan;
  const float *row_lse, *row_delta;

  template <int COUNT> void copy(uint32_t to, uint32_t box, const TensorMap& map, uint32_t full, int head, int64_t token) const {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) copy_box(to + i * box, map, full, i, head, token, plan.sequence.batch);
  }
  void copy_keys(const TensorMap& k, const TensorMap& v) const {
    const int64_t token = plan.sequence.first_key + plan.first_key;
    barrier_arrive_expect(at.k_full(), K_BYTES);
    copy<BOXES>(at.k(), KEY_BOX, k, at.k_full(), plan.kv_head, token);
    barrier_arrive_expect(at.v_full(), V_BYTES);
    copy<V_BOXES>(at.v(), KEY_BOX, v, at.v_full(), plan.kv_head, token);
  }
  void copy_turn(const Turn& turn, const TensorMap& q, const TensorMap& dout) const {
    const int64_t token = plan.sequence.first_query + turn.step * BLOCK_M, row = plan.first_row + int64_t{turn.block} * BLOCK_M;
    const int head = plan.first_head + turn.block / plan.blocks_a_head;
    const uint32_t stage = turn.stage(), q_full = at.q_full(stage), dout_full = at.dout_full(stage);
    barrier_wait(empty(q_full), turn.parity() ^ 1);
    barrier_arrive_expect(q_full, Q_BYTES + ROW_BYTES);
    copy<BOXES>(at.q(stage), QUERY_BOX, q, q_full, head, token);
    load_bytes(at.logs(stage), row_lse + row, ROW_BYTES, q_full);
    barrier_wait(empty(dout_full), turn.parity() ^ 1);
    barrier_arrive_expect(dout_full, DOUT_BYTES + ROW_BYTES);
    copy<V_BOXES>(at.dout(stage), QUERY_BOX, dout, dout_full, head, token);
    load_bytes(at.deltas(stage), row_delta + row, ROW_BYTES, dout_full);
  }
};

// What a lane has of S^T, and of what comes of it: element 4 j + 2 h + i is of key 16 w + lane / 4 + 8 h (w: the warp of the warpgroup) and
// query 8 j + lane % 4 * 2 + i.
typedef float Scores[BLOCK_M / 2];
typedef uint32_t Operands[BLOCK_M / 16][4];
typedef uint32_t Slopes[CAPPED ? BLOCK_M / 4 : 1];  // of the soft cap, as halves

struct Consumer {
  const Places& at;
  const Plan& plan;
  const Visibility& visibility;
  float unit;        // takes scores to log 2, but for CAPPED
  float into_cap, cap;  // the scale over the soft cap; the cap in units of log 2
  int part;          // which of the warpgroups that multiply

  void multiply_keys(Scores& s, uint32_t stage) const {
    const uint64_t a = depth_major<128>(later(at.k() + part * 64 * 128)), b = depth_major<128>(later(at.q(stage)));
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < (D + 15) / 16; ++slice)
      wgmma<Element, BLOCK_M>(s, moved(a, slice / 4 * KEY_BOX + slice % 4 * 32), moved(b, slice / 4 * QUERY_BOX + slice % 4 * 32), slice > 0);
    wgmma_commit();
  }
  void multiply_values(Scores& dp, uint32_t stage) const {
    const uint64_t a = depth_major<128>(later(at.v() + part * 64 * 128)), b = depth_major<128>(later(at.dout(stage)));
    keep_in_place(dp);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < (DV + 15) / 16; ++slice)
      wgmma<Element, BLOCK_M>(dp, moved(a, slice / 4 * KEY_BOX + slice % 4 * 32), moved(b, slice / 4 * QUERY_BOX + slice % 4 * 32), slice > 0);
    wgmma_commit();
  }
  // sums += a times the queries' rows at `rows`.
  template <int FEATURES> static void add_products(float (&sums)[FEATURES / 2], const Operands& a, uint32_t rows) {
    const uint64_t b = row_major<128>(later(rows), BLOCK_M);
    keep_in_place(sums);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < BLOCK_M / 16; ++slice) wgmma<Element, FEATURES, true>(sums, a[slice], moved(b, slice * 2048), true);
    wgmma_commit();
  }
  void multiply_gradients(float (&dq)[DQ_QUERIES / 2], uint32_t buffer) const {
    const uint64_t k = row_major<128>(later(at.k() + share_feature(part) / 64 * KEY_BOX), BLOCK_N);
    const uint64_t ds = depth_major<128>(later(at.ds(buffer) + share_query(part) * 128));
    keep_in_place(dq);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < BLOCK_N / 16; ++slice)
      wgmma<Element, DQ_QUERIES, true>(dq, moved(k, slice * 2048), moved(ds, slice / 4 * QUERY_BOX + slice % 4 * 32), slice > 0);
    wgmma_commit();
  }

  bool is_whole(int step) const { return step >= plan.first_whole[part] && step < plan.end_whole[part]; }

  // Scores become weights, scaled by 2^SHIFT.
  void weigh(Scores& s, Slopes& slopes, const Turn& turn, bool whole) const {
    if constexpr (CAPPED) {
#pragma unroll
      for (int i = 0; i < BLOCK_M / 2; i += 2) {
        const float low = tanh_of(s[i] * into_cap), high = tanh_of(s[i + 1] * into_cap);
        slopes[i / 2] = pack_pair<half>(1 - low * low, 1 - high * high);
        s[i] = cap * low, s[i + 1] = cap * high;
      }
    }
    if (!whole) {
      const int key = plan.first_key + part * 64 + warp() % 4 * 16 + lane() / 4;
      RowRange range[2];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        range[h] = key + 8 * h < plan.sequence.keys
                       ? seeing_queries(visibility, key + 8 * h, plan.sequence.offset, static_cast<int>(plan.sequence.queries))
                       : RowRange{0, 0};
      LaneRows::hide(s, range, turn.step * BLOCK_M + lane() % 4 * 2, true);
    }
    const uint32_t logs = at.logs(turn.stage()) + lane() % 4 * 8;
#pragma unroll
    for (int j = 0; j < BLOCK_M / 8; ++j) {
      const Pack<float, 2> log = load_two(logs + 32 * j);
#pragma unroll
      for (int i = 0; i < 4; ++i) s[4 * j + i] = exp2_of(s[4 * j + i] * unit - (log.at[i % 2] - SHIFT));
    }
  }

  // dP becomes dS, as operand `ds` and in shared memory (queries are rows, the warpgroup's keys a box); then its barrier. A weight of 0 takes
  // nothing from dP if some query does not see some key. 16 queries at a time, so that few registers are needed.
  void differentiate(const Scores& dp, const Scores& weights, const Slopes& slopes, const Turn& turn, bool whole, Operands& ds) const {
    const uint32_t deltas = at.deltas(turn.stage()) + lane() % 4 * 8;
    constexpr float UNSCALED = 1.0f / (1 << SHIFT);
    barrier_wait(empty(at.ds_full(turn.stage())), turn.parity() ^ 1);
    const uint32_t box = at.ds(turn.stage()) + part * QUERY_BOX, chunk = warp() % 4 * 2 + lane() / 8 % 2, row = lane() / 16 * 8 + lane() % 8;
    const uint32_t to = box + row * 128 + (chunk ^ lane() % 8) * 16;
#pragma unroll
    for (int n = 0; n < BLOCK_M / 16; ++n) {
      float x[8];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const Pack<float, 2> delta = load_two(deltas + (16 * n + 8 * j) * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int e = 8 * n + 4 * j + i;
          x[4 * j + i] = weights[e] * UNSCALED * (dp[e] - delta.at[i % 2]);
          if (CAPPED) x[4 * j + i] *= to_float(half{static_cast<uint16_t>(slopes[e / 2] >> 16 * (e % 2))});
          if (!whole && weights[e] == 0) x[4 * j + i] = 0;
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ds[n][i] = later(pack_pair<Element>(x[2 * i], x[2 * i + 1]));
      }
      store_matrices_transposed(to + n * 2048, ds[n]);
    }
    fence_async();
    sync_warp();
    if (lane() == 0) barrier_arrive(at.ds_full(turn.stage()));
  }

  void add_to_queries(float* dq_sums, int block, const float (&dq)[DQ_QUERIES / 2]) const {
    float* const sums = dq_sums + (plan.first_row + int64_t{block} * BLOCK_M) * DQ_FEATURES;
#pragma unroll
    for (int chunk = 0; chunk < DQ_CHUNKS; ++chunk) {
      const float four[4] = {dq[4 * chunk], dq[4 * chunk + 1], dq[4 * chunk + 2], dq[4 * chunk + 3]};
      add_to_sums(sums + sums_place(part, chunk, warp() % 4), four);
    }
  }

  // One thread says so for its warpgroup.
  static void release(uint32_t full) {
    if (thread_x() % WARPGROUP == 0) barrier_arrive(empty(full));
  }

  void run(float (&dk)[D / 2], float (&dv)[DV / 2], int turns, float* dq_sums) const {
    if (turns == 0) return;
    Scores s;
    Turn turn(plan);
    int block = 0;  // whose share of dq is next
    barrier_wait(at.k_full(), 0);
    barrier_wait(at.q_full(0), 0);
    multiply_keys(s, 0);
    wgmma_wait<0>();
    keep_in_place(s);
    barrier_wait(at.v_full(), 0);
#pragma unroll 1
    for (;;) {
      Scores dp;  // here, so that nothing of a turn is kept for the next
      Slopes slopes;
      Operands p, ds;
      float dq[DQ_QUERIES / 2];
      const bool whole = is_whole(turn.step);
      const uint32_t stage = turn.stage(), dq_number = turn.number - DEFERRED, dq_stage = dq_number % STAGES;
      if (!DEFERRED) block = turn.block;
      barrier_wait(at.dout_full(stage), turn.parity());
      multiply_values(dp, stage);
      weigh(s, slopes, turn, whole);
      pack_weights<Element, BLOCK_M>(p, s);
      add_products<DV>(dv, p, at.dout(stage));
      wgmma_wait<ROOM>();
      keep_in_place(dp);
      if (!ROOM) keep_in_place(dv);
      differentiate(dp, s, slopes, turn, whole, ds);
      add_products<D>(dk, ds, at.q(stage));
      if (!DEFERRED || turn.number > 0) barrier_wait(at.ds_full(dq_stage), dq_number / STAGES % 2);
      multiply_gradients(dq, dq_stage);  // DEFERRED: of nothing, the first time
      wgmma_wait<1>();                   // p and ds are free
      keep_in_place(dk);
      if (ROOM) keep_in_place(dv);
      release(at.q_full(stage));
      release(at.dout_full(stage));
      const bool adds = !DEFERRED || turn.number > 0, last = turn.number + 1 == turns;
      const int this_block = turn.block;
      turn.next(plan);
      if (!last) {
        barrier_wait(at.q_full(turn.stage()), turn.parity());
        multiply_keys(s, turn.stage());
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
      }
      keep_in_place(dq);
      if (adds) {
        release(at.ds_full(dq_stage));
        add_to_queries(dq_sums, block, dq);
      }
      if (DEFERRED) block = this_block;
      wgmma_wait<0>();
      keep_in_place(s);
      if (last) break;
    }
    if (DEFERRED) {
      float dq[DQ_QUERIES / 2];
      const uint32_t number = turns - 1, dq_stage = number % STAGES;
      barrier_wait(at.ds_full(dq_stage), number / STAGES % 2);
      multiply_gradients(dq, dq_stage);
      wgmma_wait<0>();
      keep_in_place(dq);
      add_to_queries(dq_sums, block, dq);
    }
  }

  // The warpgroup's sums, to rows of dk or dv. Returns whether all are finite.
  template <int N> bool store(const float (&sums)[N], float factor, const Heads<Element>& to) const {
    float zero = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int key = part * 64 + warp() % 4 * 16 + lane() / 4 + 8 * h;
      const bool wanted = key < plan.keys;
      store_row(sums, h, factor, to.row(plan.sequence.batch, plan.sequence.first_key + plan.first_key + (wanted ? key : 0), plan.kv_head), wanted);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) zero += sums[i] * 0;
    return zero == 0;
  }
};

// Block (x, y, z): the y-th BLOCK_N keys (packed: of all sequences) of the x-th kv head of group z, where the kv heads of all rows of the
// batch are numbered through. broken: which of them, by kv head, are to be done again.
KERNEL(THREADS, 1) differentiate(${parameters('differentiate')}) {
  __shared__ Plan plan;
  __shared__ int exists;
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  const int kv_heads = static_cast<int>(k_view.shape[k_view.rank - 2]), heads = static_cast<int>(q_view.shape[q_view.rank - 2]);
  const Visibility visibility{causal, window_left, window_right};
  const int numbered = block_z() * grid_x() + block_x();
  if (warp() == 0) {
    const Sequences sequences{PACKED ? cum_seqlens_q : nullptr, PACKED ? cum_seqlens_k : nullptr, sequence_count, q_view.shape[q_view.rank - 3],
                              k_view.shape[k_view.rank - 3], offset_given, offset};
    Plan found;
    const bool some = find_plan(sequences, visibility, RowSpace{heads, space_rows, BLOCK_M, PACKED}, kv_heads, numbered, block_y(), found);
    if (lane() == 0) {
      exists = some, plan = found;
      for (uint32_t i = 0; i < 2 * STAGES; ++i) {
        barrier_init(at.q_full(i), 1);
        barrier_init(empty(at.q_full(i)), GROUPS);
      }
      for (uint32_t i = 0; i < STAGES; ++i) {
        barrier_init(at.ds_full(i), GROUPS * 4);
        barrier_init(empty(at.ds_full(i)), GROUPS);
      }
      barrier_init(at.k_full(), 1);
      barrier_init(at.v_full(), 1);
      fence_barrier_init();
    }
  }
  sync_block();
  if (!exists) return;
  const int turns = (plan.end_step - plan.first_step) * (heads / kv_heads);
  const int group = shuffle(warpgroup(), 0);
  if (group == 0) {
    give_registers<24>();
    if (thread_x() != 0 || turns == 0) return;
    const Producer producer{at, plan, row_lse, row_delta};
    Turn turn(plan);
    producer.copy_keys(k_map, v_map);
#pragma unroll 1
    for (; turn.number < turns; turn.next(plan)) producer.copy_turn(turn, q_map, dout_map);
  } else {
    take_registers<240>();
    const Consumer consumer{at, plan, visibility, CAPPED ? 1 : (softmax_scale > 0 ? softmax_scale : 1e-30f) * LOG2_E,
                            CAPPED ? softmax_scale / logits_soft_cap : 0, logits_soft_cap * LOG2_E, group - 1};
    float dk[D / 2] = {}, dv[DV / 2] = {};
    consumer.run(dk, dv, turns, dq_sums);
    const bool finite_dk = consumer.store(dk, softmax_scale, Heads<Element>(dk_view));
    const bool finite_dv = consumer.store(dv, 1.0f / (1 << SHIFT), Heads<Element>(dv_view));
    const bool hides = plan.first_step < plan.first_whole[group - 1] || plan.end_whole[group - 1] < plan.end_step;
    if (any_in_warp(hides && !(finite_dk && finite_dv)) && lane() == 0) broken[int64_t{numbered} * key_blocks + block_y()] = 1;
  }
}

// Block (x, y, z): BLOCK_M rows x (packed: of all sequences) of head y of row z of the batch. Clears the sums of dq, and what is broken.
KERNEL(PREPARE_THREADS, 1) prepare(${parameters('prepare')}) {
  const Heads<const Element> out(out_view), dout(dout_view);
  const int64_t number = (int64_t{block_z()} * grid_y() + block_y()) * grid_x() + block_x();
  const int64_t threads = blocks * PREPARE_THREADS;
#pragma unroll 1
  for (int64_t i = number * PREPARE_THREADS + thread_x(); i < broken_blocks; i += threads) broken[i] = 0;
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, out.tokens, 0, true, 0};
  Sequence sequence = sequences[PACKED ? 0 : block_z()];
  int64_t item = block_x(), items;
  if (PACKED && !find_sequence(sequences, item, BLOCK_M, 1, sequence, items)) return;
  const int64_t at = RowSpace{out.heads, space_rows, BLOCK_M, PACKED}.first(sequence, block_y()) + item * BLOCK_M;
  constexpr int LANES = DV <= 64 ? 8 : DV <= 128 ? 16 : 32;
  prepare_rows<PREPARE_THREADS, LANES, 8>(out, dout, lse_view, sequence, block_y(), item * BLOCK_M, BLOCK_M, DV, row_lse + at, row_delta + at);
#pragma unroll 1
  for (int i = thread_x() * 4; i < DQ_SUMS; i += PREPARE_THREADS * 4) store_pack(dq_sums + at * DQ_FEATURES + i, Pack<float, 4>{});
}

// Block (x, y, z): BLOCK_M rows x (packed: of all sequences) of head y of row z of the batch: dq from its sums. And some of the broken keys.
KERNEL(FINISH_THREADS, 1) finish(${parameters('finish')}) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view), dout(dout_view);
  const Heads<Element> dq(dq_view);
  constexpr int PITCH = D + 8, CHUNKS = D / 8;
  char* const memory = dynamic_shared();
  Element* const tile = reinterpret_cast<Element*>(memory);
  int* const bad_rows = reinterpret_cast<int*>(memory + BLOCK_M * PITCH * 2);
  float* const plain_memory = reinterpret_cast<float*>(bad_rows + BLOCK_M) + warp() * 2 * (D + DV);
  const Sequences sequences{PACKED ? cum_seqlens_q : nullptr, PACKED ? cum_seqlens_k : nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset};
  const RowSpace space{q.heads, space_rows, BLOCK_M, PACKED};
  const Visibility visibility{causal, window_left, window_right};
  const View none{};
  const ScoreRules rules{none, none, none, none, 0, softmax_scale, logits_soft_cap, 0, 0, q.heads};
  using Plain = PlainGradients<Element, false, CAPPED, false>;

  Sequence sequence = sequences[PACKED ? 0 : block_z()];
  int64_t item = block_x(), items;
  if (!PACKED || find_sequence(sequences, item, BLOCK_M, 1, sequence, items)) {
    const int64_t first = item * BLOCK_M;
    const float* const from = dq_sums + (space.first(sequence, block_y()) + first) * DQ_FEATURES;
    if (thread_x() < BLOCK_M) bad_rows[thread_x()] = 0;
    sync_block();
    bool bad = false;
    const int part = warp() / 4, across = warp() % 4 * 16 + lane() / 4;
#pragma unroll 4
    for (int chunk = 0; chunk < DQ_CHUNKS; ++chunk) {
      const Pack<float, 4> x = load_sums(from + sums_place(part, chunk, warp() % 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = share_feature(part) + across + i / 2 * 8, row = share_query(part) + 8 * chunk + lane() % 4 * 2 + i % 2;
        if (column < D) tile[row * PITCH + column] = from_float<Element>(x.at[i] * softmax_scale);
        if (x.at[i] * 0 != 0) bad_rows[row] = 1, bad = true;
      }
    }
    const bool some_bad = any_in_block(bad && hides);
#pragma unroll 1
    for (int i = thread_x(); i < BLOCK_M * CHUNKS; i += FINISH_THREADS) {
      const int row = i / CHUNKS, column = i % CHUNKS * 8;
      if (first + row < sequence.queries && !(some_bad && bad_rows[row]))
        store_pack(dq.row(sequence.batch, sequence.first_query + first + row, block_y()) + column, load_pack<8>(tile + row * PITCH + column));
    }
    const Plain plain{q, k, v, dout, rules, visibility, sequence, row_lse, row_delta, space, D, DV, plain_memory};
#pragma unroll 1
    for (int row = warp(); some_bad && row < BLOCK_M && first + row < sequence.queries; row += FINISH_THREADS / WARP)
      if (bad_rows[row]) plain.differentiate_query(static_cast<int>(first) + row, block_y(), dq);
  }
  if (!hides) return;
  const int64_t number = (int64_t{block_z()} * grid_y() + block_y()) * grid_x() + block_x();
#pragma unroll 1
  for (int64_t i = number; i < broken_blocks; i += blocks) {
    Plan plan;
    if (!broken[i] || !find_plan(sequences, visibility, space, static_cast<int>(k.heads), static_cast<int>(i / key_blocks), static_cast<int>(i % key_blocks), plan))
      continue;
    const Plain plain{q, k, v, dout, rules, visibility, plan.sequence, row_lse, row_delta, space, D, DV, plain_memory};
#pragma unroll 1
    for (int key = warp(); key < BLOCK_N && key < plan.keys; key += FINISH_THREADS / WARP)
      plain.differentiate_key(plan.first_key + key, plan.kv_head, Heads<Element>(dk_view), Heads<Element>(dv_view));
  }
}

KERNEL(256, 1) differentiate_sinks(${parameters('differentiate_sinks')}) {
  const Heads<const Element> q(q_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, 0, true, 0};
  differentiate_sink<256>(softmax_aux_view, dsoftmax_aux_view, sinks_type, block_x(), sequences, {q.heads, space_rows, BLOCK_M, PACKED}, row_lse,
                          row_delta);
}
