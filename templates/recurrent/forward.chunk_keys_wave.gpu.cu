// recurrent, forward, with gates of keys, a chunk of 32 tokens at a time, on matrix instructions of a wave (MFMA, WMMA): forward.chunk_wave.gpu.cu
// has the formulas and says how matrices lie, where e^c is now a factor of each key. A block weighs its chunk's queries and keys with what
// the gates leave of them, and pairs of tokens (chunk_wave_keys.h); then each wave goes on with its own 16 columns of the state.
$if delta
// Before that it solves the delta rule's system for what its tokens write (chunk_wave_key_delta.h).
$end
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys};  // up to 8 more than there are: zeros
constexpr int WAVES = ${waves}, THREADS = WAVES * WAVE;
constexpr bool NORMED = ${normed};  // l2_norm
constexpr bool NARROW = ${E == 'f16'};
constexpr int PARTS = ${delta and E == 'bf16' ? 3 : 2};
static_assert(2 * KEYS <= THREADS, "each key of a part has a thread");
#include "recurrent/chunk_wave_keys.h"
$if delta
#include "recurrent/chunk_wave_key_delta.h"
$end

using ValueRows = ChunkRows<Element, COLUMNS, THREADS>;

constexpr int VALUES = (KeyPlaces::END + 15) / 16 * 16, PAIRS = VALUES + COLUMNS * TOKEN_PITCH, PLAN = PAIRS + Pairs::BYTES;
$if delta
constexpr int SOLVER = PLAN + 160, BETAS = SOLVER + Solver::BYTES;
static_assert(BETAS + 4 * CHUNK <= ${shared}, "the spec has another size");
$else
static_assert(PLAN + 128 <= ${shared}, "the spec has another size");
$end

// Where a block's rows and numbers are, and its rows of `out`. In shared memory: in registers it would be in the way.
struct Plan {
  KeyRows queries, keys;
  ValueRows values;
  TokenNumbers gates${delta ? ', betas' : ''};
  OutRows out;
  float gamma;
  int count;

  // The chunk from `token` on, to shared memory, without its gates of keys.
  void copy(const KeyPlaces& to, int token) const {
    const SharedPointer shared = shared_pointer(to.memory);
    queries.copy_async({shared}, token, count);
    keys.copy_async({shared + KeyPlaces::KEY_ROWS}, token, count);
    copy_chunk_transposed(shared + VALUES, values, token, count);
    if (warp() == 0) {
      float numbers[2];
      gates.load(token, count < token + CHUNK ? count : token + CHUNK, gamma, numbers);
      if (2 * lane() < CHUNK) to.token_gates()[2 * lane()] = numbers[0], to.token_gates()[2 * lane() + 1] = numbers[1];
$if delta
      betas.load(token, count, 0, numbers);
      float* to_betas = reinterpret_cast<float*>(to.memory + BETAS);
      if (2 * lane() < CHUNK) to_betas[2 * lane()] = numbers[0], to_betas[2 * lane() + 1] = numbers[1];
$end
    }
    copy_async_commit();
    copy_async_wait<0>();
  }
};
static_assert(sizeof(Plan) <= ${delta ? '160' : '128'});

// Block number: slice % slices of a head of a sequence. Packed: those of the sequence after the last write zeros behind it.
KERNEL(THREADS, 1) recurrent(${parameters('recurrent')}) {
  const int64_t number = block_x(), slice = number % slices, head = number / slices % heads, sequence = number / slices / heads;
  const int64_t start = slice * COLUMNS;
  const Tokens tokens(cum_seqlens, sequences, sequence, q_view.shape[1]);
  const int count = static_cast<int>(tokens.end - tokens.first);
  const OutRows out(out_view, tokens, head, start, reverse && sequence < sequences);
  if (sequence == sequences) {
    const Sums zeros[TILES] = {};
#pragma unroll 1
    for (int token = 0; token < count; token += CHUNK) out.store(zeros, token, count);
    return;
  }
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  const KeyPlaces places{memory};
$if delta
  const KeyDelta delta{places, {memory + SOLVER}, reinterpret_cast<float*>(memory + BETAS)};
$end
  const float scale = softmax_scale;
  Plan& plan = *reinterpret_cast<Plan*>(memory + PLAN);
  if (thread_x() == 0) {
    const int keys = static_cast<int>(q_view.shape[3]), values = static_cast<int>(v_view.shape[3] - start);
    plan = {{q_view, tokens, head, heads, 0, keys, reverse}, {k_view, tokens, head, heads, 0, keys, reverse},
            {v_view, tokens, head, heads, start, values, reverse}, {g_view, g_type, tokens, head, reverse},
$if delta
            {beta_view, beta_type, tokens, head, reverse},
$end
            out,
            gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), count};
  }

  State state = {};
  StateMemory(initial_state_view, sequence, head, start + 16 * wave()).load(state);
#pragma unroll 1
  for (int token = 0; token < count; token += CHUNK) {
    sync_block();  // the plan is there, and all are done with the chunk before
    plan.copy(places, token);
    sync_block();
    put_factors(places, gk_view, gk_type, tokens, head, token, count, reverse);
    if constexpr (NORMED) put_norms(memory, memory + KeyPlaces::KEY_ROWS, places.norms());
    sync_block();
    multiply_near(places);
$if delta
    delta.multiply_near();
    {
      const KeyWeigher weigher(places);
      sync_block();  // all are done with rows and what gates leave, whose place others take
      delta.put_rows(weigher.factors);
    }
    delta.solver.invert();
    sync_block();
    delta.multiply_far();
    sync_block();
    Sums seen[TILES] = {}, written[TILES];
    const auto weigher_again = [&] { return KeyWeigher(places, gk_view, gk_type, tokens, head, token, count, reverse); };  // not kept: registers
    delta.put_pieces<0, 2>(weigher_again().factors);
    sync_block();
    delta.add_seen<0, 2>(seen, state);
    sync_block();
    delta.put_pieces<2, 1>(weigher_again().factors);
    sync_block();
    delta.add_seen<2, 1>(seen, state);
    load_values(written, memory + VALUES);
#pragma unroll
    for (int c = 0; c < TILES; ++c)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) written[c].at[i] = delta.betas[16 * c + matrix_row(i)] * (written[c].at[i] - seen[c].at[i]);
    delta.solver.solve(written);
    sync_block();  // all are done with the keys that read
    const KeyWeigher weigher = weigher_again();
$else
    const KeyWeigher weigher(places);
    sync_block();  // all are done with rows and what gates leave, whose place others take
$end
    weigher.weigh_rows(places);
    sync_block();
    put_key_pairs(places, memory + PAIRS, scale);
    sync_block();

$if delta
    const Unit written_unit = unit_of(written);
    Parts taken[TILES];
    Operand values[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c) taken[c] = Parts(scaled(written[c], written_unit.of)), values[c] = taken[c].at[0];
$else
    const Unit written_unit;
    Operand values[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c) values[c] = load_operand(shared + VALUES + 16 * wave() * TOKEN_PITCH + 32 * c, TOKEN_PITCH);
$end
    const Unit unit = unit_of(state);
    Sums sums[TILES] = {};
    add_seen(sums, state, shared, unit.of);
#pragma unroll
    for (int r = 0; r < TILES; ++r) sums[r] = scaled(sums[r], scale * unit.inverse);
    Pairs(memory + PAIRS).add(sums, values, written_unit.inverse);
    plan.out.store(sums, token, count);
$if delta
    take_in_by_keys(state, places, taken, written_unit.inverse);
$else
    take_in_by_keys(state, places, values);
$end
  }
  StateMemory(final_state_view, sequence, head, start + 16 * wave()).store(state);
}
