// ssd, forward, token by token: a warp has some rows of one head's state in registers. A row, a feature of x, lies over LANES
// neighbouring lanes in packs of 16 bytes, so that a warp reads and writes whole lines, all of them on their way before the first is used;
// sums over the columns stay inside of a warp, and no warp waits for another. While a token is computed the next one's rows are on their way.
//
// Tensors come as pointers: heads and features lie side by side, and only the steps from one token and one sequence to the next are open.
#include "device/gpu.h"
#include "ssd/dual_step.h"

using Element = ${ctype(E)};
using Stored = ${half_state ? 'bfloat16' : 'float'};  // a state's number in memory; a pack has VEC of them, PARTS times four
constexpr int COLUMNS = ${keys}, VEC = 16 / sizeof(Stored), PARTS = VEC / 4;  // COLUMNS: N or the power of 2 above
constexpr int LANES = COLUMNS < VEC * WARP ? COLUMNS / VEC : WARP, PACKS = COLUMNS / (VEC * LANES);
constexpr int GROUPS = WARP / LANES, ROWS = ${rows}, WARPS = ${warps};  // rows side by side; rows of a lane, each GROUPS after the one before
constexpr bool WHOLE_COLUMNS = ${whole_columns}, WHOLE_ROWS = ${whole_rows};

// A token's numbers as they lie in memory.
struct Token {
  Pack<Element, 4> b[PACKS * PARTS], c[PACKS * PARTS];
  Element x[ROWS];
};
// How much of x a token writes, and what it leaves of the state.
struct Step {
  float size;
  SplitExp left;
};

// Where a lane reads of a token, and what there is of its rows and columns.
struct Place {
  int row, features, columns;  // the lane's first row of the head's
  bool has_row(int i) const { return WHOLE_ROWS || row + i * GROUPS < features; }
  static int column(int k) { return (k * LANES + lane() % LANES) * VEC; }
  bool has_column(int k) const { return WHOLE_COLUMNS || column(k) < columns; }

  void load(const Stored* from, Pack<float, VEC> (&s)[ROWS][PACKS]) const {
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int k = 0; k < PACKS; ++k) {
        if (!has_row(i) || !has_column(k)) continue;
        const auto pack = load_pack<VEC>(from + i * GROUPS * columns + column(k));
#pragma unroll
        for (int j = 0; j < VEC; ++j) s[i][k].at[j] = to_float(pack.at[j]);
      }
  }
  void store(Stored* to, const Pack<float, VEC> (&s)[ROWS][PACKS]) const {
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int k = 0; k < PACKS; ++k) {
        Pack<Stored, VEC> pack;
#pragma unroll
        for (int j = 0; j < VEC; ++j) pack.at[j] = from_float<Stored>(s[i][k].at[j]);
        if (has_row(i) && has_column(k)) store_pack(to + i * GROUPS * columns + column(k), pack);
      }
  }
  Token token(const Element* x, const Element* b, const Element* c) const {
    Token t = {};
#pragma unroll
    for (int k = 0; k < PACKS * PARTS; ++k) {
      const int at = column(k / PARTS) + k % PARTS * 4;
      if (has_column(k / PARTS)) t.b[k] = load_pack<4>(b + at), t.c[k] = load_pack<4>(c + at);
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
      if (has_row(i)) t.x[i] = x[i * GROUPS];
    return t;
  }
};

// The sums over LANES lanes of each of x: half of the lanes go on with half of the rows, and so on. Lane l has that of row l / (LANES / ROWS).
static inline float sum_of_row(float (&x)[ROWS]) {
#pragma unroll
  for (int parts = 2; parts <= ROWS; parts *= 2) {
    const bool upper = lane() & (LANES / parts);
#pragma unroll
    for (int i = 0; i < ROWS / parts; ++i) {
      const float other = x[i + ROWS / parts], given = upper ? x[i] : other, kept = upper ? other : x[i];
      x[i] = kept + shuffle_xor(given, LANES / parts);
    }
  }
#pragma unroll
  for (int mask = LANES / ROWS / 2; mask > 0; mask /= 2) x[0] += shuffle_xor(x[0], mask);
  return x[0];
}

// The state after a token; gives the sum of the row that sum_of_row says, with `skip` times x.
static inline float take_in(Pack<float, VEC> (&s)[ROWS][PACKS], const Token& t, const Step& step, float skip) {
  float sums[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    const float x = to_float(t.x[i]), weight = step.size * x;
    sums[i] = lane() % LANES == 0 ? skip * x : 0;
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        s[i][k].at[j] = step.left.of(s[i][k].at[j]) + weight * to_float(t.b[k * PARTS + j / 4].at[j % 4]);
        sums[i] += to_float(t.c[k * PARTS + j / 4].at[j % 4]) * s[i][k].at[j];
      }
  }
  return sum_of_row(sums);
}

// Block number: WARPS * GROUPS * ROWS rows of a head of a sequence. Packed: those of the sequence after the last write zeros behind it.
KERNEL(32 * WARPS, 1) recurrent(${parameters('recurrent')}) {
  const int64_t sequence = block_z();
  const int head = block_y(), heads = static_cast<int>(H), features = static_cast<int>(P), columns = WHOLE_COLUMNS ? COLUMNS : static_cast<int>(N);
  const Place place{(block_x() * WARPS + warp()) * GROUPS * ROWS + lane() / LANES, features, columns};
  const int own = lane() % LANES / (LANES / ROWS);  // the row whose sum the lane has
  const bool writes = lane() % (LANES / ROWS) == 0 && place.has_row(own);
  const int64_t state_row = ((sequence * heads + head) * features + place.row) * columns;
$if in_place
  Stored *const before = state + state_row, *const after = before;
$else
  const float* const before = initial_state ? initial_state + state_row : nullptr;
  float* const after = final_state + state_row;
$end
$if packed
  const int64_t first = cum_seqlens[sequence], count = (sequence < sequences ? cum_seqlens[sequence + 1] : T) - first;
  Element* to = out + (first * heads + head) * features + place.row + own * GROUPS;
  if (sequence == sequences) {
    for (int64_t t = 0; t < count && writes; ++t) to[t * heads * features] = from_float<Element>(0.0f);
    return;
  }
  const int64_t x_at = first * x_step, dt_at = first * dt_step, b_at = first * b_step, c_at = first * c_step;
$else
  const int64_t count = ${one_token} ? 1 : T, x_at = sequence * x_stride, dt_at = sequence * dt_stride, b_at = sequence * b_stride, c_at = sequence * c_stride;
  Element* to = out + (sequence * count * heads + head) * features + place.row + own * GROUPS;
$end
$if in_place
  if (count == 0) return;
$end
  Pack<float, VEC> s[ROWS][PACKS] = {};
  if (${in_place} || before) place.load(before, s);
  const int64_t group = ${one_group} ? 0 : head / static_cast<int>(heads_a_group) * columns;
  const Element* const x_row = x + x_at + head * features + place.row;
  const auto token = [&](int64_t t) {
    return place.token(x_row + t * x_step, Bm + b_at + t * b_step + group, C + c_at + t * c_step + group);
  };
  Token next = {};
  if (count > 0) next = token(0);
  float bias = 0, skip = 0;
$if biased
  bias = to_float(dt_bias[head]);
$end
$if skips
  skip = to_float(D[head]);
$end
  const float rate = to_float(A[head]);
  // Lane l has token first + l's.
  const auto steps_from = [&](int64_t first) {
    const int64_t own_token = first + lane() < count ? first + lane() : count - 1;
    const float z = to_float(dt[dt_at + own_token * dt_step + head]) + bias, size = ${softplus} ? softplus_of(z) : z;
    return Step{size, split_exp(size * rate)};
  };
  Step steps = {};
  if (count > 0) steps = steps_from(0);
#pragma unroll 1
  for (int64_t t = 0; t < count; ++t) {
    const Token now = next;
    if (t + 1 < count) next = token(t + 1);
    const int from = static_cast<int>(t % WARP);
    if (t > 0 && from == 0) steps = steps_from(t);
    const Step step = ${one_token} ? steps : Step{shuffle(steps.size, from), {shuffle(steps.left.base, from), shuffle(steps.left.rest, from)}};
    const float sum = take_in(s, now, step, skip);
    if (writes) to[t * heads * features] = from_float<Element>(sum);
  }
  place.store(after, s);
}
