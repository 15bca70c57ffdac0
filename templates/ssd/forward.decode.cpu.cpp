// ssd, forward, on CPUs for a few tokens a sequence: the state is read where it lies, and written there, row by row: a row is a feature of x.
#include "device/cpu.h"
#include "recurrent/recurrent_decay.h"
#include "ssd/dual_rows.h"

constexpr int ROWS = 4;  // of the state at once
template <int COUNT>
struct RowCount {};

// Rows over the columns of the state, and over some of its rows; whole vectors.
struct Token {
  float *c, *b, *x, *out;  // x: as it is written, times the step
  SplitExp decay;
};

using Stored = ${half_state ? 'bfloat16' : 'float'};
// Rows of one head's state.
struct Part {
  const Stored* from;  // null: 0
  Stored* to;
  int64_t from_stride, to_stride, rows, columns;
};

// The state after the token, and what is read of it.
static void write_state(const Token& token, const Part& part) {
  int64_t i = 0;
  const auto rows = [&]<int COUNT>(RowCount<COUNT>) {
    Floats sum[COUNT] = {};
    const Stored* from = part.from + i * part.from_stride;
    Stored* to = part.to + i * part.to_stride;
    for (int64_t n = 0; n < part.columns; n += LANES) {
      const Floats b = load_floats(token.b + n), c = load_floats(token.c + n);
#pragma GCC unroll 4
      for (int r = 0; r < COUNT; ++r) {
        const Floats was = load_floats(from + r * part.from_stride + n);
        const Floats state = was * token.decay.base + was * token.decay.rest + token.x[i + r] * b;
        sum[r] += state * c;
        store_elements(to + r * part.to_stride + n, state);
      }
    }
    for (int r = 0; r < COUNT; ++r) token.out[i + r] = sum_of(sum[r]);
    i += COUNT;
  };
  while (i + ROWS <= part.rows) rows(RowCount<ROWS>{});
  while (i < part.rows) rows(RowCount<1>{});
}

// Item (x, y, z): `width` features, a multiple of a vector, of head y of sequence z. Packed: the item after the last sequence writes zeros.
static void recurrent(${parameters('recurrent')}, const Group& group) {
  const int64_t head = group.y, sequence = group.z, first = group.x * width, heads = group.grid_y, columns = C_view.shape[3];
  const int64_t rows = x_view.shape[3] - first < width ? x_view.shape[3] - first : width;
  const Tokens tokens{cum_seqlens, sequences, sequence, C_view.shape[1]};
  const Rows x(x_view, data_type, tokens, head, heads, first, rows);
  const SkipRows out{{out_view, data_type, tokens, head, first, rows}, x, is_given(D_view), number_of_head(D_view, d_type, head)};
  if (sequence == sequences) return out.clear(tokens.count());
  const Rows c(C_view, data_type, tokens, head, heads, 0, columns), b(Bm_view, data_type, tokens, head, heads, 0, columns);
  const Steps steps{{dt_view, dt_type, tokens, head},
                    number_of_head(dt_bias_view, bias_type, head),
                    number_at(A_view.data, a_type, head),
                    dt_softplus};
$if in_place
  const DualState<Stored> before(state_view, sequence, head, first, rows), after = before;
$else
  const DualState<float> before(initial_state_view, sequence, head, first, rows), after(final_state_view, sequence, head, first, rows);
$end
  Part part{before.data, after.data, before.stride, after.stride, rows, columns};
  if (part.from != part.to && (!part.from || tokens.count() == 0)) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t n = 0; n < columns; n += LANES)
        store_elements(part.to + i * part.to_stride + n, part.from ? load_floats(part.from + i * part.from_stride + n) : Floats{});
    part.from = part.to, part.from_stride = part.to_stride;
  }
  float* next = static_cast<float*>(group.shared);
  const auto take = [&next](int64_t floats) { return (next += floats) - floats; };
  Token token{take(columns), take(columns), take(width), take(width), {}};
  for (int64_t t = 0; t < tokens.count(); ++t) {
    const float step = steps.at(t);
    token.decay = split_exp(splat(step * steps.rate));
    load_scaled(c.row(t), token.c, 1, false);
    load_scaled(b.row(t), token.b, 1, false);
    load_scaled(x.row(t), token.x, step, false);
    write_state(token, part);
    for (int64_t i = 0; i < rows; i += LANES) out.store(t, i, load_floats(token.out + i));
    part.from = part.to, part.from_stride = part.to_stride;
  }
}
