// GPU vocabulary: the entries of rnn_bwd on matrix instructions that are no products: its steps, and what comes before and behind. In a step a
// block has FEATURES * SPLITS columns of w_hh, whose gradients it sums over one of SPLITS parts of the gates for ROWS rows of the batch,
// with its weights as matrix operands in registers. SPLITS blocks of the same columns send each other their sums, and each goes on with
// FEATURES of them: its gates' gradients are what the next step multiplies. All of that passes from block to block word by word
// (device/tile/exchange.h). A template defines Element and includes rnn/rnn_gates.h before.
#pragma once
constexpr int FEATURES = ${slice}, SPLITS = ${splits}, LINES_A_FEATURE = SPLITS, ROWS = ${rows}, CHUNKS = (${chunks} + SPLITS - 1) / SPLITS;
constexpr int START = 16;  // words that a thread prepares
constexpr int AHEAD = 3;  // steps between asking for a token's gates and reading them
constexpr int KINDS = GRU ? 4 : GATES;  // of gradients a feature: a GRU's n has one of its input's side and, last, one of the state's
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
#include "rnn/rnn_stored.h"

static inline const Element* elements(const View& view, int64_t outer, int64_t row) {
  return static_cast<const Element*>(view.data) + outer * view.strides[0] + row * view.strides[1];
}

// Rows of buffers are b * tokens + t.
struct Layer {
  int64_t batch, tokens, features, directions;
  const int32_t* lengths;
  int64_t length_of(int64_t row) const { return lengths ? lengths[row] : tokens; }
  int64_t rows() const { return batch * tokens; }
};

// A row of x, zeros past its length, and of the states before it, rounded, a block.
KERNEL(128, 1) gather(${parameters('gather')}) {
  const int64_t batch = x_view.shape[0], tokens = x_view.shape[1], inputs = x_view.shape[2], features = w_hh_view.shape[2];
  const int64_t row = block_x() / tokens, token = block_x() % tokens, length = lengths ? lengths[row] : tokens;
  put_row(xs, batch * tokens * inputs, block_x() * inputs, token < length ? elements(x_view, row, token) : nullptr, inputs);
  for (int64_t d = 0; d < w_hh_view.shape[0]; ++d) {
    const int64_t previous = d == 1 ? token + 1 : token - 1;
    const bool inside = previous >= 0 && previous < length;
    const int64_t size = w_hh_view.shape[0] * batch * tokens * features, at = (d * batch * tokens + block_x()) * features;
    if (token < length && !inside && is_given(h0_view))
      for (int64_t j = 2 * thread_x(); j < features; j += 256) {
        const float* const from = state_in(h0_view, d, row, j);
        put_two(before, size, at + j, from[0], from[1]);
      }
    else
      put_row(before, size, at, token < length && inside ? elements(y_view, row, previous) + d * features : nullptr, features);
  }
}

// The exchange before the first step: its gradients of gates are 0, the others and all sums are not sent; what is not there is 0.
// START words of each a thread.
KERNEL(256, 1) start(${parameters('start')}) {
  const int64_t batch = y_view.shape[0], features = w_hh_view.shape[2];
  for (int64_t i = static_cast<int64_t>(block_x()) * (256 * START) + thread_x(), n = 0; n < START; ++n, i += 256) {
    if (i < sum_count) reinterpret_cast<uint32_t*>(inbox)[i] = NOT_SENT;
    if (i >= word_count) continue;
    const PanelPlace at(static_cast<int>(i % PANEL_WORDS));
    const int64_t panel = i / PANEL_WORDS, split = panel % SPLITS, part = panel / SPLITS % panel_count;
    const int64_t slot = panel / SPLITS / panel_count / w_hh_view.shape[0];
    const int64_t kind = at.feature / split_features, feature = split * split_features + at.feature % split_features;
    const bool is_there = part * ROWS + at.row < batch && kind < GATES && feature < features;
    reinterpret_cast<uint32_t*>(exchange)[i] = is_there && slot > 0 ? NOT_SENT : 0;
  }
}

// An LSTM's c after each token, a feature of a row a thread; gates of SOME tokens are on their way at once.
KERNEL(128, 1) remember(${parameters('remember')}) {
  constexpr int SOME = 8;
  if (!LSTM) return;
  const Layer layer{y_view.shape[0], y_view.shape[1], w_hh_view.shape[2], w_hh_view.shape[0], lengths};
  const int64_t i = static_cast<int64_t>(block_x()) * 128 + thread_x(), features = layer.features;
  if (i >= layer.directions * layer.batch * features) return;
  const int64_t direction = i / features / layer.batch, row = i / features % layer.batch, j = i % features, length = layer.length_of(row);
  const auto at = [&](int64_t number) { return (direction * layer.batch + row) * layer.tokens + (direction == 1 ? length - 1 - number : number); };
  float memory = is_given(c0_view) ? state_in(c0_view, direction, row, j)[0] : 0.0f;
#pragma unroll 1
  for (int64_t first = 0; first < length; first += SOME) {
    float of[SOME][3];
#pragma unroll
    for (int s = 0; s < SOME; ++s)
#pragma unroll
      for (int g = 0; g < 3; ++g) of[s][g] = first + s < length ? remade[(at(first + s) * KEPT + g) * features + j] : 0.0f;
#pragma unroll
    for (int s = 0; s < SOME; ++s) {
      if (first + s >= length) break;
      memory = sigmoid_of(of[s][1]) * memory + sigmoid_of(of[s][0]) * exact_tanh_of(of[s][2]);
      remade[(at(first + s) * KEPT + KEPT - 1) * features + j] = memory;
    }
  }
}

// What a unit, two neighbouring features of a row, reads of a token: as it is in memory, so that nobody waits for it before it is used.
struct Token {
  float gate[KINDS][2], memory[2], memory_before[2];
  Element state[2], dy[2];
};

// How the gradients of one feature's gates follow from that of its state: everything that does not wait for it.
struct Bends {
  float gate[KINDS];  // by gradient: of an LSTM's c for its first three gates, of the state else
  float memory, kept;  // what passes from an LSTM's state to its c; what passes a gate by: of an LSTM's c, else of the state
};

static inline Bends bends_of(const Token& token, int i) {
  Bends bends;
  if constexpr (LSTM) {
    const float in = sigmoid_of(token.gate[0][i]), keep_ = sigmoid_of(token.gate[1][i]), cell = exact_tanh_of(token.gate[2][i]), out = sigmoid_of(token.gate[3][i]);
    bends.gate[0] = cell * in * (1 - in);
    bends.gate[1] = token.memory_before[i] * keep_ * (1 - keep_);
    bends.gate[2] = in * (1 - cell * cell);
    bends.gate[3] = exact_tanh_of(token.memory[i]) * out * (1 - out);
    bends.memory = out * tanh_slope_of(token.memory[i]), bends.kept = keep_;
  } else if constexpr (GRU) {
    const float reset = sigmoid_of(token.gate[0][i]), update = sigmoid_of(token.gate[1][i]), recurrent = token.gate[3][i];
    const float fresh = exact_tanh_of(token.gate[2][i] + reset * recurrent), of_fresh = (1 - update) * (1 - fresh * fresh);
    bends.gate[0] = of_fresh * recurrent * reset * (1 - reset);
    bends.gate[1] = (to_float(token.state[i]) - fresh) * update * (1 - update);
    bends.gate[2] = of_fresh, bends.gate[3] = of_fresh * reset;
    bends.memory = 0, bends.kept = update;
  } else {
    const float state = to_float(token.state[i]);
    bends.gate[0] = CELL == 2 ? 1 - state * state : state > 0 ? 1.0f : 0.0f;
    bends.memory = 0, bends.kept = 0;
  }
  return bends;
}

// Gradients of the gates of one feature. dstate: of its state; becomes what of it passes the gates by. dmemory: of an LSTM's c after the
// token, and becomes that before it.
static inline void gates_back(float (&d)[KINDS], const Bends& bends, float& dstate, float& dmemory) {
  const float dc = dmemory + dstate * bends.memory;
#pragma unroll
  for (int g = 0; g < KINDS; ++g) d[g] = (LSTM && g < 3 ? dc : dstate) * bends.gate[g];
  dmemory = dc * bends.kept;
  dstate = LSTM ? 0.0f : dstate * bends.kept;
}

// Block (x): a part of the batch, parts fastest, then one of SPLITS parts of the gates, then the columns; launch `turn`: of a group of parts.
KERNEL(THREADS, 1) sweep(${parameters('sweep')}) {
  const int features = static_cast<int>(w_hh_view.shape[2]), slices = (features + FEATURES - 1) / FEATURES, column_blocks = (slices + SPLITS - 1) / SPLITS;
  const int parts_here = static_cast<int>(parts), part = static_cast<int>(step) * parts_here + block_x() % parts_here;
  const int split = block_x() / parts_here % SPLITS, columns = block_x() / parts_here / SPLITS % column_blocks;
  const int direction = block_x() / parts_here / SPLITS / column_blocks, directions = static_cast<int>(w_hh_view.shape[0]);
  const int of_split = column_blocks * FEATURES, first_feature = (columns * SPLITS + split) * FEATURES;
  const int tokens = static_cast<int>(y_view.shape[1]), batch = static_cast<int>(y_view.shape[0]);
  const int turns = tokens + (is_given(dh0_view) ? 1 : 0), part_of_all = direction * static_cast<int>(panel_count) + part;
  const int a_step = directions * static_cast<int>(panel_count);
  const Panels read{reinterpret_cast<uint32_t*>(exchange), a_step * SPLITS, part_of_all * SPLITS + split};
  const Panels written{reinterpret_cast<uint32_t*>(exchange), a_step * SPLITS, part_of_all * SPLITS + first_feature / of_split};
  uint32_t* const box = reinterpret_cast<uint32_t*>(inbox);
  Fragments weights(reinterpret_cast<float*>(dynamic_shared()));
  if (weights.receives()) {
    for (int number = 0; number < turns; ++number) {
      weights.receive(read.at(number), number);
      if (Panels::orders(number)) order_exchange();
    }
    return;
  }
  weights.load([&](int line, int k) -> Pack<uint32_t, WEIGHT_WORDS> {
    const int column = (columns * SPLITS + line / FEATURES) * FEATURES + feature_of_line(line), gate = k / of_split, row = split * of_split + k % of_split;
    constexpr int WIDE = WORD_FEATURES * WEIGHT_WORDS;
    Pack<Element, WIDE> found;
#pragma unroll
    for (int i = 0; i < WIDE; ++i) found.at[i] = from_float<Element>(0.0f);
    if (line < LINES && column < features && gate < GATES)
#pragma unroll
      for (int i = 0; i < WIDE; ++i)
        if (row + i < features) found.at[i] = elements(w_hh_view, direction, gate * features + row + i)[column];
    return __builtin_bit_cast(Pack<uint32_t, WEIGHT_WORDS>, found);
  });

  // The thread's unit.
  const int pair = unit_of_thread() % PAIRS, row_here = unit_of_thread() / PAIRS, feature = first_feature + 2 * pair, row = part * ROWS + row_here;
  const bool sums_here = unit_of_thread() < UNITS, has_row = sums_here && row < batch, is_there = has_row && feature < features;
  const int length = !is_there ? 0 : lengths ? lengths[row] : tokens;
  const auto token_of = [&](int number) { return direction == 1 ? number : tokens - 1 - number; };
  const auto place_of = [&](int token) { return static_cast<int64_t>(direction * batch + row) * tokens + token; };
  const auto own_word = [&](int gate) { return PanelPlace::of(row_here, gate * of_split + first_feature % of_split + 2 * pair); };
  // Of the sums that block `of` of these columns has from block `from`.
  const auto in_box = [&](int number, int of, int from) {
    const int64_t slice = static_cast<int64_t>(number % RING * a_step + part_of_all) * column_blocks * SPLITS + columns * SPLITS + of;
    return box + ((slice * SPLITS + from) * ROWS + row_here) * FEATURES + 2 * pair;
  };
  const float* const kept = saved ? gates : remade;
  const auto kept_of = [&](int64_t place) { return kept + place * KEPT * features + feature; };
  float dstate[2] = {0, 0}, dmemory[2] = {0, 0};
  if (is_there)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      dstate[i] = is_given(dh_n_view) ? state_in(dh_n_view, direction, row, feature)[i] : 0.0f;
      dmemory[i] = LSTM && is_given(dc_n_view) ? state_in(dc_n_view, direction, row, feature)[i] : 0.0f;
    }
  Token next;
  const auto bring = [&](int number) {
    const int token = token_of(number);
    if (number >= tokens || token >= length) return;
    const int64_t place = place_of(token);
    const auto two = [](float (&to)[2], const float* from) {
      const Pack<float, 2> both = load_pack<2>(from);
      to[0] = both.at[0], to[1] = both.at[1];
    };
    const float* from = kept_of(place);
    if constexpr (LSTM || GRU)
#pragma unroll
      for (int g = 0; g < KINDS; ++g, from = keep(from + features)) two(next.gate[g], from);
    const auto two_elements = [](Element (&to)[2], const Element* from) { to[0] = from[0], to[1] = from[1]; };
    two_elements(next.dy, elements(dy_view, row, token) + direction * features + feature);
    if constexpr (LSTM) {
      const int previous = direction == 1 ? token + 1 : token - 1;
      two(next.memory, from);
      if (previous >= 0 && previous < length)
        two(next.memory_before, kept_of(place_of(previous)) + (KEPT - 1) * features);
      else
        for (int i = 0; i < 2; ++i) next.memory_before[i] = is_given(c0_view) ? state_in(c0_view, direction, row, feature)[i] : 0.0f;
    } else if constexpr (GRU) {
$if split
      const int previous = direction == 1 ? token + 1 : token - 1;
      if (previous >= 0 && previous < length)
        two_elements(next.state, elements(y_view, row, previous) + direction * features + feature);
      else
        for (int i = 0; i < 2; ++i) next.state[i] = is_given(h0_view) ? state_in(h0_view, direction, row, feature)[i] : 0.0f;
$else
      two_elements(next.state, reinterpret_cast<const Element*>(before) + place * features + feature);
$end
    } else {
      two_elements(next.state, elements(y_view, row, token) + direction * features + feature);
    }
  };
  // Brings a later token's nearer, into the L2 cache.
  const auto announce = [&](int number) {
    const int token = token_of(number);
    if (number >= tokens || token < 0 || token >= length) return;
    const int64_t place = place_of(token);
    if constexpr (LSTM || GRU) {
      const float* from = kept_of(place);
#pragma unroll
      for (int g = 0; g < KINDS; ++g, from = keep(from + features)) fetch(from);
    }
    fetch(elements(dy_view, row, token) + direction * features + feature);
    if constexpr (LSTM) {
      const int previous = direction == 1 ? token + 1 : token - 1;
      if (previous >= 0 && previous < length) fetch(kept_of(place_of(previous)) + (KEPT - 1) * features);
    } else if constexpr (GRU) {
$if split
      const int previous = direction == 1 ? token + 1 : token - 1;
      if (previous >= 0 && previous < length) fetch(elements(y_view, row, previous) + direction * features + feature);
$else
      fetch(reinterpret_cast<const Element*>(before) + place * features + feature);
$end
    } else {
      fetch(elements(y_view, row, token) + direction * features + feature);
    }
  };
  Bends bends[2];
  float dy[2];
  bring(0);

#pragma unroll 1
  for (int number = 0; number < turns; ++number) {
    before_look(grid_barrier);
    const float* const sums = weights.multiply(read.at(number), number, [&] {
      if (is_there && number < tokens && token_of(number) < length)
#pragma unroll
        for (int i = 0; i < 2; ++i) bends[i] = bends_of(next, i), dy[i] = to_float(next.dy[i]);
    });
    sync_steps();  // all sums are there
    float own_sum[2] = {0, 0};
    if (sums_here)
#pragma unroll
      for (int of = 0; of < SPLITS; ++of) {
        float sum[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          sum[i] = sum_of_parts(sums, line_of(of, pair, i), row_here);
          if (of == split) own_sum[i] = sum[i];
        }
        if (has_row && is_first_of_unit() && of != split && (columns * SPLITS + of) * FEATURES + 2 * pair < features)
          send_two(in_box(number, of, split), sendable(__builtin_bit_cast(uint32_t, sum[0])), sendable(__builtin_bit_cast(uint32_t, sum[1])));
      }
    if constexpr (SPLITS > 1) before_look(grid_barrier);
    if (is_there) {
      float total[2] = {0, 0};
#pragma unroll
      for (int from = 0; from < SPLITS; ++from) {  // in this order, whoever sums
        if (from == split) {
#pragma unroll
          for (int i = 0; i < 2; ++i) total[i] += own_sum[i];
          continue;
        }
        Pack<uint32_t, 2> words = look<2>(in_box(number, split, from));
        while (LOOKS_AGAIN && (words.at[0] == NOT_SENT || words.at[1] == NOT_SENT)) words = look<2>(in_box(number, split, from));
#pragma unroll
        for (int i = 0; i < 2; ++i) total[i] += __builtin_bit_cast(float, words.at[i]);
      }
      const int token = token_of(number);
      float d[2][KINDS] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        dstate[i] += total[i];
        if (number < tokens && token < length) {
          dstate[i] += dy[i];
          gates_back(d[i], bends[i], dstate[i], dmemory[i]);
        }
      }
      if (number + 1 < turns && is_first_of_unit())
#pragma unroll
        for (int g = 0; g < GATES; ++g) {
          const int kind = GRU && g == 2 ? 3 : g;  // what the state's product takes
          send_unit(written.at(number + 1) + own_word(g), d[0][kind], d[1][kind]);
        }
      if (number < tokens && is_first_of_unit()) {
        const int64_t size = static_cast<int64_t>(directions * batch) * tokens * KINDS * features;
#pragma unroll
        for (int g = 0; g < KINDS; ++g) put_two(da, size, (place_of(token) * KINDS + g) * features + feature, d[0][g], d[1][g]);
      }
      bring(number + 1);
      announce(number + AHEAD);
    }
    if (Panels::clears(number)) {
      const int cleared = Panels::cleared_by(number);
      if (is_there && is_first_of_unit())
#pragma unroll
        for (int g = 0; g < GATES; ++g) clear_unit(written.at(cleared) + own_word(g));
      if (has_row && is_first_of_unit() && SPLITS > 1)
#pragma unroll
        for (int of = 0; of < SPLITS; ++of)
          if (of != split) clear_two(in_box(cleared, of, split));
    }
    if (Panels::orders(number)) order_exchange();
  }
  if (!is_there || !is_first_of_unit()) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (is_given(dh0_view)) state_in(dh0_view, direction, row, feature)[i] = dstate[i];
    if (LSTM && is_given(dc0_view)) state_in(dc0_view, direction, row, feature)[i] = dmemory[i];
  }
}

// Sums of gates' gradients over a part of the rows: block (x, y, z) has 64 columns of all kinds, a part, a direction; its 8 warps share the rows.
KERNEL(256, 1) sum_gates(${parameters('sum_gates')}) {
  constexpr int AT_ONCE = 8;
  __shared__ float shares[8][64];
  const int64_t column = static_cast<int64_t>(block_x()) * 64 + 2 * lane(), direction = block_z(), size = direction_count * row_count * all;
  const int64_t a_part = (row_count + sum_parts - 1) / sum_parts, first = block_y() * a_part, last = first + a_part < row_count ? first + a_part : row_count;
  float sums[2] = {0, 0};
#pragma unroll 1
  for (int64_t row = first + warp(); row < last; row += 8 * AT_ONCE) {
    float of[AT_ONCE][2] = {};
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
      if (column < all && row + 8 * i < last) get_two(of[i], da, size, (direction * row_count + row + 8 * i) * all + column);
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) sums[0] += of[i][0], sums[1] += of[i][1];
  }
  shares[warp()][2 * lane()] = sums[0], shares[warp()][2 * lane() + 1] = sums[1];
  sync_block();
  const int64_t own = static_cast<int64_t>(block_x()) * 64 + thread_x();
  if (thread_x() >= 64 || own >= all) return;
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += shares[i][thread_x()];
  part_sums[(direction * sum_parts + block_y()) * all + own] = sum;
}

// Gradients of the biases, a column a thread.
KERNEL(256, 1) biases(${parameters('biases')}) {
  const int64_t column = static_cast<int64_t>(block_x()) * 256 + thread_x(), direction = block_y(), features = column_count / GATES;
  if (column >= column_count) return;
  for (int of = 0; of < 2; ++of) {
    const View& to = of ? db_hh_view : db_ih_view;
    if (!is_given(to)) continue;
    const float* from = part_sums + direction * sum_parts * all + column + (GRU && of && column >= 2 * features ? features : 0);
    float sum = 0;
    for (int64_t part = 0; part < sum_parts; ++part, from += all) sum += *from;
    static_cast<Element*>(to.data)[direction * to.strides[0] + column] = from_float<Element>(sum);
  }
}
