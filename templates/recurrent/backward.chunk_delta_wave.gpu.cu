// recurrent_bwd with the delta rule, a chunk of 32 tokens at a time, on matrix instructions of a wave (MFMA, WMMA).
//
// backward.chunk.gpu.cu has the formulas. With m_t what v_t differs by from what its key reads, a token writes u_t = beta_t m_t, and x_t is the
// gradient of u_t: that of v_t is beta_t x_t, that of beta_t is x_t . m_t. The launch `writes` makes m and x, rows of f32, by two walks through
// each sequence, forward with the state S and backward with its gradient D; a wave carries 16 columns of values. Each inverts its chunk's system
// (chunk_wave_delta.h), the latter transposed:
//   m_t = v_t - S^T k_t - sum over s < t of (k_t . k_s) beta_s m_s                   S takes in k_t u_t^T
//   x_s = D^T k_s + sum over t >= s of scale (q_t . k_s) dout_t - sum over t > s of (k_t . k_s) beta_t x_t
//                                                                                     D takes in scale q_t dout_t^T - k_t (beta_t x_t)^T
// (here without what gates leave from token to token). The launches `query_gradients` and `key_gradients` then go the same ways with turned states,
// a wave carries 16 columns of keys (chunk_wave_delta_walk.h):
//   dq_t = scale S dout_t      dk_t = D u_t - S (beta_t x_t)
//
// What flows past a token's log gate differs from what flows past the next one's by dout_t . out_t - beta_t x_t . v_t, where out is made again;
// past the end of some chunks flows the product of S and D there.
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${features};  // of rows of keys and of values; up to 15 more than there are: zeros
constexpr int WAVES = ${waves}, THREADS = WAVES * WAVE;
// l2_norm; gradients of log gates are asked for; a head's gradients of q, or of v, go to memory as f32 first.
constexpr bool NORMED = ${normed}, GATED = ${gated}, SUMS_OF_KEYS = ${normed or shared_heads}, SUMS_OF_VALUES = ${shared_heads};
constexpr bool NARROW = ${E == 'f16'};
constexpr int PARTS = 3;       // elements of a number of a state that `writes` carries
constexpr int KEPT = ${kept};  // chunks for which one state is kept for gates' gradients
#include "recurrent/chunk_wave_delta.h"
#include "recurrent/gradient_rows.h"
#include "recurrent/chunk_wave_walk_rows.h"
#include "recurrent/chunk_wave_delta_writes.h"
#include "recurrent/chunk_wave_delta_walk.h"

// Which way a block goes, and through what.
struct Item {
  bool back;
  int64_t sequence, head, start;
  Item(int64_t number, int64_t slices, int64_t heads)
      : back(number % 2 == 1), sequence(number / 2 / slices / heads), head(number / 2 / slices % heads), start(number / 2 % slices * COLUMNS) {}
};

// Block number: a way through some columns of values of a head of a sequence.
KERNEL(THREADS, 1) writes(${parameters('writes')}) {
  const Item item(block_x(), slices, heads);
  if (item.start >= v_view.shape[3]) return;
  const int64_t head = item.head, length = q_view.shape[1];
  const Tokens tokens(cum_seqlens, sequences, item.sequence, length);
  char* memory = dynamic_shared();
  if (thread_x() == 0) {
    const int keys = static_cast<int>(q_view.shape[3]), columns = static_cast<int>(v_view.shape[3] - item.start);
    float* rows = written_rows + (item.back ? v_view.shape[3] * heads * all_tokens : 0);
    write_plan_in(memory) = {{q_view, tokens, head, heads, 0, keys, reverse}, {k_view, tokens, head, heads, 0, keys, reverse},
                             {v_view, tokens, head, heads, item.start, columns, reverse}, {dout_view, tokens, head, heads, item.start, columns, reverse},
                             {g_view, g_type, tokens, head, reverse}, {beta_view, beta_type, tokens, head, reverse},
                             {v_view, rows, tokens, head, heads, item.start, reverse},
                             {dv_view, SUMS_OF_VALUES ? value_sums : nullptr, tokens, head, heads, item.start, reverse},
                             gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), static_cast<float>(softmax_scale),
                             static_cast<int>(tokens.end - tokens.first)};
  }
  const int64_t first_column = item.start + 16 * wave();
  const KeptStates kept{kept_states, flow_sums, groups_before(cum_seqlens, tokens, item.sequence, length), head, heads,
                        static_cast<int>(first_column / 16), first_column < v_view.shape[3]};
  State state = {};
  if (item.back) {
    StateMemory(dfinal_state_view, item.sequence, head, first_column).load(state);
    walk_writes<true>(memory, state, kept);
    StateMemory(dinitial_state_view, item.sequence, head, first_column).store(state);
  } else {
    StateMemory(initial_state_view, item.sequence, head, first_column).load(state);
    walk_writes<false>(memory, state, kept);
  }
}

// One way through some columns of keys of a head of a sequence.
template <bool BACK> static inline void make_gradients(${parameters('query_gradients')}) {
  const Item item(2 * block_x(), slices, heads);
  if (item.start >= q_view.shape[3]) return;
  const int64_t head = item.head;
  const Tokens tokens(cum_seqlens, sequences, item.sequence, q_view.shape[1]);
  char* memory = dynamic_shared();
  if (thread_x() == 0) {
    const int keys = static_cast<int>(q_view.shape[3]), values = static_cast<int>(v_view.shape[3]), columns = static_cast<int>(keys - item.start);
    const int64_t all_values = v_view.shape[3] * heads * all_tokens, all_keys = q_view.shape[3] * heads * all_tokens;
    const auto rows = [&](const View& view) { return KeyRows(view, tokens, head, heads, 0, keys, reverse); };
    const auto written = [&](float* from) { return WalkRows(v_view, from, tokens, head, heads, 0, reverse); };
    walk_plan_in(memory) = {{dout_view, tokens, head, heads, 0, values, reverse}, rows(q_view), rows(k_view),
                            {q_view, tokens, head, heads, item.start, columns, reverse}, {k_view, tokens, head, heads, item.start, columns, reverse},
                            {g_view, g_type, tokens, head, reverse}, {beta_view, beta_type, tokens, head, reverse},
                            written(written_rows), written(written_rows + all_values),
                            {dq_view, SUMS_OF_KEYS ? query_sums : nullptr, tokens, head, heads, item.start, reverse},
                            {dk_view, key_sums + (BACK ? all_keys : 0), tokens, head, heads, item.start, reverse},
                            gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), static_cast<float>(softmax_scale),
                            static_cast<int>(tokens.end - tokens.first)};
  }
  State state = {};
  TurnedStateMemory(BACK ? dfinal_state_view : initial_state_view, item.sequence, head, item.start + 16 * wave()).load(state);
  if constexpr (BACK) walk_back(memory, state);
  else walk_forward(memory, state);
}
// Block number: some columns of keys of a head of a sequence. Two launches, as one for both ways would have too few registers.
KERNEL(THREADS, 1) query_gradients(${parameters('query_gradients')}) {
  make_gradients<false>(q_view, k_view, v_view, dout_view, beta_view, g_view, g_gamma_view, initial_state_view, dfinal_state_view, cum_seqlens, dq_view, dk_view, written_rows,
                       query_sums, key_sums, sequences, heads, slices, all_tokens, beta_type, g_type, gamma_type, softmax_scale, layer_idx, num_layers, reverse);
}
KERNEL(THREADS, 1) key_gradients(${parameters('key_gradients')}) {
  make_gradients<true>(q_view, k_view, v_view, dout_view, beta_view, g_view, g_gamma_view, initial_state_view, dfinal_state_view, cum_seqlens, dq_view, dk_view, written_rows,
                       query_sums, key_sums, sequences, heads, slices, all_tokens, beta_type, g_type, gamma_type, softmax_scale, layer_idx, num_layers, reverse);
}
#include "recurrent/chunk_wave_finish.h"
#include "recurrent/chunk_wave_delta_gates.h"
