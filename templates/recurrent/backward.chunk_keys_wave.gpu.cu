// recurrent_bwd with gates of keys, a chunk of 32 tokens at a time, on matrix instructions of a wave (MFMA, WMMA): backward.chunk_wave.gpu.cu has
// the formulas of gradients that are recurrences of their own, where what gates leave is now a factor of each key.
//
// For values a state is read and written by keys, which gates weigh as in the forward pass (chunk_wave_key_values.h). For queries and keys it is
// turned, and read and written by rows of values, which gates do not touch: they are factors of its columns (chunk_wave_key_walk.h). The walk back
// adds up what flows past gates, too (chunk_wave_key_flows.h).
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${features};  // of rows that read states, and write them: of keys or of values; up to 15 more than there are: zeros
constexpr int WAVES = ${waves}, THREADS = WAVES * WAVE;
// l2_norm; gradients of log gates are asked for; a head's gradients of q and k, or of v, go to memory as f32 first.
constexpr bool NORMED = ${normed}, GATED = ${gated}, SUMS_OF_KEYS = ${normed or shared_heads}, SUMS_OF_VALUES = ${shared_heads};
constexpr bool NARROW = ${E == 'f16'};
constexpr int PARTS = ${parts > 2 ? 3 : 2}, READ_PARTS = ${parts};  // elements of a number that is written to a turned state, and that is read
constexpr int KEPT = ${kept};                                // chunks for which one state is kept for gates' gradients
static_assert(2 * KEYS <= THREADS, "each key of a part has a thread");
#include "recurrent/chunk_wave_keys.h"
#include "recurrent/gradient_rows.h"
#include "recurrent/chunk_wave_walk_rows.h"
#include "recurrent/chunk_wave_key_walk.h"

// Which columns of a head of a sequence a block has.
struct Item {
  int64_t sequence, head, start;
  Item(int64_t slices, int64_t heads)
      : sequence(block_x() / slices / heads), head(block_x() / slices % heads), start(block_x() % slices * COLUMNS) {}
};
#include "recurrent/chunk_wave_key_values.h"

// One way through some columns of keys of a head of a sequence.
template <bool BACK> static inline void make_gradients(${parameters('query_gradients')}) {
  const Item item(slices, heads);
  if (item.start >= q_view.shape[3]) return;
  const int64_t head = item.head, start = item.start, length = q_view.shape[1];
  const Tokens tokens(cum_seqlens, sequences, item.sequence, length);
  const bool last_first = BACK != reverse;
  char* memory = dynamic_shared();
  if (thread_x() == 0) {
    const auto rows = [&](const View& view) { return KeyRows(view, tokens, head, heads, 0, static_cast<int>(view.shape[3]), last_first); };
    const auto columns = [&](const View& view) {
      return ValueRows(view, tokens, head, heads, start, static_cast<int>(view.shape[3] - start), last_first);
    };
    const int64_t token = tokens.row * length + (last_first ? tokens.end - 1 : tokens.first), kept_stride = heads * SLICES * 16 * KEYS;
    GradientRow gates(dgk_view, gk_type, tokens.row, last_first ? tokens.end - 1 : tokens.first, head);
    gates.base += start;
    const KeyFlows flows = {{q_view, read_flows, tokens, head, heads, start, last_first}, gates,
                            !is_given(dgk_view) ? 0 : last_first ? -dgk_view.strides[1] : dgk_view.strides[1],
                            token_flows + (token * heads + head) * SLICES + start / 16,
                            kept_states + groups_before(cum_seqlens, tokens, item.sequence, length) * kept_stride + (head * SLICES + start / 16) * 16 * KEYS,
                            kept_stride, static_cast<int>(last_first ? -heads * SLICES : heads * SLICES), static_cast<int>(q_view.shape[3] - start)};
    const float scale = softmax_scale;
    walk_plan_in(memory) = {rows(BACK ? v_view : dout_view), rows(BACK ? dout_view : v_view), rows(BACK ? k_view : q_view), rows(BACK ? q_view : k_view),
                            columns(BACK ? k_view : q_view), columns(BACK ? q_view : k_view),
                            {g_view, g_type, tokens, head, last_first}, {gk_view, gk_type, tokens, head, start, last_first},
                            {BACK ? dk_view : dq_view, !SUMS_OF_KEYS ? nullptr : BACK ? key_sums : query_sums, tokens, head, heads, start, last_first},
                            flows, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), BACK ? 1 : scale, BACK ? scale : 1,
                            static_cast<int>(tokens.end - tokens.first)};
  }
  State state = {};
  TurnedStateMemory(BACK ? dfinal_state_view : initial_state_view, item.sequence, head, start + 16 * wave()).load(state);
  walk<BACK>(memory, state);
}
// Block number: some columns of keys of a head of a sequence. Queries go first: states that they keep, and what they read, go into gates' gradients.
KERNEL(THREADS, 1) query_gradients(${parameters('query_gradients')}) {
  make_gradients<false>(q_view, k_view, v_view, dout_view, g_view, g_gamma_view, gk_view, initial_state_view, dfinal_state_view, cum_seqlens,
                        dq_view, dk_view, dgk_view, read_flows, token_flows, kept_states, query_sums, key_sums, sequences, heads, slices,
                        g_type, gamma_type, gk_type, softmax_scale, layer_idx, num_layers, reverse);
}
KERNEL(THREADS, 1) key_gradients(${parameters('query_gradients')}) {
  make_gradients<true>(q_view, k_view, v_view, dout_view, g_view, g_gamma_view, gk_view, initial_state_view, dfinal_state_view, cum_seqlens,
                       dq_view, dk_view, dgk_view, read_flows, token_flows, kept_states, query_sums, key_sums, sequences, heads, slices,
                       g_type, gamma_type, gk_type, softmax_scale, layer_idx, num_layers, reverse);
}

// Gradients of tokens' gates, sums over keys. A warp has 32 tokens of all rows of the batch, of a head.
KERNEL(128, 1) token_gradients(${parameters('token_gradients')}) {
  const int64_t number = block_x() * 4 + warp(), head = number % heads, token = number / heads * CHUNK + lane(), length = q_view.shape[1];
  if (number >= chunks * heads) return;
  const int64_t row = token / length, place = token % length;
  const bool used = token < all_tokens && (!cum_seqlens || place < cum_seqlens[sequences]);
  float sum = 0;
  for (int part = 0; used && 16 * part < q_view.shape[3]; ++part) sum += token_flows[(token * heads + head) * SLICES + part];
  if (used && is_given(dg_view)) GradientRow(dg_view, g_type, row, place, head).store(0, sum);
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) sum += shuffle_xor(sum, mask);
  if (lane() == 0) gate_sums[number] = sum;
}
#include "recurrent/chunk_wave_finish.h"
