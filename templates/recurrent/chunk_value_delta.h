// GPU vocabulary of the chunked recurrence with gates of values and the delta rule: what tokens write, column by column. Part of a template, like
// chunk_values.h, which comes before. A column of the state has a triangular system of its own,
//   u_t = beta_t (v_t - left_t S^T k_t - sum over s < t of left(t, s) (k_t . k_s) u_s)
// with left_t what its gates leave at token t of the state S before the step, and left(t, s) of what token s wrote. Lanes that have the column
// solve it by substitution, in f32: first those of the step's earlier half, then those of the later.
#pragma once

constexpr int DELTA_PIECES = NARROW ? 2 : 3;  // elements a number, of a state that keys read and of what tokens write

// Products of a chunk's keys with keys, and of its queries with keys, of each step: [t][s].
struct DeltaPairs {
  float keys[CHUNK / STEP][STEP][STEP], queries[CHUNK / STEP][STEP][STEP];
};

static inline void put_delta_pairs(const KeyTile& queries, const KeyTile& keys, const Norms& norms, float scale, DeltaPairs& to) {
#pragma unroll 1
  for (int i = warp(); i < 2 * (CHUNK / STEP); i += WARPS) {
    const bool of_queries = i % 2;
    const int step = i / 2, first = STEP * step;
    const KeyTile left = of_queries ? queries : keys;
    float sums[2][2][4] = {};  // of even and of odd slices: fewer products wait for others
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      uint32_t a[4], b[4];
      left.load_a(a, first, 16 * k);
      keys.load_b(b, first, 16 * k);
      multiply_two(sums[k % 2][0], sums[k % 2][1], a, b);
    }
    float(*rows)[STEP] = of_queries ? to.queries[step] : to.keys[step];
    const float* norms_of_rows = of_queries ? norms.q : norms.k;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = lane() / 4 + i / 2 * 8, s = 8 * n + lane() % 4 * 2 + i % 2;
        const float norm = NORMED ? norms_of_rows[first + t] * norms.k[first + s] : 1;
        rows[t][s] = (sums[0][n][i] + sums[1][n][i]) * (norm * (of_queries ? scale : 1));
      }
  }
}

// A warp's columns by a step's tokens.
struct DeltaStep {
  ColumnRows seen;   // what a token's key reads of the state before the step
  ColumnRows left;   // what is left of that state at a token
  ColumnRows kept;   // what is left of a token's write after the step
  ColumnRows sums;   // what a token reads of the step
};

// sums += pairs[s] x[s] of s < COUNT; pairs: aligned to 16 bytes.
template <int COUNT> static inline void add_pairs(float& sum, const float* pairs, const float (&x)[HALF]) {
#pragma unroll
  for (int s = 0; s < COUNT; s += 4) {
    const Pack<float, 4> four = load_pack<4>(pairs + s);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (s + i < COUNT) sum += four.at[i] * x[s + i];
  }
}

// Of a lane's column: what is left of the writes of the earlier half and of its own, and of the state before the step.
struct DeltaColumn {
  float earlier[HALF] = {}, own[HALF] = {}, left = 1;

  // Solves a half. gates: in units of log 2; pairs, betas: of the half's tokens; values: the column's, `pitch` elements from token to token.
  template <bool LATER>
  void solve(const float (&gates)[HALF], const float (*keys)[STEP], const float (*queries)[STEP], const float* betas, const Element* values, int pitch,
             DeltaStep& step) {
    const float* seen = &step.seen.at[lane() % 16][LATER ? HALF : 0];
    float lefts[HALF], sums[HALF];
    take<LATER, 0>(gates, keys, queries, betas, values, pitch, seen, lefts, sums);
    step.left.put(lefts), step.sums.put(sums);
    if (!LATER) return;
    float* kept = step.kept.at[lane() % 16];
#pragma unroll
    for (int s = 0; s < HALF; ++s) kept[s] = earlier[s], kept[HALF + s] = own[s];
  }

 private:
  // Token T of the half, and those after it.
  template <bool LATER, int T>
  void take(const float (&gates)[HALF], const float (*keys)[STEP], const float (*queries)[STEP], const float* betas, const Element* values, int pitch,
            const float* seen, float (&lefts)[HALF], float (&sums)[HALF]) {
    constexpr int FIRST = LATER ? HALF : 0;
    const float gate = exp2_of(gates[T]);
    lefts[T] = left *= gate;
#pragma unroll
    for (int s = 0; LATER && s < HALF; ++s) earlier[s] *= gate;
#pragma unroll
    for (int s = 0; s < T; ++s) own[s] *= gate;
    float read = left * seen[T], sum = 0;
    if (LATER) add_pairs<HALF>(read, keys[T], earlier), add_pairs<HALF>(sum, queries[T], earlier);
    add_pairs<T>(read, keys[T] + FIRST, own);
    own[T] = betas[T] * (to_float(values[T * pitch]) - read);
    add_pairs<T + 1>(sum, queries[T] + FIRST, own);
    sums[T] = sum;
    if constexpr (T + 1 < HALF) take<LATER, T + 1>(gates, keys, queries, betas, values, pitch, seen, lefts, sums);
  }
};

// All of a step's columns. first: number of the step in the chunk; betas, values: from the lane's half on.
static inline ColumnFactors solve_step(const float (&gates)[HALF], const DeltaPairs& pairs, int number, const float* betas, const Element* values,
                                       int pitch, DeltaStep& to) {
  const bool later = lane() >= 16;
  DeltaColumn column;
  if (!later) column.solve<false>(gates, pairs.keys[number], pairs.queries[number], betas, values, pitch, to);
  const int other = lane() % 16;
  const float before = shuffle(column.left, other);
#pragma unroll
  for (int s = 0; s < HALF; ++s) column.earlier[s] = shuffle(column.own[s], other);
  if (later) {
    column.left = before;
    column.solve<true>(gates, pairs.keys[number] + HALF, pairs.queries[number] + HALF, betas, values, pitch, to);
  }
  float log = 0;
#pragma unroll
  for (int i = 0; i < HALF; ++i) log += gates[i];
  return ColumnFactors(log, column.left);
}
