// GPU vocabulary of the chunked recurrence on matrix instructions of a wave, with gates of keys and the delta rule: a chunk's system, and what its
// keys read of the state before it.
//
// Row t of the system (chunk_wave_delta.h) has weights of pairs of keys, in f32: within a part as those of queries and keys are made; of both
// parts as dot products of p_t k_t and r_s k_s. What keys read is what is left of the state at them: three bf16 a number of either, as it must be
// nearly as good as f32. These rows take the place of what gates leave, and give way to what the state takes in.
#pragma once
#include "recurrent/chunk_wave_delta.h"
#include "recurrent/chunk_wave_keys.h"

struct KeyDelta {
  KeyPlaces at;
  Solver solver;
  float* betas;
  static constexpr int PITCH = KEYS + 4, PIECE = CHUNK * KEY_PITCH;  // of f32 rows; bytes of rows of a piece
  static_assert(4 * CHUNK * PITCH <= 2 * KeyPlaces::TAKEN && 2 * PIECE <= 2 * KeyPlaces::TAKEN);

  char* place() const { return at.memory + KeyPlaces::FACTORS; }
  // Blocks on the diagonal, while what gates leave is there.
  void multiply_near() const {
    ::multiply_near(at, at.keys(), [&](int t, int s, float x) {
      solver.diagonal(t / PART)[t % PART * DIAGONAL_PITCH + s % PART] = x * at.key_norm(t) * betas[t];
    });
  }
  // The thread's keys (KeyWeigher): p k of the later part and r k of the earlier one, in place of what gates leave.
  void put_rows(const float (&factors)[PART]) const {
    if (thread_x() >= 2 * KEYS) return;
    const int part = thread_x() / KEYS;
    int first = PART * part, key = thread_x() % KEYS;
    hold(first), hold(key);  // addresses are made here, not kept from chunk to chunk
    float* row = reinterpret_cast<float*>(place()) + first * PITCH + key;
    const Element* from = at.keys() + first * KeyTile::PITCH + key;
    float left = 1;
    if (part == 0) {
#pragma unroll
      for (int i = PART - 1; i >= 0; --i) {
        row[i * PITCH] = to_float(from[i * KeyTile::PITCH]) * at.key_norm(i) * left;
        left *= factors[i];
      }
    } else {
#pragma unroll
      for (int i = 0; i < PART; ++i) {
        left *= factors[i];
        row[i * PITCH] = to_float(from[i * KeyTile::PITCH]) * at.key_norm(PART + i) * left;
      }
    }
  }
  // The block below the diagonal.
  void multiply_far() const {
    const float* rows = reinterpret_cast<const float*>(place());
#pragma unroll 1
    for (int pair = thread_x(); pair < PART * PART; pair += THREADS) {
      const int t = PART + pair / PART, s = pair % PART;
      float sum = 0;
#pragma unroll 2
      for (int key = 0; key < KEYS; key += 4) {
        const Pack<float, 4> x = load_pack<4>(rows + t * PITCH + key), y = load_pack<4>(rows + s * PITCH + key);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum += x.at[j] * y.at[j];
      }
      solver.put_pieces(t, s, sum * betas[t]);
    }
  }
  // Keys times what gates leave at them of the state before the chunk: pieces [first, first + COUNT), one after another.
  template <int FIRST, int COUNT> void put_pieces(const float (&factors)[PART]) const {
    if (thread_x() >= 2 * KEYS) return;
    const int part = thread_x() / KEYS;
    int key = thread_x() % KEYS;
    hold(key);
    float left = part ? exp2_of(at.logs()[key]) : 1;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      const int t = PART * part + i;
      left *= factors[i];
      float x = to_float(at.keys()[t * KeyTile::PITCH + key]) * at.key_norm(t) * left;
#pragma unroll
      for (int piece = 0; piece < FIRST + COUNT; ++piece) {
        const bfloat16 rounded = from_float<bfloat16>(x);
        x -= to_float(rounded);
        if (piece >= FIRST) reinterpret_cast<bfloat16*>(place() + (piece - FIRST) * PIECE + t * KEY_PITCH)[key] = rounded;
      }
    }
  }
  // seen [16 tokens][16 columns] of TILES tiles += those rows times the state, without products below the last digits.
  template <int FIRST, int COUNT> void add_seen(Sums (&seen)[TILES], const State& state) const {
    const SharedPointer rows = shared_pointer(place());
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      part();
      Sums x = state[k];
#pragma unroll
      for (int of_state = 0; of_state + FIRST < 3; ++of_state) {
        const Operand b = operand_of<bfloat16>(x);
        x = rest_of<bfloat16>(x);
#pragma unroll
        for (int piece = FIRST; piece < FIRST + COUNT && piece + of_state < 3; ++piece)
#pragma unroll
          for (int r = 0; r < TILES; ++r) {
            multiply<bfloat16>(seen[r], load_operand(rows + (piece - FIRST) * PIECE + 16 * r * KEY_PITCH + 32 * k, KEY_PITCH), b);
            hold(seen[r]);
          }
      }
    }
  }
};

// state = decays state + keys^T written, with a decay for each key; `written` is [token][column] in units of 1 / inverse.
static inline void take_in_by_keys(State& state, const KeyPlaces& at, const Parts (&written)[TILES], float inverse) {
  const SharedPointer taken = shared_pointer(at.memory) + KeyPlaces::FACTORS;
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    part();
    Sums more[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c) {
      const SharedPointer from = taken + 16 * k * TOKEN_PITCH + 32 * c;
      const Operand keys = load_operand(from, TOKEN_PITCH), rest = load_operand(from + KeyPlaces::TAKEN, TOKEN_PITCH);
      Sums sums = {}, least = {};
      multiply<Element>(sums, keys, written[c].at[0]);
#pragma unroll
      for (int piece = PARTS - 1; piece > 0; --piece) multiply<Element>(least, keys, written[c].at[piece]);
      multiply<Element>(least, rest, written[c].at[1]);
      multiply<Element>(least, rest, written[c].at[0]);
#pragma unroll
      for (int i = 0; i < SUMS; ++i) more[c].at[i] = sums.at[i] + least.at[i];
    }
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const int key = 16 * k + matrix_row(i);
      float& x = state[k].at[i];
      x = x * at.decays()[key] + x * at.decays()[KEYS + key];
#pragma unroll
      for (int c = 0; c < TILES; ++c) x += more[c].at[i] * (NARROW ? at.inverses()[c * KEYS + key] * inverse : 1);
    }
  }
}
