// recurrent, forward, on CPUs for a few tokens a sequence: the state is read where it lies, and written there. With beta a token reads it
// twice: first from memory, for what the token's key reads; then from the caches, while it asks for the state of the next head.
#include "device/cpu.h"
#include "device/number/math.h"
#include "device/number/narrow.h"
#include "recurrent/recurrent_decay.h"
#include "recurrent/recurrent_rows.h"

constexpr bool DELTA = ${delta}, VALUE_GATES = ${value_gates};
constexpr int ROWS = 4;  // of the state at once
template <int COUNT>
struct RowCount {};

// Rows over the keys have whole groups of ROWS, zeros after the last; those over the values whole vectors.
struct Token {
  float *q, *k, *decay, *decay_rest;  // decay: of the keys' gates, in two parts (split_exp)
  float *v, *seen, *out, *v_decay, *v_decay_rest;
};

static int64_t up_to(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

static inline Floats decayed(const Token& token, Floats was, int64_t i, int64_t x) {
  Floats left = was * token.decay[i] + was * token.decay_rest[i];
  if (VALUE_GATES) left = left * load_floats(token.v_decay + x) + left * load_floats(token.v_decay_rest + x);
  return left;
}

using Stored = ${half_state ? 'bfloat16' : 'float'};
// Columns of one head's state.
struct Part {
  const Stored* from;
  Stored* to;
  int64_t from_stride, to_stride, keys, columns;
};

// seen = what the token's key reads from the decayed state.
static void see(const Token& token, const Part& part) {
  __builtin_memset(token.seen, 0, part.columns * sizeof(float));
  int64_t i = 0;
  const auto rows = [&]<int COUNT>(RowCount<COUNT>) {
    float read[COUNT];
    for (int r = 0; r < COUNT; ++r) read[r] = token.k[i + r] * (token.decay[i + r] + token.decay_rest[i + r]);
    for (int64_t x = 0; x < part.columns; x += LANES) {
      Floats sum = load_floats(token.seen + x);
#pragma GCC unroll 4
      for (int r = 0; r < COUNT; ++r) sum += read[r] * load_floats(part.from + (i + r) * part.from_stride + x);
      store_floats(token.seen + x, sum);
    }
    i += COUNT;
  };
  while (i + ROWS <= part.keys) rows(RowCount<ROWS>{});
  while (i < part.keys) rows(RowCount<1>{});
  for (int64_t x = 0; VALUE_GATES && x < part.columns; x += LANES)
    store_floats(token.seen + x, load_floats(token.seen + x) * (load_floats(token.v_decay + x) + load_floats(token.v_decay_rest + x)));
}

// The state after the token, and what its query reads. v holds what the token writes.
static void write_state(const Token& token, const Part& part, bool is_last) {
  __builtin_memset(token.out, 0, part.columns * sizeof(float));
  int64_t i = 0;
  const auto rows = [&]<int COUNT>(RowCount<COUNT>) {
    for (int64_t x = 0; x < part.columns; x += LANES) {
      Floats sum = load_floats(token.out + x);
      const Floats w = load_floats(token.v + x);
#pragma GCC unroll 4
      for (int r = 0; r < COUNT; ++r) {
        const Stored* from = part.from + (i + r) * part.from_stride + x;
        if (DELTA && is_last && x % 16 == 0) __builtin_prefetch(from + part.keys * part.from_stride, 0, 2);
        const Floats state = decayed(token, load_floats(from), i + r, x) + token.k[i + r] * w;
        sum += token.q[i + r] * state;
        store_elements(part.to + (i + r) * part.to_stride + x, state);
      }
      store_floats(token.out + x, sum);
    }
    i += COUNT;
  };
  while (i + ROWS <= part.keys) rows(RowCount<ROWS>{});
  while (i < part.keys) rows(RowCount<1>{});
}

// Item (x, y, z): `width` features, a multiple of a vector, of head y of sequence z. Packed: the item after the last sequence writes zeros.
static void recurrent(${parameters('recurrent')}, const Group& group) {
  const int64_t head = group.y, sequence = group.z, first = group.x * width, heads = group.grid_y, keys = q_view.shape[3];
  const int64_t columns = v_view.shape[3] - first < width ? v_view.shape[3] - first : width;
  const Tokens tokens{cum_seqlens, sequences, sequence, q_view.shape[1]};
  const OutRows out(out_view, data_type, tokens, head, first, columns);
  if (sequence == sequences) return out.clear(tokens.count());
  const Rows q(q_view, data_type, tokens, head, heads, 0, keys), k(k_view, data_type, tokens, head, heads, 0, keys);
  const Rows v(v_view, data_type, tokens, head, heads, first, columns), gk(gk_view, gk_type, tokens, head, heads, 0, keys);
  const Rows gv(gv_view, gv_type, tokens, head, heads, first, columns);
  const Numbers g(g_view, g_type, tokens, head), beta(beta_view, beta_type, tokens, head);
  const float gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
  float* next = static_cast<float*>(group.shared);
  const auto take = [&next](int64_t floats) { return (next += floats) - floats; };
  const int64_t key_row = up_to(keys, 16);
  const Token token{take(key_row), take(key_row), take(key_row), take(key_row), take(width),
                    take(width),   take(width),   take(width),   take(width)};
$if in_place
  const State<Stored> before(state_view, sequence, head, first, columns), after = before;
$else
  const State<float> before(initial_state_view, sequence, head, first, columns), after(final_state_view, sequence, head, first, columns);
$end
  Part part{before.data, after.data, before.stride, after.stride, keys, columns};
  if (part.from != part.to && (!part.from || tokens.count() == 0)) {
    for (int64_t i = 0; i < keys; ++i)
      for (int64_t x = 0; x < columns; x += LANES)
        store_elements(part.to + i * part.to_stride + x, part.from ? load_floats(part.from + i * part.from_stride + x) : Floats{});
    part.from = part.to, part.from_stride = part.to_stride;
  }
  for (int64_t t = 0; t < tokens.count(); ++t) {
    const int64_t at = reverse ? tokens.count() - 1 - t : t;
    load_scaled(q.row(at), token.q, static_cast<float>(softmax_scale), l2_norm);
    load_scaled(k.row(at), token.k, 1, l2_norm);
    const float gate = g.at(at) + gamma;
    for (int64_t i = 0; i < keys; i += LANES) {
      const SplitExp decay = split_exp(gk.row(at).load(i) + gate);
      store_floats(token.decay + i, decay.base);
      store_floats(token.decay_rest + i, decay.rest);
    }
    for (int64_t x = 0; x < columns; x += LANES) {
      store_floats(token.v + x, v.row(at).load(x));
      if (!VALUE_GATES) continue;
      const SplitExp decay = split_exp(gv.row(at).load(x));
      store_floats(token.v_decay + x, decay.base);
      store_floats(token.v_decay_rest + x, decay.rest);
    }
    if (DELTA) {
      see(token, part);
      const float factor = beta.at(at);
      for (int64_t x = 0; x < columns; x += LANES)
        store_floats(token.v + x, factor * (load_floats(token.v + x) - load_floats(token.seen + x)));
    }
    write_state(token, part, t + 1 == tokens.count());
    for (int64_t x = 0; x < columns; x += LANES) out.store(at, x, load_floats(token.out + x));
    part.from = part.to, part.from_stride = part.to_stride;
  }
}
