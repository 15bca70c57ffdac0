// ssd_bwd on CPUs in chunks of CHUNK tokens: a work item goes through one sequence for some heads of a group, forwards to keep the states before
// every chunk, then chunk by chunk from the last.
//
// In a chunk that begins with the state S [P, N], with dS the gradient of the state after it, e[j, t] what is left at token t of what token j has
// written (-1: the chunk's begin), pairs[t][j] = C_t . Bm_j, and met[t][j] = dout_t . x_j:
//   dC_t  = e[-1, t] S^T dout_t + sum over j <= t of e[j, t] dt_j met[t][j] Bm_j
//   dBm_j = e[j, end] dt_j dS^T x_j + sum over t >= j of e[j, t] dt_j met[t][j] C_t
//   dw_j  = e[j, end] dS Bm_j + sum over t >= j of e[j, t] pairs[t][j] dout_t         dx_j = dt_j dw_j + D dout_j
//   dS before = e[-1, end] dS + sum over t of e[-1, t] dout_t C_t^T
// dt_j as a factor has x_j . dw_j. The log of what token s leaves has all that goes past it: from S to dS, from S to readers from s on, from
// writers before s to dS, and from writers before s to readers from s on.
// Heads of a group share rows, pairs, and sums of what multiplies rows of Bm and C.
#include "device/cpu.h"
#include "device/number/no_denormals.h"

constexpr int64_t CHUNK = ${chunk};
constexpr bool DELTA = false, VALUE_GATES = false;
constexpr int64_t MOST_HEADS = 8;  // a work item
#include "ssd/cpu_gradient_heads.h"

static void load_state(const DualState<float>& from, Rectangle to, int64_t features, int64_t columns) {
  __builtin_memset(to.data, 0, features * to.row * sizeof(float));
  for (int64_t i = 0; from.data && i < from.count; ++i)
    for (int64_t j = 0; j < columns; j += LANES) store_floats(to.at(i, j), load_some(from.data + i * from.stride + j, columns - j));
}

// Item (x, y): heads of sequence y: `at_once`, or those left of their group, part x % parts of group x / parts. `saved` has room for the states
// of chunks_before(y).. of each head.
static void chunks(${parameters('chunks')}, const Group& group) {
  const NoDenormals no_denormals;
  const int64_t readers = heads / C_view.shape[2], part = group.x % parts, first_head = group.x / parts * readers + part * at_once;
  const int64_t own_heads = readers - part * at_once < at_once ? readers - part * at_once : at_once;
  const int64_t sequence = group.y, length = C_view.shape[1], states = C_view.shape[3], features = x_view.shape[3];
  const Tokens tokens{cum_seqlens, sequences, sequence, length};
  const View none{nullptr, -1};
  float* const scratch = static_cast<float*>(group.shared);
  const Scratch s(scratch, states, 0);
  const Work work(scratch + first_floats, features, s.row);
  const int64_t size = work.features * s.row, count = (tokens.count() + CHUNK - 1) / CHUNK;
  const auto steps_of = [&](int64_t head) {
    return Steps{{dt_view, dt_type, tokens, head},
                 number_of_head(dt_bias_view, bias_type, head),
                 number_at(A_view.data, a_type, head),
                 dt_softplus};
  };
  const auto head_at = [&](int64_t i) {
    const int64_t head = first_head + i;
    // Rows of C and Bm are the first head's, so that they are asked for once.
    const Stream stream{{i == 0 ? C_view : none, data_type, tokens, head, heads, 0, states},
                        {i == 0 ? Bm_view : none, data_type, tokens, head, heads, 0, states},
                        {x_view, data_type, tokens, head, heads, 0, features},
                        {none, 0, tokens, head, heads, 0, states},
                        {none, 0, tokens, head, heads, 0, features},
                        {none, 0, tokens, head},
                        {none, 0, tokens, head},
                        0,
                        1,
                        tokens.count(),
                        false,
                        false,
                        steps_of(head)};
    return Head{stream,
                {dout_view, data_type, tokens, head, heads, 0, features},
                {ddt_view, dt_type, tokens.row, tokens.first, head},
                {dx_view, data_type, tokens.row, tokens.first, head},
                ddt_view.strides[1],
                dx_view.strides[1],
                number_of_head(D_view, d_type, head),
                {work.states + i * size, s.row},
                0,
                0,
                0};
  };
  const auto chunk_at = [&](int64_t number, int64_t step) {
    const int64_t start = number * CHUNK, in_use = tokens.count() - start < CHUNK ? tokens.count() - start : CHUNK, rows = up_to(in_use, ROWS);
    return Chunk{start, in_use, rows, up_to(rows, LANES), start + step * CHUNK};
  };
  const int64_t chunks_before = cum_seqlens ? tokens.first / CHUNK + sequence : sequence * ((length + CHUNK - 1) / CHUNK);
  const auto saved_at = [&](int64_t number, int64_t i) { return saved + ((chunks_before + number) * heads + first_head + i) * size; };
  double added[MOST_HEADS][3] = {};
  for (int64_t i = 0; i < own_heads; ++i)
    load_state({initial_state_view, sequence, first_head + i, 0, features}, {work.states + i * size, s.row}, work.features, states);
  for (int64_t number = 0; number < count; ++number) {
    const Chunk c = chunk_at(number, 1);
    if (number + 1 < count) load_group(head_at(0).stream, s, c, false);
    for (int64_t i = 0; i < own_heads; ++i) {
      __builtin_memcpy(saved_at(number, i), work.states + i * size, size * sizeof(float));
      if (number + 1 < count) pass_forward(head_at(i), s, work, c);
    }
  }
  for (int64_t i = 0; i < own_heads; ++i)
    load_state({dfinal_state_view, sequence, first_head + i, 0, features}, {work.states + i * size, s.row}, work.features, states);
  const int64_t first_token = tokens.row * length + tokens.first, sums_stride = group.grid_x * 2 * states;
  for (int64_t number = count - 1; number >= 0; --number) {
    const Chunk c = chunk_at(number, -1);
    load_group(head_at(0).stream, s, c, true);
    __builtin_memset(work.d_c.data, 0, CHUNK * s.row * sizeof(float)), __builtin_memset(work.d_b.data, 0, CHUNK * s.row * sizeof(float));
    __builtin_memset(work.shared.data, 0, CHUNK * COLUMNS * sizeof(float));
    for (int64_t i = 0; i < own_heads; ++i) {
      Head head = head_at(i);
      pass_back(head, s, work, c, {saved_at(number, i), s.row});
      added[i][0] += head.of_rate, added[i][1] += head.of_bias, added[i][2] += head.of_skip;
    }
    store_group(s, work, c, group_sums + first_token * sums_stride + group.x * 2 * states, sums_stride);
  }
  for (int64_t i = 0; i < own_heads; ++i) {
    for (int of = 0; of < 3; ++of) head_sums[(sequence * heads + first_head + i) * 3 + of] = added[i][of];
    if (!is_given(dinitial_state_view)) continue;
    const DualState<float> to(dinitial_state_view, sequence, first_head + i, 0, features);
    for (int64_t p = 0; p < features; ++p)
      for (int64_t j = 0; j < states; j += LANES)
        store_some(to.data + p * to.stride + j, load_floats(work.states + i * size + p * s.row + j), states - j);
  }
}

// Item (x, y): token x of row y of the batch: gradients of rows of Bm and C; of a token of no sequence all are 0.
static void finish(${parameters('finish')}, const Group& group) {
  const int64_t token = group.x, row = group.y, length = group.grid_x, groups = C_view.shape[2], states = C_view.shape[3], features = x_view.shape[3];
  const bool used = !cum_seqlens || token < cum_seqlens[sequences];
  const float* sums = group_sums + (row * length + token) * groups * parts * 2 * states;
  for (int64_t shared = 0; shared < groups; ++shared) {
    store_row(GradientRow(dC_view, data_type, row, token, shared), Sums{sums, used, 0, 2 * states, shared * parts, parts}, states);
    store_row(GradientRow(dBm_view, data_type, row, token, shared), Sums{sums + states, used, 0, 2 * states, shared * parts, parts}, states);
  }
  for (int64_t head = 0; !used && head < heads; ++head) {
    const GradientRow dx(dx_view, data_type, row, token, head);
    for (int64_t i = 0; i < features; i += LANES) dx.store(i, Floats{}, features - i);
    GradientRow(ddt_view, dt_type, row, token, head).store(0, 0.0f);
  }
}

// Item x: the gradients of head x's A, dt_bias and D, over all sequences.
static void sum_heads(${parameters('sum_heads')}, const Group& group) {
  double sums[3] = {};
  for (int64_t sequence = 0; sequence < sequences; ++sequence)
    for (int of = 0; of < 3; ++of) sums[of] += head_sums[(sequence * heads + group.x) * 3 + of];
  GradientRow(dA_view, a_type, 0, 0, 0).store(group.x, static_cast<float>(sums[0]));
  if (is_given(ddt_bias_view)) GradientRow(ddt_bias_view, bias_type, 0, 0, 0).store(group.x, static_cast<float>(sums[1]));
  if (is_given(dD_view)) GradientRow(dD_view, d_type, 0, 0, 0).store(group.x, static_cast<float>(sums[2]));
}
