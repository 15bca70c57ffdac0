// recurrent_bwd, a chunk of 32 tokens at a time, on matrix instructions of a wave (MFMA, WMMA). Each gradient is a recurrence of its own, as
// `out` is (forward.chunk_wave.gpu.cu), whose state a block goes through a sequence with. With D the gradient of the state S after a token,
//   dq_t = scale S dout_t     S is read by out's gradients and written by values: keys are what they write
//   dk_t = D v_t              D is read by values and written by out's gradients: queries are what they write; from the last token on
//   dv_t = D^T k_t            D is read by keys and written by queries: out's gradients are what they write; from the last token on
// where out's gradients write to D times the scale. Weights of pairs of a chunk's tokens are those of one token that reads and one that writes.
// A walk from the last chunk on has a chunk's tokens in their order, and pairs above the diagonal.
//
// A log gate's gradient is the sum of all that flows past it, from a token before it, or the first state, to a token from it on, or the last
// state. Neighbours differ by what begins or ends there (chunk_wave_flows.h).
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${features};  // of rows that read states, and write them: of keys or of values; up to 15 more than there are: zeros
constexpr int WAVES = ${waves}, THREADS = WAVES * WAVE;
// l2_norm; gradients of log gates are asked for; a head's gradients of q and k, or of v, go to memory as f32 first.
constexpr bool NORMED = ${normed}, GATED = ${gated}, SUMS_OF_KEYS = ${normed or shared_heads}, SUMS_OF_VALUES = ${shared_heads};
constexpr bool NARROW = ${E == 'f16'};
$if dual
constexpr bool SHARED_HEADS = ${shared_heads};
$end
constexpr int PARTS = ${parts > 2 ? 3 : 2}, READ_PARTS = ${parts};  // elements of a number that is written to a state, and that is read
constexpr int KEPT = ${kept};                                // chunks for which one state is kept for gates' gradients
#include "recurrent/chunk_wave_pairs.h"
#include "recurrent/gradient_rows.h"
$if dual  // ssd: steps are factors of keys, and lie where betas do; rows of states are columns
#include "ssd/dual_wave.h"
$end
#include "recurrent/chunk_wave_walk.h"
#include "recurrent/chunk_wave_flows.h"
$if dual
#include "ssd/wave_pair_flows.h"
$end

// Which gradient a block has, and of what.
struct Item {
  int64_t sequence, head, slice;
  Item(int64_t number, int64_t slices, int64_t heads)
      : sequence(number / slices / heads), head(number / slices % heads), slice(number % slices) {}
};

// Block number: a gradient of a slice of a head of a sequence; gated: without those of keys.
KERNEL(THREADS, 1) gradients(${parameters('gradients')}) {
$if dual
  const View &q_view = C_view, &k_view = Bm_view, &v_view = x_view, &dq_view = dC_view, &dk_view = dBm_view, &dv_view = dx_view;
  float* const value_sums = nullptr;
  constexpr bool reverse = false;
  constexpr float softmax_scale = 1;
$end
  constexpr int WAYS = GATED ? 2 : 3;
  const int way = static_cast<int>(block_x() % WAYS) * (GATED ? 2 : 1);
  const Item item(block_x() / WAYS, slices, heads);
  const Tokens tokens(cum_seqlens, sequences, item.sequence, q_view.shape[1]);
  const int64_t start = item.slice * COLUMNS, head = item.head;
  if (start >= (way == OF_VALUES ? v_view : q_view).shape[3]) return;
  char* memory = dynamic_shared();
  if (thread_x() == 0) {
    Plan& plan = plan_in(memory);
    const auto rows = [&](const View& view) { return KeyRows(view, tokens, head, heads, 0, static_cast<int>(view.shape[3]), reverse); };
    const auto columns = [&](const View& view) {
      return ValueRows(view, tokens, head, heads, start, static_cast<int>(view.shape[3] - start), reverse);
    };
$if dual
    plan.gates = dual_numbers(dt_view, dt_type, A_view, a_type, dt_bias_view, bias_type, tokens, head, dt_softplus);
    plan.skip = number_of_head(D_view, d_type, head);
$else
    plan.gates = {g_view, g_type, tokens, head, reverse};
    plan.gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
$end
    plan.set(way, tokens, start, softmax_scale);
    if (way == OF_QUERIES) {
      plan.readers = rows(dout_view), plan.writers = rows(v_view), plan.values = columns(k_view);
      plan.own = rows(q_view), plan.written = rows(k_view);
      plan.out = {dq_view, SUMS_OF_KEYS ? query_sums : nullptr, tokens, head, heads, start, reverse};
    } else if (way == OF_VALUES) {
      plan.readers = rows(k_view), plan.writers = rows(q_view), plan.values = columns(dout_view);
      plan.own = rows(k_view), plan.written = rows(q_view);
      plan.out = {dv_view, SUMS_OF_VALUES ? value_sums : nullptr, tokens, head, heads, start, reverse};
    } else {
      plan.readers = rows(v_view), plan.writers = rows(dout_view), plan.values = columns(q_view);
      plan.own = rows(k_view), plan.written = rows(q_view);
      plan.out = {dk_view, SUMS_OF_KEYS ? key_sums : nullptr, tokens, head, heads, start, reverse};
    }
  }
  State state = {};
  const int64_t first_column = start + 16 * wave();
  const Flows flows{flow_sums, through_sums, kept_states, groups_before(cum_seqlens, tokens, item.sequence, q_view.shape[1]), head, heads,
                    static_cast<int>(start / 16) + wave(), static_cast<int>(q_view.shape[3])};
  if (way == OF_QUERIES) {
    ${dual ? '' : 'Turned'}StateMemory(initial_state_view, item.sequence, head, first_column).load(state);
    walk<false>(memory, state, flows);
  } else {
    if (way == OF_VALUES) ${dual ? 'Turned' : ''}StateMemory(dfinal_state_view, item.sequence, head, first_column).load(state);
    else ${dual ? '' : 'Turned'}StateMemory(dfinal_state_view, item.sequence, head, first_column).load(state);
    walk<true>(memory, state, flows);
    if (way == OF_VALUES) ${dual ? 'Turned' : ''}StateMemory(dinitial_state_view, item.sequence, head, first_column).store(state);
  }
}

// Gradients of keys, by which what flows past chunks is made: after the others, which keep states. Block number: a slice of a head of a sequence.
KERNEL(THREADS, 1) key_gradients(${parameters('key_gradients')}) {
$if dual
  const View &q_view = C_view, &k_view = Bm_view, &v_view = x_view, &dk_view = dBm_view;
  constexpr bool reverse = false;
  constexpr float softmax_scale = 1;
$end
  const Item item(block_x(), slices, heads);
  const Tokens tokens(cum_seqlens, sequences, item.sequence, q_view.shape[1]);
  const int64_t start = item.slice * COLUMNS, head = item.head;
  if (start >= q_view.shape[3]) return;
  char* memory = dynamic_shared();
  if (thread_x() == 0) {
    Plan& plan = plan_in(memory);
    const auto rows = [&](const View& view) { return KeyRows(view, tokens, head, heads, 0, static_cast<int>(view.shape[3]), reverse); };
$if dual
    plan.gates = dual_numbers(dt_view, dt_type, A_view, a_type, dt_bias_view, bias_type, tokens, head, dt_softplus);
$else
    plan.gates = {g_view, g_type, tokens, head, reverse};
    plan.gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
$end
    plan.set(OF_KEYS, tokens, start, softmax_scale);
    plan.readers = rows(v_view), plan.writers = rows(dout_view);
    plan.values = ValueRows(q_view, tokens, head, heads, start, static_cast<int>(q_view.shape[3] - start), reverse);
    plan.own = rows(k_view), plan.written = rows(q_view);
    plan.out = {dk_view, SUMS_OF_KEYS ? key_sums : nullptr, tokens, head, heads, start, reverse};
  }
  State state = {};
  ${dual ? '' : 'Turned'}StateMemory(dfinal_state_view, item.sequence, head, start + 16 * wave()).load(state);
  const Flows flows{flow_sums, through_sums, kept_states, groups_before(cum_seqlens, tokens, item.sequence, q_view.shape[1]), head, heads,
                    static_cast<int>(start / 16) + wave(), static_cast<int>(q_view.shape[3])};
  walk<true>(memory, state, flows);
}
$if dual
#include "ssd/wave_step_gradients.h"
#include "ssd/finish_chunks.h"
$else
#include "recurrent/chunk_wave_gate_gradients.h"
#include "recurrent/chunk_wave_finish.h"
$end
