// GPU vocabulary of the chunked recurrence's gradient with gates of keys: what threads compute number by number, of some keys of a part's tokens.
// Part of backward.chunk_keys.gpu.cu.
#pragma once
#include "device/tile/later.h"

// A thread's part of the chunk: its tokens from `first` on, its keys `key`, `key` + KEY_THREADS and so on.
struct Own {
  int part, first, key;
  bool there;
  Own() : part(thread_x() / KEY_THREADS), first(part * PART), key(thread_x() % KEY_THREADS), there(part < PARTS) {}
  int keys(int j) const { return key + j * KEY_THREADS; }
};
// What a thread's gates leave: kept where it has one key; else loaded each time, as registers do not suffice for all, where they do (AHEAD) before the
// last ones are used.
struct OwnFactors {
  static constexpr bool KEPT = OWN_KEYS == 1, AHEAD = !KEPT && LOADS_AHEAD;
  const Own& own;
  const View& gates;
  int64_t type, head;
  const Tokens& tokens;
  int token, count;
  bool reverse;
  const float* token_gates;
  float kept[PART];  // before `weigh`: logs; AHEAD: logs of the next key
$if flat
  float read_start[2], kept_start[2];  // in a chunk that is not steep, of two keys: what the first token's P and the last one's R are products of, over E
$end

  void load(int j, float (&x)[PART]) const {
    float logs[PART][1];
    if constexpr (F32_GATES) {
      const int64_t first = reverse ? tokens.end - 1 - token - own.first : tokens.first + token + own.first, stride = reverse ? -gates.strides[1] : gates.strides[1];
      const float* at = static_cast<const float*>(gates.data) + tokens.row * gates.strides[0] + first * gates.strides[1] + head * gates.strides[2] + own.keys(j);
      load_key_gates(logs, at, stride, count - token - own.first, static_cast<int>(gates.shape[3]) - own.keys(j));
    } else {
      load_key_gates(logs, gates, type, tokens, head, token + own.first, count, own.keys(j), reverse);
    }
#pragma unroll
    for (int i = 0; i < PART; ++i) x[i] = logs[i][0];
  }
  void weigh(float (&x)[PART]) const {
#pragma unroll
    for (int i = 0; i < PART; ++i) x[i] = exp2_of(bounded_gate(x[i] + token_gates[own.first + i]));
  }
  void begin() {
    if ((KEPT || AHEAD) && own.there) load(0, kept);
  }
  void begin_weighing() {
    if (KEPT) weigh(kept);
  }
  // Of key number j. AHEAD: keys come in order, over and over; `more`: after this one, too.
  void get(int j, float (&x)[PART], bool more = true) {
    if constexpr (AHEAD) {
#pragma unroll
      for (int i = 0; i < PART; ++i) x[i] = kept[i];
      weigh(x);
      if (more) load((j + 1) % OWN_KEYS, kept);
    } else if constexpr (KEPT) {
#pragma unroll
      for (int i = 0; i < PART; ++i) x[i] = kept[i];
    } else {
      sync_warp();  // keeps the compiler from loading before, for which there are no registers
      load(j, x), weigh(x);
    }
  }
};

static inline float query_of(const char* memory, const KeyFlows& flows, int t, int key) {
  return number_of_row(memory, t, key) * (NORMED ? flows.norms.q[t] : 1);
}
static inline float key_of(const char* memory, const KeyFlows& flows, int t, int key) {
  return number_of_row(memory + At::KEY_ROWS, t, key) * (NORMED ? flows.norms.k[t] : 1);
}

// Of key number j: keys times r.
static inline void weigh_kept(char* memory, KeyFlows& flows, const Own& own, int j, const float (&factor)[PART], uint32_t& closed) {
  static_assert(OWN_KEYS <= 2);
  const int key = own.keys(j);
  float product = 1;
#pragma unroll
  for (int i = PART - 1; i >= 0; --i) {
    const int t = own.first + i;
    if (factor[i] < 1e-37f) closed |= 1u << (PART * j + i);
    put_piece(memory + At::KEPT, t, key, key_of(memory, flows, t, key) * product${narrow ? ' * (1 / flows.row_units.keys)' : ''});
    product *= factor[i];
  }
  flows.leaves[own.part][key] = product;
  closed = later(closed);  // one register, not one a token
}
// Queries, and (delta) keys, times p.
static inline void weigh_read(char* memory, const KeyFlows& flows, const Own& own, int j, const float (&factor)[PART]) {
  float product = 1;
#pragma unroll
  for (int i = 0; i < PART; ++i) {
    const int t = own.first + i;
    product *= factor[i];
    put_piece(memory + At::READ, t, own.keys(j), query_of(memory, flows, t, own.keys(j)) * product${narrow ? ' * (1 / flows.row_units.queries)' : ''});
    if (DELTA) put_piece(memory + At::READ_KEYS, t, own.keys(j), key_of(memory, flows, t, own.keys(j)) * product${narrow ? ' * (1 / flows.row_units.keys)' : ''});
  }
}
// Of all keys of a thread.
static inline void weigh_kept(char* memory, KeyFlows& flows, const Own& own, OwnFactors& factors, uint32_t& closed) {
  factors.begin_weighing();
  closed = 0;
#pragma unroll 1  // less code: it has to come from memory where it is more than 128 KB
  for (int j = 0; j < OWN_KEYS; ++j) {
    float factor[PART];
    factors.get(j, factor);
    weigh_kept(memory, flows, own, j, factor, closed);
  }
}
static inline void weigh_read(char* memory, const KeyFlows& flows, const Own& own, OwnFactors& factors) {
#pragma unroll 1
  for (int j = 0; j < OWN_KEYS; ++j) {
    float factor[PART];
    factors.get(j, factor);
    weigh_read(memory, flows, own, j, factor);
  }
}
// Both, where rows that are read do not take the place of keys times r. They may take that of a thread's own numbers.
static inline void weigh_all(char* memory, KeyFlows& flows, const Own& own, OwnFactors& factors, uint32_t& closed) {
  factors.begin_weighing();
  closed = 0;
#pragma unroll 1
  for (int j = 0; j < OWN_KEYS; ++j) {
    float factor[PART];
    factors.get(j, factor);
    weigh_kept(memory, flows, own, j, factor, closed);
    weigh_read(memory, flows, own, j, factor);
  }
}

// Of one key: adds pairs of tokens of a part in neighbouring blocks of LEVEL tokens, of rows that read with keys: by what gates leave from the later
// block's start, and to the earlier one's end.
template <int LEVEL> static inline void add_near_level(const float* near, const float (&factor)[PART], const float (&row)[PART], const float (&k)[PART],
                                                       float (&of_row)[PART], float (&of_key)[PART]) {
#pragma unroll
  for (int block = 0; block < PART; block += 2 * LEVEL) {
    float earlier[LEVEL], product = 1, sums[LEVEL] = {};
#pragma unroll
    for (int i = LEVEL - 1; i >= 0; --i) earlier[i] = k[block + i] * product, product *= factor[block + i];
    product = 1;
    constexpr int RUN = LEVEL < 4 ? LEVEL : 4;  // products that are loaded at once
#pragma unroll
    for (int first = block + LEVEL; first < block + 2 * LEVEL; first += RUN) {
      float until[RUN], later[RUN], run_sums[RUN] = {};
#pragma unroll
      for (int i = 0; i < RUN; ++i) {
        const int t = first + i;
        product *= factor[t];
        until[i] = product, later[i] = row[t] * product;
      }
#pragma unroll
      for (int j = 0; j < LEVEL; ++j) {
        const auto flows = load_pack<RUN>(near + (block + j) * PART + first);
#pragma unroll
        for (int i = 0; i < RUN; ++i) run_sums[i] += flows.at[i] * earlier[j], sums[j] += flows.at[i] * later[i];
      }
#pragma unroll
      for (int i = 0; i < RUN; ++i) of_row[first + i] += run_sums[i] * until[i];
    }
    product = 1;  // once more: kept, it would take registers that there are not
#pragma unroll
    for (int j = LEVEL - 1; j >= 0; --j) of_key[block + j] += sums[j] * product, product *= factor[block + j];
  }
}
// All pairs of a part. Sums come without p (of rows that read) and r.
static inline void add_near(const float* near, const float (&factor)[PART], const float (&row)[PART], const float (&k)[PART],
                            float (&of_row)[PART], float (&of_key)[PART]) {
  add_near_level<8>(near, factor, row, k, of_row, of_key), add_near_level<4>(near, factor, row, k, of_row, of_key);
  add_near_level<2>(near, factor, row, k, of_row, of_key), add_near_level<1>(near, factor, row, k, of_row, of_key);
}
// Of a thread's keys: gradients of rows, and q dq - k dk, which is kept in memory where a number's place is free: (delta) that of keys that read, or
// that of keys' gradients, where both gradients are elements at once, in one word.
constexpr bool IN_WORDS = !DELTA && !NORMED && !SHARED_HEADS, CHANGES_IN_MEMORY = DELTA || IN_WORDS;
// Keys times r are pieces in `left`, whose flows end at most tokens: what a key keeps must leave out the same rest there, or strong gates' gradients are
// differences of numbers that are rounded apart. The including file defines KEEPS_RESTS: true where this would spill registers.
constexpr bool LEAVES_RESTS = GATED && PIECES > 1 && !KEEPS_RESTS;
static inline float rest_of_pieces(float x) {
  const float low = x - to_float(from_float<Element>(x));
  return low - to_float(from_float<Element>(low));
}
static inline void finish_rows(char* memory, KeyFlows& flows, const Own& own, OwnFactors& factors, uint32_t& closed, float (&changes)[PART][OWN_KEYS]) {
  const float* near = reinterpret_cast<const float*>(memory + At::NEAR) + own.part * PART * PART;
$if (normed or shared_heads) and not delta
#pragma unroll
$else
#pragma unroll 1
$end
  for (int j = 0; j < OWN_KEYS; ++j) {
    const int key = own.keys(j);
    float factor[PART], k[PART], dk[PART], sum = 0;
    factors.get(j, factor, j + 1 < OWN_KEYS);
    if (CLOSES_LATE) {
#pragma unroll
      for (int i = 0; i < PART; ++i)
        if (factor[i] < 1e-37f) closed |= 1u << (PART * j + i);
      closed = later(closed);
    }
    {
      float product = 1;
#pragma unroll
      for (int i = PART - 1; i >= 0; --i) {
        k[i] = key_of(memory, flows, own.first + i, key);
        float& of_rest = *sums_of(memory, At::KEY_SUMS, own.first + i, key);
        dk[i] = of_rest;
        if constexpr (MORE_SUMS) dk[i] += *sums_of(memory, At::MORE_KEY_SUMS, own.first + i, key);
        if (LEAVES_RESTS) of_rest = rest_of_pieces(k[i] * product${narrow ? ' * (1 / flows.row_units.keys)' : ''}) * dk[i]${narrow ? ' * flows.row_units.keys' : ''};
        dk[i] *= product;
        product *= factor[i];
      }
    }
$if delta
    {
      float of_read[PART], product = 1;
#pragma unroll
      for (int i = 0; i < PART; ++i) {
        product *= factor[i];
        of_read[i] = *sums_of(memory, At::READ_SUMS, own.first + i, key) * product;
      }
      add_near(reinterpret_cast<const float*>(memory + At::NEAR_KEYS) + own.part * PART * PART, factor, k, k, of_read, dk);
#pragma unroll
      for (int i = 0; i < PART; ++i) {
        float& of_key = *sums_of(memory, At::KEY_SUMS, own.first + i, key);
        *sums_of(memory, At::READ_SUMS, own.first + i, key) = k[i] * of_read[i] + (LEAVES_RESTS ? of_key : 0);
        of_key = of_read[i];
      }
    }
    sync_warp();  // keeps the compiler from loading queries before, for which there are no registers
$end
    float q[PART], dq[PART], product = 1;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      product *= factor[i];
      q[i] = query_of(memory, flows, own.first + i, key);
      dq[i] = *sums_of(memory, At::QUERY_SUMS, own.first + i, key) * product;
    }
    add_near(near, factor, q, k, dq, dk);
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      float& of_query = *sums_of(memory, At::QUERY_SUMS, own.first + i, key);
      float& of_key = *sums_of(memory, At::KEY_SUMS, own.first + i, key);
      const float itself = near[i * PART + i];
      float change = q[i] * dq[i] - k[i] * dk[i];
      if (LEAVES_RESTS && !DELTA) change += of_key;
      dq[i] += itself * k[i], dk[i] += itself * q[i];
$if delta
      float& of_change = *sums_of(memory, At::READ_SUMS, own.first + i, key);
      of_query = dq[i], of_key += dk[i], change += of_change, of_change = change;
$else
      if (IN_WORDS) of_query = __builtin_bit_cast(float, pack_pair<Element>(dq[i], dk[i])), of_key = change;
      else of_query = dq[i], of_key = dk[i], changes[i][j] = change;
$end
      sum += change;
    }
    flows.change[own.part][key] = sum;
  }
}

// Where gradients of gates are.
constexpr int GATE_SUMS = DELTA ? At::READ_SUMS : IN_WORDS ? At::KEY_SUMS : At::QUERY_SUMS;

// Gradients of log gates, from what flows past the part's end.
static inline void put_gate_gradients(char* memory, const KeyFlows& flows, const Own& own, uint32_t closed,
                                      const float (&changes)[PART][OWN_KEYS]) {
#pragma unroll
  for (int j = 0; j < OWN_KEYS; ++j) {
    const int key = own.keys(j);
    float sum = 0;  // what flows past the chunk's end
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) sum += flows.through[group][key];
#pragma unroll
    for (int part = 0; part < PARTS; ++part) sum *= flows.leaves[part][key];
    float left = 0;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) left = left * flows.leaves[part][key] + flows.left[part][key];
    sum += left;
#pragma unroll
    for (int part = PARTS - 1; part > 0; --part)
      if (part > own.part) sum += flows.change[part][key];
#pragma unroll
    for (int i = PART - 1; i >= 0; --i) {
      float& of_gate = *sums_of(memory, GATE_SUMS, own.first + i, key);
      sum += CHANGES_IN_MEMORY ? of_gate : changes[i][j];
      of_gate = closed >> (PART * j + i) & 1 ? 0 : sum;
    }
  }
}
