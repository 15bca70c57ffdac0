// Hopper vocabulary of the chunked recurrence's gradient with gates of keys and the delta rule: a chunk whose gates leave something of all keys from its
// start to its end. Part of chunk_sm90_key_delta_gradients.h.
//
// With P_t what the gates leave from the chunk's start to token t, R_s what they leave from token s to its end, and E all of it, each by key, every pair
// (t, s) has the factor P_t R_s / E: rows times P and R meet in products on wgmma, which are added to those with states times E.
#pragma once

constexpr float LEAST_OF_FLAT = 0x1p-96f;  // E
// Flows of pairs that both lie before a gate, or both after it, cancel in its gradient but for what pieces leave of rows and of products. Where E is below
// this, what is left in a gradient is so little that these must not differ between the reader's side and the kept one's (`fades`).
constexpr float LEAST_OF_LASTING = 0.25f;

// Places in shared memory, as wgmma reads them: pairs; keys times R, queries and keys times P, in boxes of 64 keys. And what pieces leave of keys times R,
// over E, as elements.
struct FlatAt {
  static constexpr int SQUARE = CHUNK * 128, ROWS = BOXES * SQUARE;
  static constexpr int PAIRS = At::STAGES_AT, KEY_PAIRS = PAIRS + PIECES * SQUARE, KEPT = KEY_PAIRS + PIECES * SQUARE;
  static constexpr int READ = KEPT + PIECES * ROWS, READ_KEYS = READ + PIECES * ROWS, RESTS = READ_KEYS + PIECES * ROWS;
  static constexpr int END = RESTS + (LEAVES_RESTS ? ROWS : 0);
};
static_assert(FlatAt::END <= At::FLOWS && FlatAt::PAIRS % 1024 == 0 && (!LEAVES_RESTS || FlatAt::RESTS >= At::READ_SUMS + SUMS_BYTES));

static inline bool leaves_less(float word, float than) { return !(base_of(word) + word >= than); }

// Products of pairs s < t, of all others zeros.
static inline void put_square(char* to, const TokenPairs& pairs) {
#pragma unroll
  for (int j = 0; j < CHUNK / 8; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int t = token_row() + 8 * h, s = 8 * j + lane() % 4 * 2;
      const float x = s < t ? pairs[4 * j + 2 * h] : 0, y = s + 1 < t ? pairs[4 * j + 2 * h + 1] : 0;
      uint32_t* at = reinterpret_cast<uint32_t*>(to + t * 128 + (j ^ lane() / 4) * 16 + lane() % 4 * 4);
      const uint32_t word = pack_pair<Element>(x, y);
      *at = word;
      if (PIECES > 1) at[FlatAt::SQUARE / 4] = rounding_of(x, y, word);
    }
}

// A thread's part of the chunk: two keys of a run of tokens.
struct FlatOwn {
  int run, first, key;
  FlatOwn() : run(uniform(warp()) / 2), first(run * RUN), key(thread_x() % (KEYS / 2) * 2) { static_assert(RUNS * KEYS / 2 == THREADS && PART == 2 * RUN && KEYS / 2 == 2 * WARP); }
};
// What gates leave of its numbers: number 2 i + j, of key j at token i; logs before `weigh_flat_gates`.
template <class T> static inline void load_flat_gates_of(float (&x)[PART], const FlatOwn& own, const View& gates, const Tokens& tokens, int64_t head, int token, int count) {
$if packed
  const int64_t row = REVERSED ? tokens.end - 1 - token - own.first : tokens.first + token + own.first, stride = REVERSED ? -gates.strides[1] : gates.strides[1];
$else
  const int64_t row = tokens.first + token + own.first, stride = gates.strides[1];
$end
  const T* at = static_cast<const T*>(gates.data) + tokens.row * gates.strides[0] + row * gates.strides[1] + head * gates.strides[2] + own.key;
  const bool in_pairs = reinterpret_cast<uint64_t>(gates.data) % (2 * sizeof(T)) == 0 && (gates.strides[0] | gates.strides[1] | gates.strides[2]) % 2 == 0;
  const int there = own.key < gates.shape[3] ? count - token - own.first : 0;
  const auto load = [&](auto load_two) {
#pragma unroll
    for (int i = 0; i < RUN; ++i) {
      Pack<T, 2> two = {};
      if (i < there) two = load_two(at);
      x[2 * i] = to_float(two.at[0]), x[2 * i + 1] = to_float(two.at[1]);
      at += stride;
    }
  };
  if (in_pairs) load([](const T* from) { return load_pack<2>(from); });
  else load([](const T* from) { return Pack<T, 2>{from[0], from[1]}; });
}
static inline void load_flat_gates(float (&x)[PART], const FlatOwn& own, const View& gates, int64_t type, const Tokens& tokens, int64_t head, int token, int count) {
  if (F32_GATES || type == 0) load_flat_gates_of<float>(x, own, gates, tokens, head, token, count);
  else if (type == 1) load_flat_gates_of<half>(x, own, gates, tokens, head, token, count);
  else load_flat_gates_of<bfloat16>(x, own, gates, tokens, head, token, count);
}
// In a chunk that is steep: logs to where those who need them take them, a key of a part's tokens.
static inline void hand_gates(char* memory, const FlatOwn& own, const float (&x)[PART]) {
#pragma unroll
  for (int i = 0; i < RUN; ++i) store_pack(reinterpret_cast<float*>(memory + At::KEPT) + (own.first + i) * KEYS + own.key, Pack<float, 2>{x[2 * i], x[2 * i + 1]});
}
static inline void take_gates(const char* memory, const Own& own, float (&x)[PART]) {
#pragma unroll
  for (int i = 0; i < PART; ++i) x[i] = reinterpret_cast<const float*>(memory + At::KEPT)[(own.first + i) * KEYS + own.key];
}
static inline void weigh_flat_gates(KeyFlows& flows, const FlatOwn& own, float (&x)[PART]) {
  Pack<float, 2> leaves = {1, 1};
#pragma unroll
  for (int i = 0; i < RUN; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float& factor = x[2 * i + j];
      factor = exp2_of(bounded_gate(factor + flows.token_gates[own.first + i])), leaves.at[j] *= factor;
    }
  store_pack(&flows.run_leaves[own.run][own.key], leaves);
}

// A token's two numbers in pieces; what these leave of them.
static inline Pack<float, 2> put_two(char* to, float x, float y) {
#pragma unroll
  for (int piece = 0; piece < PIECES; ++piece) {
    const uint32_t word = pack_pair<Element>(x, y);
    *reinterpret_cast<uint32_t*>(to + piece * FlatAt::ROWS) = word;
    x -= low_of(word), y -= high_of(word);
  }
  return {x, y};
}
static inline void multiply_by(float (&x)[2], const float* two) {
  const auto y = load_pack<2>(two);
  x[0] *= y.at[0], x[1] *= y.at[1];
}
static inline uint32_t two_of_row(const char* tile, int row, int key) { return *reinterpret_cast<const uint32_t*>(tile + (row * KeyTile::PITCH + key) * 2); }
// Of a thread's keys: keys times R, queries and keys times P. What runs leave is there for all.
static inline void weigh_flat(char* memory, KeyFlows& flows, const FlatOwn& own, OwnFactors& factors) {
  float before[2] = {1, 1}, after[2] = {1, 1}, all[2], over[2];
#pragma unroll 1
  for (int run = 0; run < own.run; ++run) multiply_by(before, &flows.run_leaves[run][own.key]);
#pragma unroll 1
  for (int run = own.run + 1; run < RUNS; ++run) multiply_by(after, &flows.run_leaves[run][own.key]);
#pragma unroll
  for (int j = 0; j < 2; ++j) all[j] = before[j] * after[j];
  multiply_by(all, &flows.run_leaves[own.run][own.key]);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    over[j] = 1 / all[j];
    factors.read_start[j] = before[j] * over[j], factors.kept_start[j] = after[j] * over[j];
  }
  if (own.run == 0) store_pack(&flows.whole[own.key], Pack<float, 2>{all[0], all[1]});
  char* at = memory + own.key / 64 * FlatAt::SQUARE + own.first * 128 + own.key % 8 * 2;
  const auto place = [&](int i) { return i * 128 + (own.key / 8 % 8 ^ i) * 16; };
#pragma unroll
  for (int i = RUN - 1; i >= 0; --i) {
    const uint32_t k = two_of_row(memory + At::KEY_ROWS, own.first + i, own.key);
    const float norm = NORMED ? flows.norms.k[own.first + i] : 1;
    const auto rests = put_two(at + FlatAt::KEPT + place(i), low_of(k) * norm * after[0], high_of(k) * norm * after[1]);
    if (LEAVES_RESTS) *reinterpret_cast<uint32_t*>(at + FlatAt::RESTS + place(i)) = pack_pair<Element>(rests.at[0] * over[0], rests.at[1] * over[1]);
    after[0] *= factors.kept[2 * i], after[1] *= factors.kept[2 * i + 1];
  }
#pragma unroll
  for (int i = 0; i < RUN; ++i) {
    const uint32_t k = two_of_row(memory + At::KEY_ROWS, own.first + i, own.key), q = two_of_row(memory, own.first + i, own.key);
    const float of_key = NORMED ? flows.norms.k[own.first + i] : 1, of_query = NORMED ? flows.norms.q[own.first + i] : 1;
    before[0] *= factors.kept[2 * i], before[1] *= factors.kept[2 * i + 1];
    put_two(at + FlatAt::READ + place(i), low_of(q) * of_query * before[0], high_of(q) * of_query * before[1]);
    put_two(at + FlatAt::READ_KEYS + place(i), low_of(k) * of_key * before[0], high_of(k) * of_key * before[1]);
  }
}

// What keys give to the state after the chunk, of what flows into it: products with `sums`, added up over a warp's tokens.
static inline void put_left_flat(const char* memory, KeyFlows& flows, const TokenKeys& sums) {
#pragma unroll
  for (int first = 0; first < KEYS / 8; first += 4) {
    float left[8] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int slice = first + j;
        const char* from = memory + FlatAt::KEPT + slice / 8 * FlatAt::SQUARE + (token_row() + 8 * h) * 128 + (slice % 8 ^ lane() / 4) * 16 + lane() % 4 * 4;
        float k[2] = {};
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
          const uint32_t word = *reinterpret_cast<const uint32_t*>(from + piece * FlatAt::ROWS);
          k[0] += low_of(word), k[1] += high_of(word);
        }
        left[2 * j] += k[0] * sums[4 * slice + 2 * h], left[2 * j + 1] += k[1] * sums[4 * slice + 2 * h + 1];
      }
    put_left_of_tokens(flows, first, left);
  }
}

// sums += pairs rows; BACK: of the pairs' transpose. Without products that are below the last digits, which `whole` adds.
template <bool BACK> static inline void add_flat(TokenKeys& sums, uint32_t pairs, uint32_t rows, bool whole) {
  const auto add = [&](int of_pairs, int of_rows) {
    const uint32_t square = pairs + of_pairs * FlatAt::SQUARE;
    const uint64_t a = BACK ? row_major<128>(square, CHUNK) : depth_major<128>(square), b = row_major<128>(rows + of_rows * FlatAt::ROWS, CHUNK);
#pragma unroll
    for (int k = 0; k < CHUNK / 16; ++k) wgmma<Element, KEYS, BACK, true>(sums, moved(a, BACK ? 2048 * k : 32 * k), moved(b, 2048 * k), true);
  };
  if (LEAVES_RESTS && whole) add(1, 1);
#pragma unroll
  for (int order = PIECES - 1; order >= 0; --order)
#pragma unroll
    for (int i = 0; i < PIECES && i <= order; ++i) add(i, order - i);
}
// Of a warpgroup: what pairs add to its sums.
static inline void add_flat_pairs(char* memory, KeyFlows& flows, uint32_t shared, int group, TokenKeys& sums) {
  if (group == OF_PAIRS) return;
  if (GATED && group == OF_KEYS) put_left_flat(memory, flows, sums);
  decay_sums(sums, flows.whole);
  keep_in_place(sums);
  wgmma_fence();
  const bool fades = flows.fades();
  if (group == OF_QUERIES) add_flat<false>(sums, shared + FlatAt::PAIRS, shared + FlatAt::KEPT, fades);
  else if (group == OF_READS) add_flat<false>(sums, shared + FlatAt::KEY_PAIRS, shared + FlatAt::KEPT, fades);
  else add_flat<true>(sums, shared + FlatAt::PAIRS, shared + FlatAt::READ, fades), add_flat<true>(sums, shared + FlatAt::KEY_PAIRS, shared + FlatAt::READ_KEYS, fades);
  wgmma_commit();
  wgmma_wait<0>();
  keep_in_place(sums);
}

// Rows that read come without what pieces leave of them, where that counts.
struct ReadRests {
  const bool count;
  float left[2] = {1, 1}, over[2] = {};  // P, 1 / E

  ReadRests(const KeyFlows& flows, const FlatOwn& own) : count(LEAVES_RESTS && flows.fades()) {
    if (!count) return;
#pragma unroll 1
    for (int run = 0; run < own.run; ++run) multiply_by(left, &flows.run_leaves[run][own.key]);
    const auto whole = load_pack<2>(&flows.whole[own.key]);
    over[0] = 1 / whole.at[0], over[1] = 1 / whole.at[1];
  }
  // Of the next token's key j.
  float next(int j, float factor, float q, float of_query, float k, float of_read) {
    left[j] *= factor;
    return (rest_of_pieces(q * left[j]) * of_query + rest_of_pieces(k * left[j]) * of_read) * over[j];
  }
};
// Of a thread's keys: gradients of rows, and q dq - k dk in the place of those of keys that read; without what pieces leave of keys times R, as
// `left` is (LEAVES_RESTS).
static inline void finish_flat_rows(char* memory, KeyFlows& flows, const OwnFactors& factors) {
  const FlatOwn own;
  ReadRests read_rests(flows, own);
  const auto sums_at = [&](int place, int i) { return sums_of(memory, place, own.first + i, own.key); };
  float of_keys[RUN][2], change[2] = {}, after[2] = {factors.kept_start[0], factors.kept_start[1]}, before[2] = {factors.read_start[0], factors.read_start[1]};
#pragma unroll
  for (int i = RUN - 1; i >= 0; --i) {
    const auto sums = load_pack<2>(sums_at(At::KEY_SUMS, i));
#pragma unroll
    for (int j = 0; j < 2; ++j) of_keys[i][j] = sums.at[j] * after[j], after[j] *= factors.kept[2 * i + j];
  }
#pragma unroll
  for (int i = 0; i < RUN; ++i) {
    const int t = own.first + i;
    const uint32_t q_words = two_of_row(memory, t, own.key), k_words = two_of_row(memory + At::KEY_ROWS, t, own.key);
    const float of_q = NORMED ? flows.norms.q[t] : 1, of_k = NORMED ? flows.norms.k[t] : 1, itself = flows.itself[t];
    const float q[2] = {low_of(q_words) * of_q, high_of(q_words) * of_q}, k[2] = {low_of(k_words) * of_k, high_of(k_words) * of_k};
    const auto query_sums = load_pack<2>(sums_at(At::QUERY_SUMS, i)), read_sums = load_pack<2>(sums_at(At::READ_SUMS, i));
    Pack<float, 2> of_queries, of_both, changes = {};
    if (LEAVES_RESTS) {
      const uint32_t rests = *reinterpret_cast<const uint32_t*>(memory + FlatAt::RESTS + own.key / 64 * FlatAt::SQUARE + t * 128 + (own.key / 8 % 8 ^ i) * 16 + own.key % 8 * 2);
      const auto key_sums = load_pack<2>(sums_at(At::KEY_SUMS, i));
      changes = {low_of(rests) * key_sums.at[0], high_of(rests) * key_sums.at[1]};
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      before[j] *= factors.kept[2 * i + j];
      if (read_rests.count) changes.at[j] -= read_rests.next(j, factors.kept[2 * i + j], q[j], query_sums.at[j], k[j], read_sums.at[j]);
      const float of_query = query_sums.at[j] * before[j], of_read = read_sums.at[j] * before[j];
      changes.at[j] += q[j] * of_query + k[j] * (of_read - of_keys[i][j]), change[j] += changes.at[j];
      of_queries.at[j] = of_query + itself * k[j], of_both.at[j] = of_keys[i][j] + of_read + itself * q[j];
    }
    store_pack(sums_at(At::QUERY_SUMS, i), of_queries), store_pack(sums_at(At::KEY_SUMS, i), of_both), store_pack(sums_at(At::READ_SUMS, i), changes);
  }
  store_pack(&flows.run_change[own.run][own.key], Pack<float, 2>{change[0], change[1]});
}
// Gradients of log gates, from what flows past the run's end.
static inline void put_flat_gate_gradients(char* memory, const KeyFlows& flows) {
  const FlatOwn own;
  float sum[2] = {};
  const auto add = [&](const float* from) {
    const auto x = load_pack<2>(from);
    sum[0] += x.at[0], sum[1] += x.at[1];
  };
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) add(&flows.through[group][own.key]);
  multiply_by(sum, &flows.whole[own.key]);
#pragma unroll
  for (int part = 0; part < PARTS; ++part) add(&flows.left[part][own.key]);
#pragma unroll 1
  for (int run = RUNS - 1; run > own.run; --run) add(&flows.run_change[run][own.key]);
#pragma unroll
  for (int i = RUN - 1; i >= 0; --i) {
    float* at = sums_of(memory, GATE_SUMS, own.first + i, own.key);
    add(at);
    store_pack(at, Pack<float, 2>{sum[0], sum[1]});
  }
}
