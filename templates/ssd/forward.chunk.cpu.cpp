// ssd, forward, on CPUs in chunks of CHUNK tokens: a work item carries the states of some heads of a group for some features of x. The words are
// recurrent/forward.chunk.cpu.cpp's: q is C, k is Bm, v is x. In a chunk that begins with the state S, with e[j, t] what is left at token t of what
// token j has written (-1: before the chunk):
//   out_t = e[-1, t] S^T C_t + sum over j <= t of (C_t . Bm_j) e[j, t] dt_j x_j + D x_t
//   S     becomes e[-1, end] S + sum over j of Bm_j (e[j, end] dt_j x_j)^T
#include "device/cpu.h"
#include "device/number/no_denormals.h"

constexpr int64_t CHUNK = ${chunk};
constexpr bool DELTA = false, VALUE_GATES = false;
$if amx
#include "ssd/amx_heads.h"
$else
#include "ssd/cpu_heads.h"
$end

// Item (x, y, z): `width` features of `at_once` heads, or those left of their group, of sequence z: part y % parts of group y / parts.
// Packed: the item after the last sequence writes zeros after its tokens.
static void recurrent(${parameters('recurrent')}, const Group& group) {
  const NoDenormals no_denormals;
  const int64_t readers = heads / C_view.shape[2], part = group.y % parts, first_head = group.y / parts * readers + part * at_once;
  const int64_t own_heads = readers - part * at_once < at_once ? readers - part * at_once : at_once;
  const int64_t sequence = group.z, first = group.x * width, states = C_view.shape[3];
  const int64_t columns = x_view.shape[3] - first < width ? x_view.shape[3] - first : width;
  const Tokens tokens{cum_seqlens, sequences, sequence, C_view.shape[1]};
  const View none{nullptr, -1};
  const auto out_of = [&](int64_t head) {
    return SkipRows{{out_view, data_type, tokens, head, first, columns},
                    {x_view, data_type, tokens, head, heads, first, columns},
                    is_given(D_view),
                    number_of_head(D_view, d_type, head)};
  };
  if (sequence == sequences) {
    for (int64_t i = 0; i < own_heads; ++i) out_of(first_head + i).clear(tokens.count());
    return;
  }
  // Rows of C and Bm are the first head's, so that they are asked for once.
  const auto stream_of = [&](int64_t i) {
    const int64_t head = first_head + i;
    return Stream{{i == 0 ? C_view : none, data_type, tokens, head, heads, 0, states},
                  {i == 0 ? Bm_view : none, data_type, tokens, head, heads, 0, states},
                  {x_view, data_type, tokens, head, heads, first, columns},
                  {none, 0, tokens, head, heads, 0, states},
                  {none, 0, tokens, head, heads, first, columns},
                  {none, 0, tokens, head},
                  {none, 0, tokens, head},
                  0,
                  1,
                  tokens.count(),
                  false,
                  false,
                  {{dt_view, dt_type, tokens, head},
                   number_of_head(dt_bias_view, bias_type, head),
                   number_at(A_view.data, a_type, head),
                   dt_softplus}};
  };
  const int64_t panels = up_to(columns, PANEL) / PANEL;
  PanelScratch s(static_cast<float*>(group.shared), states, own_heads * panels * PANEL${amx ? ', false, false' : ''});
  const auto state_of = [&](int64_t i) { return s.state + i * panels * PANEL * s.state_rows; };
  const auto place_of = [&](int64_t i) {
    return [&s, state = state_of(i)](int64_t x, int64_t key) { return state + (x / PANEL * s.state_rows + state_row(key)) * PANEL + x % PANEL; };
  };
  __builtin_memset(s.state, 0, own_heads * panels * PANEL * s.state_rows * sizeof(float));
  for (int64_t i = 0; i < own_heads; ++i)
    DualState<float>(initial_state_view, sequence, first_head + i, first, columns).load_rows(panels * PANEL, states, place_of(i));
  begin_heads(s, own_heads * panels);
  for (int64_t start = 0; start < tokens.count(); start += CHUNK) {
    const int64_t left = tokens.count() - start, count = left < CHUNK ? left : CHUNK, rows = up_to(count, ${amx ? 'SIDE' : 'ROWS'});
    prepare_group(stream_of(0), s, start, count, rows);
    for (int64_t i = 0; i < own_heads; ++i) run_head(stream_of(i), s, state_of(i), start, count, rows, out_of(first_head + i));
  }
  end_heads();
  for (int64_t i = 0; i < own_heads; ++i)
    DualState<float>(final_state_view, sequence, first_head + i, first, columns).store_rows(panels * PANEL, states, place_of(i));
}
