// CPU vocabulary: sizes and scratch of a chunk of a recurrence. The template says CHUNK, the most tokens of one (a multiple of ROWS), and
// DELTA and VALUE_GATES.
#pragma once
#include "device/matrix/register_tile.h"
#include "device/number/math.h"
#include "recurrent/recurrent_decay.h"
#include "recurrent/recurrent_rows.h"
$if dual  // ssd
#include "ssd/dual_rows.h"
$end

constexpr int ROWS = ${amx ? 8 : arch.registers >= 32 ? 12 : 6}, VECTORS = 2;  // of a register tile
constexpr int64_t STATE_TILE = ${amx} ? 32 : ROWS;                   // key features of a tile of the state
constexpr int64_t PANEL = VECTORS * LANES;                           // features of v whose tiles are computed after each other
// Floats from row to row of arrays over pairs of tokens: an odd number of cache lines, so that rows do not fall into one cache set.
constexpr int64_t COLUMNS = (CHUNK + 31) / 32 * 32 + 16;
static_assert(CHUNK % ROWS == 0, "a chunk is whole tiles of tokens");

typedef RegisterTile<ROWS, VECTORS> Tile;
typedef ${dual ? 'SkipRows' : 'OutRows'} Out;

static inline int64_t up_to(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

// One sequence and head.
struct Stream {
  Rows q, k, v, gk, gv;
  Numbers g, beta;
  float gamma, scale;
  int64_t tokens;
  bool reverse, l2_norm;
$if dual
  Steps steps;  // in place of g; and factors of k
$end

  int64_t place(int64_t t) const { return reverse ? tokens - 1 - t : t; }

  bool gates_tokens() const { return ${dual} || g.data || gamma != 0; }
  // Log gates of tokens from `start` on, but for those of keys; 0 from `count` tokens up to COLUMNS. And ssd's steps.
  void load_gates(int64_t start, int64_t count, float* gates${dual ? ', float* own_steps' : ''}) const {
$if dual
    steps.load(start, count, COLUMNS, own_steps);
    for (int64_t t = 0; t < COLUMNS; t += LANES) store_floats(gates + t, load_floats(own_steps + t) * steps.rate);
    for (int64_t t = count; t < COLUMNS; ++t) gates[t] = 0;  // as the rate may be infinite
$else
    for (int64_t t = 0; t < COLUMNS; ++t) gates[t] = t < count ? g.at(place(start + t)) + gamma : 0;
$end
  }

  // Asks for the rows of tokens first .. end. Rows of a head lie apart, and no hardware looks so far ahead. Always inline: GCC takes a
  // function that only prefetches for one without effect, and drops the call.
  inline __attribute__((always_inline)) void prefetch(int64_t first, int64_t end) const {
    for (int64_t t = first; t < end && t < tokens; ++t)
      for (int of = 0; of < 5; ++of) {
        const Rows& rows = of == 0 ? q : of == 1 ? k : of == 2 ? v : of == 3 ? gk : gv;
        const char* from = rows.data + place(t) * rows.stride;
        for (int64_t byte = 0; rows.data && byte < rows.count * bytes_of(rows.type); byte += 64) __builtin_prefetch(from + byte, 0, 2);
      }
  }
};

// A whole row, as vectors. Apart: the types that a row may have are compiled once.
static __attribute__((noinline)) void load_row(const Row& row, float* to, float scale) {
  for (int64_t i = 0; i < row.count; i += LANES) store_floats(to + i, row.load(i) * scale);
}

// The same of q and k (load_scaled).
static __attribute__((noinline)) void load_key_row(const Row& row, float* to, float scale, bool l2_norm) {
  load_scaled(row, to, scale, l2_norm);
}

// The scratch of a work item, in floats. Arrays over the keys have rows of `row` floats, zeros from the last key up to a whole vector.
struct Scratch {
  int64_t keys, row, state_rows;  // state_rows: whole tiles
  float* state;                   // [panel][state_rows][PANEL]
  float *decay, *decay_rest;      // [keys]: how the state decays over the chunk, in two parts (split_exp)
  float *q, *k;                   // [CHUNK][row]: as they are; after prepare as they read the state before the chunk
  float* factor;                  // [CHUNK][row]: e^gate of each token
  float* moving;                  // [ROWS][row]
  float *of_tile, *from_start;    // [keys]: factors over a tile of tokens, and before it
  float* kept;                    // [keys][COLUMNS]: keys, transposed; after prepare as they are at the chunk's end
  float *on_q, *on_k;             // [CHUNK][COLUMNS]: [t][j], what w_j counts for token t's query and key; of j > t nothing
  float *w, *v_factor;            // [CHUNK][PANEL]

  Scratch(float* next, int64_t count, int64_t width) : keys(count), row(up_to(count, 32) + 16), state_rows(up_to(count, STATE_TILE)) {
    const auto take = [&next](int64_t floats) { return (next += floats) - floats; };
    const int64_t padded = up_to(count, ${amx ? 96 : 48});  // whole vectors and whole tiles
    state = take(state_rows * width), decay = take(padded), decay_rest = take(padded);
    q = take(CHUNK * row), k = take(CHUNK * row), moving = take(ROWS * row);
    of_tile = take(padded), from_start = take(padded), kept = take(padded * COLUMNS);
    on_q = take(CHUNK * COLUMNS), on_k = take(CHUNK * COLUMNS), w = take(CHUNK * PANEL), v_factor = take(CHUNK * PANEL);
    factor = next;  // last: only with gates of keys
    for (int64_t i = count; i < padded; ++i) decay[i] = decay_rest[i] = 0;
    __builtin_memset(kept + count * COLUMNS, 0, (padded - count) * COLUMNS * sizeof(float));
  }
};
