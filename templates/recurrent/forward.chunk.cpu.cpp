// recurrent, forward, on CPUs in chunks of CHUNK tokens: a work item carries the state of one sequence and head for some features of v.
//
// In a chunk that begins with the state S, with e[j, t] the factor of the gates of tokens after j up to t (over the keys; -1: the chunk's
// begin):
//   on_q[t][j] = q_t . (e[j, t] k_j)        on_k[t][j] = k_t . (e[j, t] k_j)
//   w_t        = v_t, or with beta: beta_t (v_t - [S^T (e[-1, t] k_t) + sum over j < t of on_k[t][j] w_j])
//   out_t      = S^T (e[-1, t] q_t) + sum over j <= t of on_q[t][j] w_j
//   S          becomes e[-1, end] S + sum over j of (e[j, end] k_j) w_j^T
// gv's factors are over the features of v: they multiply S^T(...) and the w_j from one token to the next.
// What does not depend on v is made once a chunk (cpu_pairs.h, amx_pairs.h). Then, for a panel of v's features after the other, the chunk's products are
// made in registers (cpu_panel.h) or on AMX (amx_panel.h).
#include "device/cpu.h"
#include "device/number/no_denormals.h"

constexpr int64_t CHUNK = ${chunk};
constexpr bool DELTA = ${delta}, VALUE_GATES = ${value_gates};
$if amx
#include "recurrent/amx_panel.h"
$else
#include "recurrent/cpu_panel.h"
$end

// Item (x, y, z): `width` features of head y of sequence z. Packed: the item after the last sequence writes zeros after its tokens.
static void recurrent(${parameters('recurrent')}, const Group& group) {
  const NoDenormals no_denormals;
  const int64_t head = group.y, sequence = group.z, first = group.x * width, heads = group.grid_y, keys = q_view.shape[3];
  const int64_t columns = v_view.shape[3] - first < width ? v_view.shape[3] - first : width;
  const Tokens tokens{cum_seqlens, sequences, sequence, q_view.shape[1]};
  const OutRows out(out_view, data_type, tokens, head, first, columns);
  if (sequence == sequences) return out.clear(tokens.count());
  const Stream stream{{q_view, data_type, tokens, head, heads, 0, keys},
                      {k_view, data_type, tokens, head, heads, 0, keys},
                      {v_view, data_type, tokens, head, heads, first, columns},
                      {gk_view, gk_type, tokens, head, heads, 0, keys},
                      {gv_view, gv_type, tokens, head, heads, first, columns},
                      {g_view, g_type, tokens, head},
                      {beta_view, beta_type, tokens, head},
                      gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers),
                      static_cast<float>(softmax_scale),
                      tokens.count(),
                      reverse,
                      l2_norm};
$if amx
  const bool keyed = is_given(gk_view), exact = !DELTA && (keyed || (!stream.gates_tokens() && !l2_norm));
  PanelScratch scratch(static_cast<float*>(group.shared), keys, up_to(columns, PANEL), keyed, exact);
$else
  const PanelScratch scratch(static_cast<float*>(group.shared), keys, up_to(columns, PANEL));
$end
  const State<float> before(initial_state_view, sequence, head, first, columns), after(final_state_view, sequence, head, first, columns);
  for (int64_t x = 0; x < columns; x += PANEL) {
    float* panel = scratch.state + x * scratch.state_rows;
    for (int64_t i = 0; i < scratch.state_rows; ++i)
      for (int64_t at = 0; at < PANEL; at += LANES)
        store_floats(panel + state_row(i) * PANEL + at,
                     before.data && i < keys ? load_some(before.data + i * before.stride + x + at, columns - x - at) : Floats{});
  }
  run_stream(stream, scratch, out);
  for (int64_t x = 0; x < columns; x += LANES)
    for (int64_t i = 0; i < keys; ++i)
      store_some(after.data + i * after.stride + x, load_floats(scratch.state + (x / PANEL * scratch.state_rows + state_row(i)) * PANEL + x % PANEL),
                 columns - x);
}
