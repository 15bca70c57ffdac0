// GPU vocabulary of the chunked recurrence on matrix instructions of a wave, with gates of keys: what gates leave of a chunk's queries and keys,
// and weights of its pairs of tokens.
//
// A chunk is two parts of 16 tokens. With p_t what the gates leave from a part's start to token t, by key, and r_s what they leave from token s
// to its end, the weight of a pair of tokens of both parts is (p_t q_t) . (r_s k_s): products of factors that are at most 1. Within a part the
// factors of tokens in between are multiplied one after another, in f32.
//
// BACKWARD: a gradient's state decays by a token's gate after the token has written to it and read it: p_t is without token t's own gate, and
// r_s has that of token s.
#pragma once
#include "recurrent/chunk_wave_pairs.h"
constexpr int PART = 16, NEAR_PITCH = PART + 1;
constexpr bool BACKWARD = ${backward};
#include "recurrent/chunk_key_gates.h"

// A chunk's rows and numbers in shared memory. Queries become what is left of the state before the chunk times queries; keys become the factors
// of pairs of both parts, p q behind r k; what gates leave, [token][key], gives way to what the state takes in of keys, transposed.
struct KeyPlaces {
  static constexpr int KEY_ROWS = KeyTile::BYTES, FACTORS = 2 * KeyTile::BYTES, TAKEN = KEYS * TOKEN_PITCH;  // TAKEN: bytes of an element each
  static constexpr int LOGS = FACTORS + 2 * TAKEN, DECAYS = LOGS + 4 * TILES * KEYS, INVERSES = DECAYS + 8 * KEYS;
  static constexpr int NEAR = INVERSES + (NARROW ? 4 * TILES * KEYS : 0);
  static constexpr int TOKEN_GATES = NEAR + 4 * TILES * PART * NEAR_PITCH, NORMS = TOKEN_GATES + 4 * CHUNK;
  static constexpr int END = NORMS + (NORMED ? static_cast<int>(sizeof(Norms)) : 0);
  static_assert(4 * CHUNK * KEYS <= 2 * TAKEN);
  char* memory;

  Element* queries() const { return reinterpret_cast<Element*>(memory); }
  Element* keys() const { return reinterpret_cast<Element*>(memory + KEY_ROWS); }
  float* factors() const { return reinterpret_cast<float*>(memory + FACTORS); }
  float* logs() const { return reinterpret_cast<float*>(memory + LOGS); }          // [part][key]: sums of gates
  float* decays() const { return reinterpret_cast<float*>(memory + DECAYS); }      // base and rest of what the chunk leaves, by key
  float* inverses() const { return reinterpret_cast<float*>(memory + INVERSES); }  // [part][key]: of units of what the state takes in
  float* near(int part) const { return reinterpret_cast<float*>(memory + NEAR) + part * PART * NEAR_PITCH; }  // [t][s]
  float* token_gates() const { return reinterpret_cast<float*>(memory + TOKEN_GATES); }
  Norms& norms() const { return *reinterpret_cast<Norms*>(memory + NORMS); }
  float query_norm(int t) const { return NORMED ? norms().q[t] : 1; }
  float key_norm(int t) const { return NORMED ? norms().k[t] : 1; }
};

// Sums over 16 lanes of 16 numbers a lane: number j to lane j.
template <int HALF> static inline void add_lanes(float (&x)[PART]) {
  const bool upper = lane() & HALF;
#pragma unroll
  for (int j = 0; j < HALF; ++j) {
    const float first = x[j], second = x[j + HALF];  // not elements: the compiler would choose an index
    const float kept = upper ? second : first, other = upper ? first : second;
    x[j] = kept + shuffle_xor(other, HALF);
  }
}

// Pairs of tokens of one part, keys over their norms with `rows`: sixteen lanes take a token s and all t of its part from it on; put(t, s, x)
// has their products, of t before s 0.
template <class Put> static inline void multiply_near(const KeyPlaces& at, const Element* rows, Put put) {
  constexpr int TWOS = (KEYS + 31) / 32;  // of keys, a lane
#pragma unroll 1
  for (int s = thread_x() / 16; s < CHUNK; s += THREADS / 16) {
    const int first = s / PART * PART, key = thread_x() % 16 * 2;
    float left[TWOS][2] = {}, sums[PART] = {};
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      const int t = first + i;
      if (t < s) continue;
#pragma unroll
      for (int j = 0; j < TWOS; ++j) {
        if (KEYS % 32 != 0 && key + 32 * j >= KEYS) continue;
        const Pack<Element, 2> q = load_pack<2>(rows + t * KeyTile::PITCH + key + 32 * j);
        if (t == s) {
          const Pack<Element, 2> k = load_pack<2>(static_cast<const Element*>(at.keys() + t * KeyTile::PITCH + key + 32 * j));
          left[j][0] = to_float(k.at[0]), left[j][1] = to_float(k.at[1]);
        } else {
          const Pack<float, 2> e = load_pack<2>(static_cast<const float*>(at.factors() + (BACKWARD ? t - 1 : t) * KEYS + key + 32 * j));
          left[j][0] *= e.at[0], left[j][1] *= e.at[1];
        }
        sums[i] += left[j][0] * to_float(q.at[0]) + left[j][1] * to_float(q.at[1]);
      }
    }
    add_lanes<8>(sums), add_lanes<4>(sums), add_lanes<2>(sums), add_lanes<1>(sums);
    const int t = first + lane() % 16;
    put(t, s, t < s ? 0 : sums[0] * at.key_norm(s));
  }
}
// Queries with keys, without the scale.
static inline void multiply_near(const KeyPlaces& at) {
  multiply_near(at, at.queries(),
                [&](int t, int s, float x) { at.near(s / PART)[t % PART * NEAR_PITCH + s % PART] = x * at.query_norm(t); });
}

// The weights of all pairs, by the waves, after weigh_rows().
static inline void put_key_pairs(const KeyPlaces& at, char* pairs, float scale) {
  const SharedPointer far = shared_pointer(at.memory) + KeyPlaces::KEY_ROWS;
#pragma unroll 1
  for (int block = wave(); block < PAIR_BLOCKS; block += WAVES) {
    const int part = block_row(block);
    Sums x;
    if (part != block_column(block)) {
      x = multiply_block(far, far, block);
    } else {
#pragma unroll
      for (int i = 0; i < SUMS; ++i) x.at[i] = at.near(part)[matrix_column() * NEAR_PITCH + matrix_row(i)];
    }
    Pairs(pairs).put(block, scaled(x, scale));
  }
}

// Thread i < 2 KEYS has key i % KEYS of part i / KEYS. What its gates leave, and their sums; after a barrier behind token_gates().
static inline void put_factors(const KeyPlaces& at, const View& gk, int64_t type, const Tokens& tokens, int64_t head, int token, int count,
                               bool reverse) {
  if (thread_x() >= 2 * KEYS) return;
  const int part = thread_x() / KEYS, key = thread_x() % KEYS, first = PART * part;
  float gates[PART][1], sum = 0;
  load_key_gates(gates, gk, type, tokens, head, token + first, count, key, reverse);
#pragma unroll
  for (int i = 0; i < PART; ++i) {
    const float log = bounded_gate(gates[i][0] + at.token_gates()[first + i]);
    at.factors()[(first + i) * KEYS + key] = exp2_of(log);
    sum += log;
  }
  at.logs()[part * KEYS + key] = sum;
}

// The thread's keys and queries times what gates leave of them. Two elements a number of what the state takes in.
struct KeyWeigher {
  float factors[PART];

  explicit KeyWeigher(const KeyPlaces& at) {
    if (thread_x() >= 2 * KEYS) return;
#pragma unroll
    for (int i = 0; i < PART; ++i) factors[i] = at.factors()[(thread_x() / KEYS * PART + i) * KEYS + thread_x() % KEYS];
  }
  // The same where their place has others already.
  KeyWeigher(const KeyPlaces& at, const View& gk, int64_t type, const Tokens& tokens, int64_t head, int token, int count, bool reverse) {
    if (thread_x() >= 2 * KEYS) return;
    int first = thread_x() / KEYS * PART, key = thread_x() % KEYS;
    hold(first), hold(key);
    float gates[PART][1];
    load_key_gates(gates, gk, type, tokens, head, token + first, count, key, reverse);
#pragma unroll
    for (int i = 0; i < PART; ++i) factors[i] = exp2_of(bounded_gate(gates[i][0] + at.token_gates()[first + i]));
  }
  // After a barrier, by which all have their factors. The state takes in rows times `scale`.
  void weigh_rows(const KeyPlaces& at, float scale = 1) const {
    if (thread_x() >= 2 * KEYS) return;
    int part = thread_x() / KEYS, key = thread_x() % KEYS;
    hold(part), hold(key);  // addresses are made here, not kept from chunk to chunk
    if (part == 0) {
      const SplitExp all = split_exp((at.logs()[key] + at.logs()[KEYS + key]) * LN_2);
      at.decays()[key] = all.base, at.decays()[KEYS + key] = all.rest;
    }
    weigh_keys(at, part, key, scale * (part ? 1 : exp2_of(at.logs()[KEYS + key])));
    weigh_queries(at, part, key, part ? exp2_of(at.logs()[key]) : 1);
  }

 private:
  void weigh_keys(const KeyPlaces& at, int part, int key, float after) const {
    float weighed[PART], left = 1, largest = 0;
#pragma unroll
    for (int i = PART - 1; i >= 0; --i) {
      const int s = PART * part + i;
      Element& k = at.keys()[s * KeyTile::PITCH + key];
      if (BACKWARD) left *= factors[i];
      weighed[i] = to_float(k) * at.key_norm(s) * left;
      if (part == 0) k = from_float<Element>(weighed[i]);
      weighed[i] *= after;
      largest = larger_size(largest, weighed[i]);
      if (!BACKWARD) left *= factors[i];
    }
    const Unit unit(largest);
    if (NARROW) at.inverses()[part * KEYS + key] = unit.inverse;
    Element* to = reinterpret_cast<Element*>(at.memory + KeyPlaces::FACTORS + key * TOKEN_PITCH) + PART * part;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      const float x = weighed[i] * unit.of;
      const Element all = from_float<Element>(x);
      to[i] = all, to[i + KeyPlaces::TAKEN / 2] = from_float<Element>(x - to_float(all));
    }
  }
  // The later part's p q take the place of its keys.
  void weigh_queries(const KeyPlaces& at, int part, int key, float before) const {
    float left = 1;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      const int t = PART * part + i;
      Element& q = at.queries()[t * KeyTile::PITCH + key];
      if (!BACKWARD) left *= factors[i];
      const float weighed = to_float(q) * at.query_norm(t) * left;
      if (part == 1) at.keys()[t * KeyTile::PITCH + key] = from_float<Element>(weighed);
      q = from_float<Element>(weighed * before);
      if (BACKWARD) left *= factors[i];
    }
  }
};

// state = decays state + keys^T values, with a decay for each key; values [token][column].
static inline void take_in_by_keys(State& state, const KeyPlaces& at, const Operand (&values)[TILES]) {
  const SharedPointer taken = shared_pointer(at.memory) + KeyPlaces::FACTORS;
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    part();
    Sums more[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c) {
      const SharedPointer from = taken + 16 * k * TOKEN_PITCH + 32 * c;
      Sums sums = {}, least = {};
      multiply<Element>(sums, load_operand(from, TOKEN_PITCH), values[c]);
      multiply<Element>(least, load_operand(from + KeyPlaces::TAKEN, TOKEN_PITCH), values[c]);
#pragma unroll
      for (int i = 0; i < SUMS; ++i) more[c].at[i] = sums.at[i] + least.at[i];
    }
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const int key = 16 * k + matrix_row(i);
      float& x = state[k].at[i];
      x = x * at.decays()[key] + x * at.decays()[KEYS + key];
#pragma unroll
      for (int c = 0; c < TILES; ++c) x += more[c].at[i] * (NARROW ? at.inverses()[c * KEYS + key] : 1);
    }
  }
}
