// CPU vocabulary: products of matrices in memory by register tiles, and gradients of weights of pairs of tokens of a recurrence's chunk.
#pragma once
#include "recurrent/cpu_pairs.h"

// c (+)= a b, of `rows` rows (whole tiles; all three have them) and columns up to whole panels of `columns`.
template <bool ADD>
static void multiply(const float* a, int64_t a_row, const float* b, int64_t b_row, float* c, int64_t c_row, int64_t rows, int64_t columns,
                     int64_t steps) {
  for (int64_t j = 0; j < columns; j += PANEL)
    for (int64_t i = 0; i < rows; i += ROWS) {
      Tile sum;
      float* to = c + i * c_row + j;
      clear_tile(sum);
      add_product(sum, a + i * a_row, a_row, b + j, b_row, steps);
#pragma GCC unroll 16
      for (int p = 0; ADD && p < ROWS; ++p)
#pragma GCC unroll 4
        for (int x = 0; x < VECTORS; ++x) sum[p][x] += load_floats(to + p * c_row + x * LANES);
      store_tile(sum, to, c_row);
    }
}

// to[j][i] = from[i][j]. Rows of `from` have whole vectors of `columns`; `to` has as many rows, of whole vectors of `rows`.
static void turn(const float* from, int64_t from_row, float* to, int64_t to_row, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i += LANES)
    for (int64_t j = 0; j < columns; j += LANES) {
      Floats block[LANES];
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < LANES; ++lane) block[lane] = i + lane < rows ? load_floats(from + (i + lane) * from_row + j) : Floats{};
      transpose(block);
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < LANES; ++lane)
        if (j + lane < columns) store_floats(to + (j + lane) * to_row + i, block[lane]);
    }
}

// Factors of the gates of each token and key since the chunk's begin, and after the token up to its end.
static void find_factors(const Stream& stream, const Scratch& s, int64_t start, int64_t tokens, int64_t rows, float* from_start,
                         float* to_end) {
  if (stream.gk.data) {
    for (int64_t i = 0; i < s.keys; i += LANES) {
      Floats product = splat(1.0f);
      for (int64_t t = 0; t < rows; ++t) {
        product *= load_floats(s.factor + t * s.row + i);
        store_floats(from_start + t * s.row + i, product);
      }
      product = splat(1.0f);
      for (int64_t t = rows - 1; t >= 0; --t) {
        store_floats(to_end + t * s.row + i, product);
        product *= load_floats(s.factor + t * s.row + i);
      }
    }
    return;
  }
  const GateSums sums(stream, start, tokens, rows);
  float left[COLUMNS];
  for (int64_t j = 0; j < COLUMNS; j += LANES) store_floats(left + j, sums.between(rows - 1, j));
  for (int64_t t = 0; t < rows; ++t) {
    const Floats read = exp2_of(splat(sums.high[t] * LOG2_E)), kept = splat(left[t]);
    for (int64_t i = 0; i < s.keys; i += LANES) store_floats(from_start + t * s.row + i, read), store_floats(to_end + t * s.row + i, kept);
  }
}

struct PairWork {
  float *weights, *across;  // [CHUNK][COLUMNS]: gradients of weights [t][j]; transposed
  float *moved, *met;       // [CHUNK][row]
};

// Adds to `of_reader` and `of_kept` what pairs j < t bring: reader_t . (e[j, t] kept_j) counts weights[t][j].
static void pair_gradients_token(const Stream& stream, const Scratch& s, int64_t start, int64_t tokens, int64_t rows, const PairWork& work,
                                 const float* reader, const float* kept, float* of_reader, float* of_kept) {
  const GateSums sums(stream, start, tokens, rows);
  for (int64_t t = 0; t < rows; ++t) {
    float* weights = work.weights + t * COLUMNS;
    for (int64_t j = 0; j < t; j += LANES) store_floats(weights + j, load_floats(weights + j) * sums.between(t, j));
    for (int64_t j = t; j < rows; ++j) weights[j] = 0;
  }
  turn(work.weights, COLUMNS, work.across, COLUMNS, rows, rows);
  multiply<true>(work.weights, COLUMNS, kept, s.row, of_reader, s.row, rows, s.keys, rows);
  multiply<true>(work.across, COLUMNS, reader, s.row, of_kept, s.row, rows, s.keys, rows);
}

// What readers get, tile by tile of tokens: kept rows move from token to token, as in prepare_key_gates.
static void gradients_of_readers(const Scratch& s, int64_t rows, const PairWork& work, const float* kept, float* of_reader) {
  for (int64_t first = 0; first < rows; first += ROWS) {
    if (first > 0) multiply<false>(work.weights + first * COLUMNS, COLUMNS, work.moved, s.row, work.met, s.row, ROWS, s.keys, first);
    for (int64_t i = 0; i < s.keys; i += LANES) {
      Floats product = splat(1.0f), moving[ROWS];
      for (int64_t p = 0; p < ROWS; ++p) {
        const int64_t t = first + p;
        const Floats factor = load_floats(s.factor + t * s.row + i);
        product *= factor;
        Floats sum = first > 0 ? product * load_floats(work.met + p * s.row + i) : Floats{};
        for (int64_t j = 0; j < p; ++j) {
          moving[j] *= factor;
          sum += work.weights[t * COLUMNS + first + j] * moving[j];
        }
        moving[p] = load_floats(kept + t * s.row + i);
        store_floats(of_reader + t * s.row + i, load_floats(of_reader + t * s.row + i) + sum);
      }
      for (int64_t j = 0; j < first; ++j) store_floats(work.moved + j * s.row + i, load_floats(work.moved + j * s.row + i) * product);
      for (int64_t p = 0; p < ROWS; ++p) store_floats(work.moved + (first + p) * s.row + i, moving[p]);
    }
  }
}

// What kept rows get, from the last tile on: readers move from token to token backwards.
static void gradients_of_kept(const Scratch& s, int64_t rows, const PairWork& work, const float* reader, float* of_kept) {
  for (int64_t first = rows - ROWS; first >= 0; first -= ROWS) {
    const int64_t end = first + ROWS;
    if (end < rows)
      multiply<false>(work.across + first * COLUMNS + end, COLUMNS, work.moved + end * s.row, s.row, work.met, s.row, ROWS, s.keys,
                      rows - end);
    for (int64_t i = 0; i < s.keys; i += LANES) {
      Floats product = splat(1.0f), moving[ROWS];
      for (int64_t p = ROWS - 1; p >= 0; --p) {
        const int64_t j = first + p;
        const Floats factor = load_floats(s.factor + j * s.row + i);
        Floats sum = end < rows ? product * load_floats(work.met + p * s.row + i) : Floats{};
        for (int64_t t = p + 1; t < ROWS; ++t) sum += work.across[j * COLUMNS + first + t] * moving[t];
        store_floats(of_kept + j * s.row + i, load_floats(of_kept + j * s.row + i) + sum);
        moving[p] = load_floats(reader + j * s.row + i);
        for (int64_t t = p; t < ROWS; ++t) moving[t] *= factor;
        product *= factor;
      }
      for (int64_t t = end; t < rows; ++t) store_floats(work.moved + t * s.row + i, load_floats(work.moved + t * s.row + i) * product);
      for (int64_t p = 0; p < ROWS; ++p) store_floats(work.moved + (first + p) * s.row + i, moving[p]);
    }
  }
}

static void pair_gradients(const Stream& stream, const Scratch& s, int64_t start, int64_t tokens, int64_t rows, const PairWork& work,
                           const float* reader, const float* kept, float* of_reader, float* of_kept) {
  if (!stream.gk.data) return pair_gradients_token(stream, s, start, tokens, rows, work, reader, kept, of_reader, of_kept);
  turn(work.weights, COLUMNS, work.across, COLUMNS, rows, rows);
  gradients_of_readers(s, rows, work, kept, of_reader);
  gradients_of_kept(s, rows, work, reader, of_kept);
}
