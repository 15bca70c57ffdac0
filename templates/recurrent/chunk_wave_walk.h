// GPU vocabulary of the chunked recurrence's gradients on matrix instructions of a wave: a block's walk through the chunks of a sequence, by
// which it makes some columns of one gradient. Part of backward.chunk_wave.gpu.cu.
#pragma once
#include "recurrent/chunk_wave_walk_rows.h"

// Which gradient a block makes.
constexpr int OF_QUERIES = 0, OF_KEYS = 1, OF_VALUES = 2;

$if dual  // ssd: what flows from token to token goes straight to memory; here are the chunk's steps up to each token
struct PairFlows {
  LongSum times[CHUNK];
  float between(int s, int t) const { return (times[t].high - times[s].high) + (times[t].low - times[s].low); }
};
$else
// What flows from a chunk's tokens to others of the chunk: sums of each block of pairs, of tokens that read and that write.
struct PairFlows {
  float read[PAIR_BLOCKS][16], written[PAIR_BLOCKS][16];
};
$end

// Shared memory: rows that read and that write, the latter transposed besides; what they write, transposed; weights of pairs; gates; where rows
// are; norms; and for gates' gradients rows of q and k.
constexpr int READERS = 0, WRITERS = KeyTile::BYTES, TURNED_WRITERS = 2 * KeyTile::BYTES, VALUES = TURNED_WRITERS + KEYS * TOKEN_PITCH;
constexpr int PAIRS = VALUES + COLUMNS * TOKEN_PITCH, GATES = PAIRS + Pairs::BYTES, PLAN = GATES + static_cast<int>(sizeof(Gates) + 15) / 16 * 16;
constexpr int PLAN_BYTES = 176, NORMS = PLAN + PLAN_BYTES, OWN_ROWS = NORMS + (NORMED ? static_cast<int>(sizeof(RowNorms)) : 0);
constexpr int WRITTEN_ROWS = OWN_ROWS + KeyTile::BYTES, PAIR_FLOWS = WRITTEN_ROWS + KeyTile::BYTES;
static_assert((GATED ? PAIR_FLOWS + static_cast<int>(sizeof(PairFlows)) : OWN_ROWS) <= ${shared}, "the spec has another size");

// Where a block's rows and numbers are. In shared memory: in registers it would be in the way.
struct Plan {
  KeyRows readers, writers, own, written;  // own: of q or k, whose gradient is made or (dv) that read; written: of k or q
  ValueRows values;
  ${dual ? 'DualNumbers' : 'TokenNumbers'} gates;
  WalkRows out;
  float ${dual ? 'skip' : 'gamma'}, scale;
  int count, way, start;

  void set(int which, const Tokens& tokens, int64_t column, double factor) {
    way = which, count = static_cast<int>(tokens.end - tokens.first), start = static_cast<int>(column), scale = static_cast<float>(factor);
  }
  // Factors of what is read of a state, and of what is written to one.
  float read_scale() const { return way == OF_QUERIES ? scale : 1; }
  float written_scale() const { return way == OF_QUERIES ? 1 : scale; }
  bool makes_pair_flows() const { return GATED && way == OF_QUERIES && start == 0; }

  // The chunk from `token` on, to shared memory.
  void copy(SharedPointer shared, int token) const {
    readers.copy_async({shared + READERS}, token, count);
    writers.copy_async({shared + WRITERS}, token, count);
    if (GATED && way != OF_VALUES) own.copy_async({shared + OWN_ROWS}, token, count);
    if (makes_pair_flows()) written.copy_async({shared + WRITTEN_ROWS}, token, count);
    copy_chunk_transposed(shared + TURNED_WRITERS, writers, token, count);
    copy_chunk_transposed(shared + VALUES, values, token, count);
    copy_async_commit();
    copy_async_wait<0>();
  }
};
static_assert(sizeof(Plan) <= PLAN_BYTES);
static inline Plan& plan_in(char* memory) { return *reinterpret_cast<Plan*>(memory + PLAN); }

// sums [16 columns][16 tokens] of TILES tiles += state^T rows^T; the state is READ_PARTS elements a number, times `unit`.
static inline void add_read(Sums (&sums)[TILES], const State& state, SharedPointer rows, float unit) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    part();
    Sums x = scaled(state[k], unit);
#pragma unroll
    for (int piece = 0; piece < READ_PARTS; ++piece) {
      const Operand a = operand_of<Element>(x);
      if (piece + 1 < READ_PARTS) x = rest_of<Element>(x);
#pragma unroll
      for (int r = 0; r < TILES; ++r) {
        multiply<Element>(sums[r], a, load_operand(rows + 16 * r * KEY_PITCH + 32 * k, KEY_PITCH));
        hold(sums[r]);
      }
    }
  }
}

// The weights of a block of a chunk's pairs of a token that reads and one that writes. BACK: blocks are above the diagonal.
template <bool BACK, class Flows> static inline void put_walk_pairs(char* memory, int block, const Flows& flows${dual ? ', int chunk' : ''}) {
  const SharedPointer shared = shared_pointer(memory);
  const Plan& plan = plan_in(memory);
  const Gates& gates = *reinterpret_cast<const Gates*>(memory + GATES);
  const RowNorms& norms = *reinterpret_cast<const RowNorms*>(memory + NORMS);
  const int of_reader = BACK ? block_column(block) : block_row(block), of_writer = BACK ? block_row(block) : block_column(block);
  Sums x = multiply_block(shared + READERS, shared + WRITERS, of_reader, of_writer);
  const int t = 16 * of_reader + matrix_column();
  const float factor = plan.scale * (NORMED && plan.way == OF_VALUES ? norms.own[t] : 1);
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int s = 16 * of_writer + matrix_row(i);
    const bool sees = BACK ? s >= t : s <= t;
    x.at[i] = sees ? x.at[i] * (NORMED ? norms.written[s] : 1) * factor * (BACK ? gates.left(s, t) : gates.left(t, s)) : 0;
  }
$if dual  // what is written takes its step; flows want it apart
  if (!BACK && plan.makes_pair_flows()) flows.store_pairs(memory, block, x, chunk);
#pragma unroll
  for (int i = 0; !BACK && i < SUMS; ++i) x.at[i] *= gates.beta[16 * of_writer + matrix_row(i)];
$end
  Pairs(memory + PAIRS).put(of_reader, of_writer, x);
$if not dual
  if (!BACK && plan.makes_pair_flows()) flows.put_pairs(memory, block, x);
$end
}

// Through all chunks, from the first on or (BACK) from the last; `state`: before them.
template <bool BACK, class Flows> static inline void walk(char* memory, State& state, const Flows& flows) {
  const SharedPointer shared = shared_pointer(memory);
  Gates& gates = *reinterpret_cast<Gates*>(memory + GATES);
  RowNorms& norms = *reinterpret_cast<RowNorms*>(memory + NORMS);
  const Plan& plan = plan_in(memory);
  sync_block();  // the plan is there
  const int count = plan.count, chunks = (count + CHUNK - 1) / CHUNK;
#pragma unroll 1
  for (int step = 0; step < chunks; ++step) {
    const int chunk = BACK ? chunks - 1 - step : step, token = chunk * CHUNK;
    sync_block();  // all are done with the chunk before
    plan.copy(shared, token);
$if dual
    load_steps(plan.gates, token, count, gates, plan.makes_pair_flows() ? reinterpret_cast<PairFlows*>(memory + PAIR_FLOWS)->times : nullptr);
$else
    load_gates(plan.gates, token, count, plan.gamma, gates);
$end
    if constexpr (NORMED) put_row_norms(plan.own, plan.written, token, count, norms);
    sync_block();
#pragma unroll 1
    for (int block = wave(); block < PAIR_BLOCKS; block += WAVES) put_walk_pairs<BACK>(memory, block, flows${dual ? ', chunk' : ''});
    sync_block();
$if not dual
    if (!BACK && plan.makes_pair_flows()) flows.store_pairs(memory, chunk);
$end
    if (BACK && GATED && plan.way == OF_KEYS) flows.store_through(state, chunk, chunks);

    const Unit unit = unit_of(state);
    Sums sums[TILES] = {};
    add_read(sums, state, shared + READERS, unit.of);
#pragma unroll
    for (int r = 0; r < TILES; ++r) {
      const int t = 16 * r + matrix_column();
      const float left = BACK ? gates.after[t] : gates.before[t];
      sums[r] = scaled(sums[r], left * (NORMED && plan.way == OF_VALUES ? norms.own[t] : 1) * (plan.read_scale() * unit.inverse));
    }
    if (GATED && plan.way != OF_VALUES) flows.store_read(memory, plan, chunk, sums);

    Sums written[TILES];
    load_values(written, memory + VALUES);
    Operand operands[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c) operands[c] = operand_of<Element>(written[c]);
    Pairs(memory + PAIRS).template add<BACK>(sums, operands, 1);
$if dual  // a key's step; and D x
    for (int r = 0; BACK && r < TILES; ++r) sums[r] = scaled(sums[r], gates.beta[16 * r + matrix_column()]);
    if (plan.way == OF_VALUES) add_skip(sums, memory + VALUES, plan.skip);
$end
    plan.out.store(sums, token, count);

#pragma unroll
    for (int c = 0; c < TILES; ++c)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        const int s = 16 * c + matrix_row(i);
$if dual
        written[c].at[i] *= BACK ? gates.before[s] : gates.after[s] * gates.beta[s];
$else
        written[c].at[i] *= (BACK ? gates.before[s] : gates.after[s]) * (NORMED ? norms.written[s] : 1) * plan.written_scale();
$end
      }
    const Unit taken_unit = unit_of(written);
    Parts taken[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c) taken[c] = Parts(scaled(written[c], taken_unit.of));
    take_in(state, gates.base, gates.rest, taken, shared + TURNED_WRITERS, taken_unit.inverse);
    if (!BACK && GATED) flows.keep(state, chunk, chunks);
  }
}
