// recurrent, forward, token by token: a warp carries the state of one sequence and head for COLUMNS features of v, in registers.
//
// Lanes are PARTS parts of GROUPS lanes. A lane has every PARTS-th key and VEC features; sums over the keys go over the parts. While a token
// is computed the next one's rows are on their way.
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int PARTS = ${parts}, GROUPS = WARP / PARTS, VEC = ${vec}, COLUMNS = GROUPS * VEC;
constexpr int KEYS = ${keys_a_lane};  // of a lane
constexpr int WARPS = ${warps};
constexpr bool DELTA = ${delta}, KEY_GATES = ${key_gates}, VALUE_GATES = ${value_gates};
#include "recurrent/recurrent_token.h"

// The state after the token; out: the lane's features of state^T q.
static inline void step(float (&state)[KEYS][VEC], const Token& x, float (&out)[VEC]) {
  decay(state, x);
#pragma unroll
  for (int c = 0; c < VEC; ++c) {
    float w = x.v[c];
    if constexpr (DELTA) {
      float seen = 0;
#pragma unroll
      for (int j = 0; j < KEYS; ++j) seen += x.k[j] * state[j][c];
      w = x.beta * (w - sum_over_parts(seen));
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      state[j][c] += x.k[j] * w;
      sum += x.q[j] * state[j][c];
    }
    out[c] = sum_over_parts(sum);
  }
}

// Warp number x of the grid: slice x % slices of a head of a sequence. Packed: those of the sequence after the last write zeros behind it.
KERNEL(32 * WARPS, 1) recurrent(${parameters('recurrent')}) {
$if dual
  const View &q_view = C_view, &k_view = Bm_view, &v_view = x_view;
  constexpr bool reverse = false, l2_norm = false, whole_packs = false;
  constexpr float softmax_scale = 1;
$end
  const int64_t number = static_cast<int64_t>(block_x()) * WARPS + warp();
  if (number >= warps_needed) return;
  const int64_t slice = number % slices, head = number / slices % heads, sequence = number / slices / heads;
  const int part = lane() / GROUPS;
  const int64_t column = slice * COLUMNS + lane() % GROUPS * VEC, left = v_view.shape[3] - column;
  const int columns = left < 0 ? 0 : left < VEC ? static_cast<int>(left) : VEC;
  const Tokens tokens(cum_seqlens, sequences, sequence, q_view.shape[1]);
  const int64_t count = tokens.end - tokens.first;
  Element* out = static_cast<Element*>(out_view.data) + tokens.row * out_view.strides[0] + tokens.first * out_view.strides[1] +
                 head * out_view.strides[2] + column;
  if (sequence == sequences) {
    for (int64_t t = part; t < count; t += PARTS)
      for (int c = 0; c < columns; ++c) out[t * out_view.strides[1] + c] = from_float<Element>(0.0f);
    return;
  }

  const int keys = static_cast<int>(q_view.shape[3]);
$if dual
  const Stream stream{{q_view, tokens, head, heads, 0}, {k_view, tokens, head, heads, 0}, {v_view, tokens, head, heads, column},
                      {}, {}, {}, {}, 0, keys, columns, part,
                      {{dt_view, dt_type, tokens, head, 0}, number_of_head(dt_bias_view, bias_type, head), number_at(A_view.data, a_type, head), dt_softplus}};
  const float skip = number_of_head(D_view, d_type, head);
$else
  const Stream stream{{q_view, tokens, head, heads, 0}, {k_view, tokens, head, heads, 0}, {v_view, tokens, head, heads, column},
                      {gk_view, gk_type, tokens, head, 0}, {gv_view, gv_type, tokens, head, column}, {g_view, g_type, tokens, head, 0},
                      {beta_view, beta_type, tokens, head, 0},
                      gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), keys, columns, part};
$end
  float state[KEYS][VEC];
$if in_place
  const ${dual ? 'DualColumns' : 'StateColumns'}<${half_state ? 'bfloat16' : 'float'}> before(state_view, sequence, head, column), after = before;
$else
  const ${dual ? 'DualColumns' : 'StateColumns'}<float> before(initial_state_view, sequence, head, column), after(final_state_view, sequence, head, column);
$end
  before.load<PARTS>(state, keys, part, columns, whole_packs);
  const float scale = softmax_scale;
  Token next = {};
  if (count > 0) next = stream.load(reverse ? count - 1 : 0);
#pragma unroll 1
  for (int64_t t = 0; t < count; ++t) {
    Token now = next;
    const int64_t place = reverse ? count - 1 - t : t;
    if (t + 1 < count) next = stream.load(reverse ? place - 1 : place + 1);
    scale_row(now.q, scale, l2_norm);
    scale_row(now.k, 1, l2_norm);
    float row[VEC];
    step(state, now, row);
$if dual
#pragma unroll
    for (int c = 0; c < VEC && is_given(D_view); ++c) row[c] += skip * now.v[c];
$end
    if (part == 0) {
#pragma unroll
      for (int c = 0; c < VEC; ++c)
        if (c < columns) out[place * out_view.strides[1] + c] = from_float<Element>(row[c]);
    }
  }
  after.store<PARTS>(state, keys, part, columns, whole_packs);
}
