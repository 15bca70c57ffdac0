// GPU vocabulary: the entries of rnn's steps on mma.sync. A block has all gates of FEATURES features of a direction for ROWS rows of the
// batch, their weights as matrix operands in registers for all steps, and the cells' states in registers too. States pass from block to
// block as they are made, each word its own flag (device/tile/exchange.h): no step has a barrier between blocks.
#pragma once
#include "rnn/rnn_gates.h"

constexpr int FEATURES = ${features}, LINES_A_FEATURE = GATES, ROWS = ${rows}, CHUNKS = ${chunks};
$if E == 'f32' and by_parts
#include "rnn/rnn_part_fragments.h"
$elif E == 'f32'
#include "rnn/rnn_floats.h"
$elif warpgroups
#include "rnn/rnn_warpgroups.h"
$else
#include "rnn/rnn_fragments.h"
$end
#include "rnn/rnn_panels.h"

// The exchange before the first step: h0 as the states before it; the others are not sent. Rows and features that are not there are 0.
KERNEL(256, 1) start(${parameters('start')}) {
  const int64_t i = static_cast<int64_t>(block_x()) * 256 + thread_x(), batch = h_n_view.shape[1], features = h_n_view.shape[2];
  if (i >= word_count) return;
  const PanelPlace at(static_cast<int>(i % PANEL_WORDS));
  const int64_t panel = i / PANEL_WORDS, direction = panel / panel_count % h_n_view.shape[0], slot = panel / panel_count / h_n_view.shape[0];
  const int64_t row = panel % panel_count * ROWS + at.row;
  const bool is_there = row < batch && at.feature < features;
  uint32_t word = is_there && slot > 0 ? NOT_SENT : 0;
  if (is_there && slot == 0 && is_given(h0_view)) {
    const float* const from = static_cast<const float*>(h0_view.data) + direction * h0_view.strides[0] + row * h0_view.strides[1] + at.feature;
    word = sendable(word_of(from[0], from[WORD_FEATURES - 1]));
  }
  reinterpret_cast<uint32_t*>(exchange)[i] = word;
}

// Block (x): a part of the batch, parts fastest, of a slice of a direction; launch `step`: of a group of parts.
KERNEL(THREADS, 1) steps(${parameters('steps')}) {
  const int features = static_cast<int>(w_hh_view.shape[2]), slices = (features + FEATURES - 1) / FEATURES;
  const int parts_here = static_cast<int>(parts), part = static_cast<int>(step) * parts_here + block_x() % parts_here;
  const int slice = block_x() / parts_here % slices, direction = block_x() / parts_here / slices, first_feature = slice * FEATURES;
  const int tokens = static_cast<int>(x_view.shape[1]);
  const int64_t columns = static_cast<int64_t>(w_hh_view.shape[0]) * GATES * features;
  const Panels panels{reinterpret_cast<uint32_t*>(exchange), static_cast<int>(w_hh_view.shape[0] * panel_count), direction * static_cast<int>(panel_count) + part};
  __shared__ float biases[GRU ? 4 : GATES][FEATURES];  // a GRU's last: of n, beside the state's product
  const auto bias = [&](const View& view, int gate, int feature) {
    if (!is_given(view) || feature >= features) return 0.0f;
    return to_float(static_cast<const Element*>(view.data)[direction * view.strides[0] + gate * features + feature]);
  };
  for (int i = thread_x(); i < (GRU ? 4 : GATES) * FEATURES; i += THREADS) {
    const int gate = i / FEATURES, feature = first_feature + i % FEATURES;
    biases[gate][i % FEATURES] = GRU && gate == 3 ? bias(b_hh_view, 2, feature)
                                                  : bias(b_ih_view, gate, feature) + (GRU && gate == 2 ? 0.0f : bias(b_hh_view, gate, feature));
  }
  Fragments weights(reinterpret_cast<float*>(dynamic_shared()));
  if (weights.receives()) {
    for (int number = 0; number < tokens; ++number) {
      weights.receive(panels.at(number), number);
      if (Panels::orders(number)) order_exchange();
    }
    return;
  }
  weights.load([&](int line, int k) -> Pack<uint32_t, WEIGHT_WORDS> {
    const int feature = first_feature + feature_of_line(line);
    if (line >= LINES || feature >= features || k >= features) return {};
    const Element* const of_line = static_cast<const Element*>(w_hh_view.data) + direction * w_hh_view.strides[0] + (line / FEATURES * features + feature) * w_hh_view.strides[1];
    return load_pack<WEIGHT_WORDS>(reinterpret_cast<const uint32_t*>(of_line + k));
  });

  // The thread's unit.
  const int pair = unit_of_thread() % PAIRS, row_here = unit_of_thread() / PAIRS, feature = first_feature + 2 * pair, row = part * ROWS + row_here;
  const bool sums_here = unit_of_thread() < UNITS, is_there = sums_here && feature < features && row < x_view.shape[0];
  const int length = !is_there ? 0 : lengths ? lengths[row] : tokens, own = PanelPlace::of(row_here, feature);
  const auto token_of = [&](int number) { return direction == 1 ? tokens - 1 - number : number; };
  const auto products_of = [&](int number) {
    return keep(products) + (row * batch_rows + token_of(number) * token_rows) * columns + direction * GATES * features + feature;
  };
  float state[2] = {0, 0}, memory[2] = {0, 0}, in[2][GATES] = {};
  if (is_there)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (is_given(h0_view)) state[i] = state_in(h0_view, direction, row, feature)[i];
      if (LSTM && is_given(c0_view)) memory[i] = state_in(c0_view, direction, row, feature)[i];
    }

#pragma unroll 1
  for (int number = 0; number < tokens; ++number) {
    const bool valid = token_of(number) < length;
    before_look(grid_barrier);
    const float* const sums = weights.multiply(panels.at(number), number, [&] {
      if (!valid) return;
      const float* from = products_of(number);
#pragma unroll
      for (int g = 0; g < GATES; ++g, from = keep(from + features)) {
        const Pack<float, 2> both = load_once<2>(from);
        in[0][g] = both.at[0], in[1][g] = both.at[1];
      }
    });
    sync_steps();  // all sums are there: and this block has all states of the step, so no block reads those of the step before any more
    float last_kept[2] = {0, 0};
    if (sums_here)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float back[GATES];
#pragma unroll
        for (int g = 0; g < GATES; ++g) {
          back[g] = sum_of_parts(sums, line_of(g, pair, i), row_here);
          in[i][g] += biases[g][2 * pair + i];
        }
        const float recurrent_bias = GRU ? biases[GRU ? 3 : 0][2 * pair + i] : 0.0f;
        if (!valid) continue;
        state[i] = next_state(in[i], back, state[i], recurrent_bias, memory[i]);
        if constexpr (KEPT > 0) {
#pragma unroll
          for (int g = 0; g < GATES; ++g) in[i][g] += GRU && g == 2 ? 0.0f : back[g];
          last_kept[i] = LSTM ? memory[i] : back[GATES - 1] + recurrent_bias;
        }
      }
    if (is_there && is_first_of_unit()) {
      if (number + 1 < tokens) {
        send_unit(panels.at(number + 1) + own, state[0], state[1]);
        const float* from = products_of(number + 1);
#pragma unroll
        for (int g = 0; g < GATES; ++g, from = keep(from + features)) fetch(from);
      }
      Element* const to = const_cast<Element*>(keep(static_cast<const Element*>(y_view.data))) + row * y_view.strides[0] + token_of(number) * y_view.strides[1] +
                          direction * features + feature;
      to[0] = from_float<Element>(valid ? state[0] : 0.0f), to[1] = from_float<Element>(valid ? state[1] : 0.0f);
      if (KEPT > 0 && keeps) {
        const float* at = keep(gates) + (static_cast<int64_t>(direction * x_view.shape[0] + row) * tokens + token_of(number)) * KEPT * features + feature;
#pragma unroll
        for (int g = 0; g < KEPT; ++g, at = keep(at + features)) {
          const bool last = g == KEPT - 1;
          const float of[2] = {last ? last_kept[0] : in[0][last ? 0 : g], last ? last_kept[1] : in[1][last ? 0 : g]};
          store_pack(const_cast<float*>(at), Pack<float, 2>{{valid ? of[0] : 0.0f, valid ? of[1] : 0.0f}});
        }
      }
      if (Panels::clears(number)) clear_unit(panels.at(Panels::cleared_by(number)) + own);
    }
    if (Panels::orders(number)) order_exchange();
  }
  if (!is_there || !is_first_of_unit()) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    state_in(h_n_view, direction, row, feature)[i] = state[i];
    if (LSTM && is_given(c_n_view)) state_in(c_n_view, direction, row, feature)[i] = memory[i];
  }
}
