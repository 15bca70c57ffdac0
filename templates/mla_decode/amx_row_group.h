// CPU vocabulary of mla_decode on AMX: GROUP query rows against tiles of keys.
//
//   scores  S^T[key][row]   = sum over d   of K[key][d]   * Q^T[d][row]    rows lie along the vectors, so that a row's softmax is a lane's
//   output  O[row][feature] = sum over key of P[row][key] * V[key][feature]
// Weights are summed in f32, and rounded to bf16 for the second product. Part of a template, which has defined before: R, VECTORS, BLOCK;
// and KeyTile.
#pragma once

constexpr int64_t KEYS_AT_ONCE = VECTORS == 1 && BLOCK >= 64 ? 64 : 32;  // keys that the rows' features meet at once
static_assert(BLOCK % KEYS_AT_ONCE == 0 && BLOCK >= GROUP && VECTORS <= 2);

struct alignas(64) Scores {
  ScoreRows at, part;                                // part: of the features that share a scale
  float weights[BLOCK / STEP][VECTORS][TILE_WORDS];  // left operands: query rows are lines
};

static inline void start_products() { amx_configure(); }
static inline void end_products() { amx_release(); }

struct alignas(64) RowGroup {
  float query[PITCH / STEP][VECTORS][TILE_WORDS];  // right operands: pairs of features are lines
  float output[R / STEP][VECTORS][2][TILE_WORDS];  // columns as those of KeyTile's pairs
  GroupSoftmax softmax;

  void start() {
    softmax.start();
    __builtin_memset(query, 0, sizeof query);
    __builtin_memset(output, 0, sizeof output);
  }
  // Rows come as lines; then the tiles are turned.
  void load_row(int r, const bfloat16* latent, const bfloat16* rope) {
    for (int64_t d = 0; d < PITCH; d += STEP)
      store_floats(query[d / STEP][r / 16] + r % 16 * LANES,
                   d < R ? load_line(latent + d, STEP) : load_line(rope + (d - R), ROPE - (d - R)));
  }
  void end_loading() {
    for (auto& step : query)
      for (auto& tile : step) turn_tile(tile, tile, LANES);
  }

  // Those past the last key of a tile are of no account.
  template <bool> void score(const KeyTile& tile, Scores& scores, const KeyPlaces& places, const KeyPlaces&) const {
    for (int64_t key = 0; key < places.count; key += KEYS_AT_ONCE) {
      if constexpr (!BYTES) {
        multiply_keys(tile, key, 0, PITCH, scores.at);
      } else {
        multiply_keys(tile, key, R, PITCH, scores.at);
        for (int64_t i = 0; i < SCALES; ++i) {
          multiply_keys(tile, key, i * SCALED, (i + 1) * SCALED, scores.part);
          for (int64_t k = key; k < key + KEYS_AT_ONCE; ++k)
            for (int v = 0; v < VECTORS; ++v) {
              float* to = scores.at[k] + v * LANES;
              store_floats(to, load_floats(to) + load_floats(scores.part[k] + v * LANES) * tile.scale[k][i]);
            }
        }
      }
    }
  }

  // After score().
  void attend(const KeyTile& tile, Scores& scores, const KeyPlaces& places, const Scoring& scoring) {
    const bool hidden = softmax.hides(places);
    for (int v = 0; v < VECTORS; ++v)
      rescale(v, hidden ? softmax.weigh<true>(v, scores.at, places, scoring) : softmax.weigh<false>(v, scores.at, places, scoring));
    if (hidden && !tile.finite(places.count)) return add_values_guarded(tile, scores, places.count);
    const int64_t end = (places.count + STEP - 1) / STEP * STEP;  // keys past the last are zeros, and so are their scores
    for (int64_t i = 0; i < SCALES; ++i) {
      for (int64_t key = 0; key < end; key += STEP) pack_weights(tile, scores, key, i);
      multiply_values(tile, scores, end / STEP, i * (SCALED / STEP), (i + 1) * (SCALED / STEP));
    }
  }

  // Weighted values, [R][GROUP]: in the tile, which is of no use any more.
  const float* values(KeyTile& tile) const {
    static_assert(sizeof tile >= sizeof output);
    float* to = reinterpret_cast<float*>(&tile);
    turn_output(to);
    return to;
  }
  void store_part(float* to) const {
    if (float* values = softmax.store_part(to)) turn_output(values);
  }

 private:
  // A tile of words turned: line i to `to` + i * row.
  static void turn_tile(const float* from, float* to, int64_t row) {
    Floats lines[LANES];
    for (int i = 0; i < LANES; ++i) lines[i] = load_floats(from + i * LANES);
    transpose(lines);
    for (int i = 0; i < LANES; ++i) store_floats(to + i * row, lines[i]);
  }
  void turn_output(float* to) const {
    for (int64_t step = 0; step < R / STEP; ++step)
      for (int v = 0; v < VECTORS; ++v)
        for (int odd = 0; odd < 2; ++odd) turn_tile(output[step][v][odd], to + (step * STEP + odd) * GROUP + v * LANES, 2 * GROUP);
  }

  // Step d of tiles of keys, as a left operand.
  struct Keys {
    const KeyLines* lines;
    int64_t d;
    template <int TILE> inline void load(int i) const { amx_load<TILE>(lines[i].line(0, d), lines[i].stride(d)); }
  };

  // Scores of KEYS_AT_ONCE keys, of features [from, to).
  void multiply_keys(const KeyTile& tile, int64_t key, int64_t from, int64_t to, ScoreRows& scores) const {
    using Block = AmxBlock<KEYS_AT_ONCE / 16, VECTORS>;
    Block::zero();
    for (int64_t d = from; d < to; d += STEP) {
      Block::multiply(Keys{tile.lines + key / 16, d}, query[d / STEP][0]);
    }
    Block::store_rows(scores[key], GROUP);
  }

  void rescale(int v, Floats factor) {
    if (!any(factor != splat(1.0f))) return;
    for (int r = 0; r < LANES; ++r) {
      if (factor[r] == 1) continue;
      for (auto& step : output)
        for (auto& tile : step[v]) store_floats(tile + r * LANES, load_floats(tile + r * LANES) * factor[r]);
    }
  }

  // Weights of STEP keys, times their scale of number i, rounded half up.
  static void pack_weights(const KeyTile& tile, Scores& scores, int64_t key, int64_t i) {
    for (int v = 0; v < VECTORS; ++v) {
      Floats lines[LANES];
      for (int pair = 0; pair < LANES; ++pair) {
        const int64_t k = key + 2 * pair;
        const Floats even = load_floats(scores.at[k] + v * LANES), odd = load_floats(scores.at[k + 1] + v * LANES);
        lines[pair] = BYTES ? pair_of_bf16(even * tile.scale[k][i], odd * tile.scale[k + 1][i]) : pair_of_bf16(even, odd);
      }
      store_tile(scores.weights[key / STEP][v], lines, true);
    }
  }

  // Adds weights * values of steps [from, to) of features.
  void multiply_values(const KeyTile& tile, const Scores& scores, int64_t key_steps, int64_t from, int64_t to) {
    constexpr int64_t AT_ONCE = VECTORS == 1 ? 2 : 1;
    for (; from + AT_ONCE <= to; from += AT_ONCE) multiply_some<AT_ONCE>(tile, scores, key_steps, from);
    if (from < to) multiply_some<1>(tile, scores, key_steps, from);
  }
  template <int STEPS>
  void multiply_some(const KeyTile& tile, const Scores& scores, int64_t key_steps, int64_t step) {
    using Block = AmxBlock<VECTORS, 2 * STEPS>;
    Block::load(output[step][0][0]);
    for (int64_t s = 0; s < key_steps; ++s) Block::multiply(scores.weights[s][0], tile.pairs[s][step][0]);
    Block::store(output[step][0][0]);
  }

  // The same, where a value behind a weight of 0 counts as 0 even if it is NaN: it may be of a key that the row does not see.
  void __attribute__((noinline)) add_values_guarded(const KeyTile& tile, const Scores& scores, int64_t count) {
    for (int64_t k = 0; k < count; ++k)
      for (int r = 0; r < GROUP; ++r) {
        const float weight = scores.at[k][r];
        if (weight == 0) continue;
        for (int64_t d = 0; d < R; ++d) output[d / STEP][r / LANES][d % 2][r % LANES * LANES + d % STEP / 2] += weight * tile.value(k, d);
      }
  }
};
