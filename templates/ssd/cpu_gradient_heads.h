// CPU vocabulary of ssd_bwd in chunks: a chunk of one head, forwards and back, and what heads of a group share. Part of a template, which has
// defined before: CHUNK, DELTA, VALUE_GATES.
#pragma once
#include "ssd/cpu_gradients.h"

// The scratch of a work item besides Scratch: by tokens, and turned.
struct Work {
  int64_t features;                                                                      // rows of a state: P up to whole tiles
  Rectangle x, dout, scaled_x, scaled_dout;                                              // [CHUNK][P]; scaled_dout becomes dw
  Rectangle x_columns, dout_columns, scaled_x_columns, scaled_dout_columns, dw_columns;  // [P][COLUMNS]
  Rectangle met, shared, shared_columns;                                                 // [CHUNK][COLUMNS]; shared: of pairs, over heads
  Rectangle d_c, d_b;                                                                    // [CHUNK][N]
  float* states;                                                                         // [heads][features][row]

  Work(float* next, int64_t count, int64_t row) : features(up_to(count, FEW_ROWS)) {
    float* const first = next;
    const auto take = [&next](int64_t rows, int64_t row) {
      next += rows * row;
      return Rectangle{next - rows * row, row};
    };
    const int64_t value_row = up_to(count, 32) + 16;
    x = take(CHUNK, value_row), dout = take(CHUNK, value_row), scaled_x = take(CHUNK, value_row), scaled_dout = take(CHUNK, value_row);
    x_columns = take(features, COLUMNS), dout_columns = take(features, COLUMNS), scaled_x_columns = take(features, COLUMNS);
    scaled_dout_columns = take(features, COLUMNS), dw_columns = take(features, COLUMNS);
    met = take(CHUNK, COLUMNS), shared = take(CHUNK, COLUMNS), shared_columns = take(CHUNK, COLUMNS);
    d_c = take(CHUNK, row), d_b = take(CHUNK, row);
    __builtin_memset(first, 0, (next - first) * sizeof(float));
    states = next;
  }
};

struct Chunk {
  int64_t start, tokens, rows, columns;  // rows: whole tiles of tokens; columns: whole vectors
  int64_t after;                         // where the chunk starts that comes after this one, below 0: none
};

// One head.
struct Head {
  Stream stream;
  Rows dout;
  GradientRow ddt, dx;  // of the sequence's first token
  int64_t ddt_stride, dx_stride;
  float skip;
  Rectangle state;
  double of_rate, of_bias, of_skip;  // gradients of A, dt_bias and D

  GradientRow row_of(const GradientRow& first, int64_t stride, int64_t token) const {
    GradientRow row = first;
    row.data += token * stride * bytes_of(row.type);
    return row;
  }
  // Asks for part `part` of four of the next chunk's rows, those of dout only if it `meets` them.
  inline __attribute__((always_inline)) void prefetch(const Chunk& c, int64_t part, bool meets) const {
    if (c.after < 0) return;
    const int64_t first = c.after + CHUNK * part / 4, end = c.after + CHUNK * (part + 1) / 4;
    stream.prefetch(first, end);
    for (int64_t t = first; meets && t < end && t < stream.tokens; ++t)
      for (int64_t byte = 0; byte < dout.count * bytes_of(dout.type); byte += 64) __builtin_prefetch(dout.data + t * dout.stride + byte, 0, 2);
  }
};

// What a head's gates and steps make of tokens.
struct Factors {
  GateSums sums;
  SplitExp decay;
  float from_start[COLUMNS], to_end[COLUMNS], kept[COLUMNS];  // kept: to_end times the step

  Factors(const Stream& stream, const Chunk& c)
      : sums(stream, c.start, c.tokens, c.rows), decay(split_exp(splat(static_cast<float>(sums.total)))) {
    for (int64_t t = 0; t < c.columns; t += LANES) {
      const Floats left = sums.between(c.rows - 1, t);
      store_floats(from_start + t, exp2_of(load_floats(sums.high + t) * LOG2_E));
      store_floats(to_end + t, left);
      store_floats(kept + t, left * load_floats(sums.steps + t));
    }
  }
};

static void load_rows(const Rows& from, Rectangle to, const Chunk& c) {
  for (int64_t t = 0; t < c.tokens; ++t) load_row(from.row(c.start + t), to.at(t, 0), 1);
  for (int64_t t = c.tokens; t < c.rows; ++t) __builtin_memset(to.at(t, 0), 0, to.row * sizeof(float));
}

// Rows of the group, and their pairs in s.on_k.
static void load_group(const Stream& stream, const Scratch& s, const Chunk& c, bool meets) {
  load_keys(stream, s, c.start, c.tokens, c.rows);
  if (!meets) return;
  transpose_keys(s.k, s, 0, c.rows);
  for (int64_t t = 0; t < c.rows; t += ROWS) weigh_pairs(s.q, s, s.on_k, t, t + ROWS);
}

// The state after the chunk.
static void pass_forward(const Head& head, const Scratch& s, const Work& work, const Chunk& c) {
  const Factors factors(head.stream, c);
  load_rows(head.stream.v, work.x, c);
  for (int64_t part = 0; part < 4; ++part) head.prefetch(c, part, false);
  turn(work.x, work.x_columns, c.rows, work.features);
  scale_columns(work.x_columns, work.scaled_x_columns, factors.kept, work.features, c.columns);
  pass_state(head.state, factors.decay, work.scaled_x_columns, {s.k, s.row}, work.features, s.keys, c.rows);
}

// Gradients of a token's step as a factor, and of the log of what it leaves of the state.
struct StepGradients {
  double step[CHUNK], log[CHUNK];
};

// Weights s.on_q of dout in dw; what heads share of pairs; the flow from writers to readers, and by it gradients of logs and of steps.
static void weigh(const Scratch& s, const Work& work, const Factors& factors, const Chunk& c, StepGradients& gradients) {
  Floats of_step[COLUMNS / LANES] = {}, past[COLUMNS / LANES] = {};
  Integers lane;
  for (int i = 0; i < LANES; ++i) lane[i] = i;
  for (int64_t t = c.rows - 1; t >= 0; --t) {
    Floats sum = {};
    for (int64_t j = 0; j < c.columns; j += LANES) {
      const Integers number = lane + static_cast<int32_t>(j);
      const Floats left = number <= static_cast<int32_t>(t) ? factors.sums.between(t, j) : Floats{};
      const Floats step = load_floats(factors.sums.steps + j), met = load_floats(work.met.at(t, j));
      const Integers nothing = left == Floats{};  // s.on_k has no numbers of tokens after the tile of t
      const Floats weight = nothing ? Floats{} : load_floats(s.on_k + t * COLUMNS + j) * left, flow = nothing ? Floats{} : met * weight;
      store_floats(s.on_q + t * COLUMNS + j, weight);
      store_floats(work.shared.at(t, j), load_floats(work.shared.at(t, j)) + (nothing ? Floats{} : met * left * step));
      of_step[j / LANES] += flow;
      past[j / LANES] += flow * step;
      sum += number < static_cast<int32_t>(t) ? past[j / LANES] : Floats{};
    }
    gradients.log[t] = sum_of(sum);
  }
  for (int64_t t = 0; t < c.rows; ++t) gradients.step[t] = of_step[t / LANES][t % LANES];
}

// dw, turned, but for what pairs bring; adds to gradients what writers bring by the state after the chunk.
static void write_back(const Head& head, const Scratch& s, const Work& work, const Factors& factors, const Chunk& c, StepGradients& gradients) {
  multiply<false>(head.state, {s.kept, COLUMNS}, work.dw_columns, work.features, c.columns, s.keys);
  double before = 0;
  for (int64_t j = 0; j < c.columns; j += LANES) {
    Floats sum = {};
    const Floats to_end = load_floats(factors.to_end + j);
    for (int64_t i = 0; i < work.features; ++i) {
      const Floats dw = load_floats(work.dw_columns.at(i, j)) * to_end;
      sum += dw * load_floats(work.x_columns.at(i, j));
      store_floats(work.dw_columns.at(i, j), dw);
    }
    for (int64_t at = 0; at < LANES && j + at < c.rows; ++at) {
      gradients.step[j + at] += sum[at];
      gradients.log[j + at] += before;
      before += static_cast<double>(sum[at]) * factors.sums.steps[j + at];
    }
  }
}

// Adds to gradients of logs what readers bring by the state before the chunk, and what that state brings to the one after it.
static void read_back(const Floats* readers, double through, const Chunk& c, StepGradients& gradients) {
  double after = through;
  for (int64_t t = c.rows - 1; t >= 0; --t) after += sum_of(readers[t]), gradients.log[t] += after;
}

static void store_head(Head& head, const Work& work, const Factors& factors, const Chunk& c, const StepGradients& gradients) {
  turn(work.dw_columns, work.scaled_dout, work.features, c.rows);
  const Steps& steps = head.stream.steps;
  for (int64_t t = 0; t < c.tokens; ++t) {
    const int64_t token = c.start + t;
    const float step = factors.sums.steps[t];
    const GradientRow dx = head.row_of(head.dx, head.dx_stride, token);
    for (int64_t i = 0; i < head.stream.v.count; i += LANES)
      dx.store(i, load_floats(work.scaled_dout.at(t, i)) * step + load_floats(work.dout.at(t, i)) * head.skip, head.stream.v.count - i);
    const double of_dt = (gradients.step[t] + steps.rate * gradients.log[t]) * steps.slope(token);
    head.row_of(head.ddt, head.ddt_stride, token).store(0, static_cast<float>(of_dt));
    head.of_rate += step * gradients.log[t], head.of_bias += of_dt, head.of_skip += *work.met.at(t, t);
  }
}

// `before`: the state before the chunk. head.state, the gradient of the one after it, becomes that of the one before.
static void pass_back(Head& head, const Scratch& s, const Work& work, const Chunk& c, Rectangle before) {
  const Factors factors(head.stream, c);
  const int64_t values = work.features;
  StepGradients gradients;
  Floats readers[CHUNK] = {};
  load_rows(head.stream.v, work.x, c), load_rows(head.dout, work.dout, c);
  turn(work.x, work.x_columns, c.rows, values), turn(work.dout, work.dout_columns, c.rows, values);
  scale_rows(work.x, work.scaled_x, factors.kept, c.rows, values), scale_rows(work.dout, work.scaled_dout, factors.from_start, c.rows, values);
  scale_columns(work.dout_columns, work.scaled_dout_columns, factors.from_start, values, c.columns);
  multiply<false>(work.dout, work.x_columns, work.met, c.rows, c.columns, values);
  head.prefetch(c, 0, true);
  weigh(s, work, factors, c, gradients);
  head.prefetch(c, 1, true);
  write_back(head, s, work, factors, c, gradients);
  multiply<true>(work.dout_columns, {s.on_q, COLUMNS}, work.dw_columns, values, c.columns, c.rows);
  multiply_and_meet(work.scaled_dout, before, work.d_c, {s.q, s.row}, readers, c.rows, s.keys, values);
  head.prefetch(c, 2, true);
  multiply<true>(work.scaled_x, head.state, work.d_b, c.rows, s.keys, values);
  const double through = inner_product(head.state, before, values, s.keys) * (factors.decay.base[0] + factors.decay.rest[0]);
  read_back(readers, through, c, gradients);
  head.prefetch(c, 3, true);
  store_head(head, work, factors, c, gradients);
  pass_state(head.state, factors.decay, work.scaled_dout_columns, {s.q, s.row}, values, s.keys, c.rows);
}

// Rows of sums of the work item's heads: [tokens][2 N].
static void store_group(const Scratch& s, const Work& work, const Chunk& c, float* sums, int64_t stride) {
  turn(work.shared, work.shared_columns, c.rows, c.rows);
  multiply<true>(work.shared, {s.k, s.row}, work.d_c, c.rows, s.keys, c.rows);
  multiply<true>(work.shared_columns, {s.q, s.row}, work.d_b, c.rows, s.keys, c.rows);
  for (int64_t t = 0; t < c.tokens; ++t) {
    __builtin_memcpy(sums + (c.start + t) * stride, work.d_c.at(t, 0), s.keys * sizeof(float));
    __builtin_memcpy(sums + (c.start + t) * stride + s.keys, work.d_b.at(t, 0), s.keys * sizeof(float));
  }
}
