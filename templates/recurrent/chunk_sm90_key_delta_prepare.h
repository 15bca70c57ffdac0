// Hopper vocabulary of the chunked recurrence with gates of keys and the delta rule: the entry that weighs a chunk's queries and keys, in place
// of chunk_prepare.h's. Part of a template, which has defined Element, KEYS, NORMED and of how many elements a number is (QUERY_PIECES,
// ROW_PIECES, PAIR_PIECES, INVERSE_PARTS) before.
//
// The weight of a pair of tokens t >= s is (q_t . k_s), each key weighed by what its gates leave from s to t. Where they leave enough of all keys
// between the chunk's middle and its ends (as gates of models do), rows are weighed by that and its inverse, and all pairs are one product of
// matrices, of f32. Where they do not, tokens t > s are told apart by the largest of 1, 2, 4 to 32 tokens that make blocks in which both are
// neighbours: s in one block, t in the next. The weight is (p_t q_t) . (r_s k_s): p_t is what the gates leave from the start of t's block to t,
// r_s from s to the end of its block. These are at most 1, and their logs are sums of gates alone, of which nothing is taken away. So a level of
// blocks is a product of matrices. A warp has 64 keys of a part of 16 tokens to itself, and so the levels up to 8; the other two go by all warps.
#pragma once
#include "device/sm90/sm90_tf32.h"
#include "recurrent/chunk_delta_products.h"

constexpr int PARTS = 4, PART = CHUNK / PARTS;
#include "recurrent/chunk_key_gates.h"

constexpr int WARP_KEYS = 2 * WARP, KEY_WARPS = KEYS / WARP_KEYS, PREPARE_WARPS = PARTS * KEY_WARPS, PREPARE_THREADS = PREPARE_WARPS * WARP;
constexpr int NEAR_PITCH = WARP_KEYS + 8, FAR_PITCH = KEYS + 8, PAIR_PITCH = CHUNK + 4, FLAT_PITCH = KEYS / 2 + 8, FLAT_TWO_PITCH = KEYS + 16;  // floats
constexpr int NEAR_LEVELS = 4, NEAR_QUERIES = PART, NEAR_ROWS = PART + PART / 2;  // a warp's rows: keys, then queries
constexpr float FLAT_LOG = 24;  // half a chunk's gates leave 2^-24 or more of every key: logs beyond that are rounded too far in f32

struct PrepareMemory {
  union {
    float near[PREPARE_WARPS][NEAR_ROWS * NEAR_PITCH];
    struct {
      float keys[CHUNK * FAR_PITCH], queries[CHUNK / 2 * FAR_PITCH];
    } far;
    struct {
      float keys[CHUNK / 2 * FLAT_TWO_PITCH], queries[CHUNK / 2 * FLAT_TWO_PITCH], earlier[CHUNK * FLAT_PITCH];
    } flat;  // of later tokens two, 8 apart, lie side by side
  };
  float pairs[CHUNK * PAIR_PITCH];
  Matrices m;  // before there is an inverse: sums of near levels of the warps of later keys
  float logs[PARTS][KEYS];  // sums of a part's gates
  float row_sums[3][KEY_WARPS][CHUNK];  // of q q, k k, q k
  float query_norms[CHUNK], key_norms[CHUNK], betas[CHUNK], token_gates[CHUNK];
  int steep;  // levels are needed
};
static_assert(sizeof(PrepareMemory) <= ${prepare_shared}, "the spec has another size");

#include "recurrent/chunk_sm90_key_delta_rows.h"

// Place of a level's number g of 8 earlier tokens in their part; the later token's is LEVEL on.
template <int LEVEL> static inline int earlier_token(int g) { return (g & -LEVEL) * 2 + (g & (LEVEL - 1)); }

// Sums of a level of a part over a warp's keys. The left factor's rows are 8 queries and 8 keys.
template <int LEVEL> static inline void multiply_near(float* to, float* rows, OwnRows& own) {
  own.forget();
  sync_warp();
#pragma unroll
  for (int block = 0; block < PART; block += 2 * LEVEL) {
    float left[2] = {}, earlier[2] = {};
    weigh_earlier<LEVEL>(own, block, earlier, [&](int i, float low, float high) {
      put_key_pair(rows + (block + i) * NEAR_PITCH + 2 * lane(), own.keys[block + i], low, high);
    });
    weigh_later<LEVEL>(own, block + LEVEL, left, [&](int i, float low, float high) {
      const int t = block + LEVEL + i;
      put_key_pair(rows + t * NEAR_PITCH + 2 * lane(), own.keys[t], low, high);
      put_key_pair(rows + (NEAR_QUERIES + block / 2 + i) * NEAR_PITCH + 2 * lane(), own.queries[t], low, high);
    });
  }
  sync_warp();
  const float* earlier = rows + earlier_token<LEVEL>(lane() / 4) * NEAR_PITCH + lane() % 4 * 2;
  const float* queries = rows + (NEAR_QUERIES + lane() / 4) * NEAR_PITCH + lane() % 4 * 2;
  float sums[4] = {}, rest[4] = {};
#pragma unroll 2
  for (int key = 0; key < WARP_KEYS; key += 8) {
    const Pack<float, 2> q = load_pack<2>(queries + key), k = load_pack<2>(earlier + LEVEL * NEAR_PITCH + key), e = load_pack<2>(earlier + key);
    SplitFactor<4> a;
    SplitFactor<2> b;
    a.set(0, q.at[0]), a.set(1, k.at[0]), a.set(2, q.at[1]), a.set(3, k.at[1]);
    b.set(0, e.at[0]), b.set(1, e.at[1]);
    mma_split(sums, rest, a, b);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i * WARP] = sums[i] + rest[i];
}

// Those of all warps of the part, to where pairs are.
template <int LEVEL, class PutQuery, class PutKey> static inline void put_near_level(int first, const float* sums, PutQuery put_query, PutKey put_key) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int g = lane() / 4, n = lane() % 4 * 2 + i % 2, t = first + earlier_token<LEVEL>(g) + LEVEL, s = first + earlier_token<LEVEL>(n);
    if (g / LEVEL != n / LEVEL) continue;
    float sum = sums[i * WARP];
    if (KEY_WARPS > 1) sum += sums[(NEAR_LEVELS * 4 + i) * WARP];
    if (i < 2) put_query(t, s, sum);
    else put_key(t, s, sum);
  }
}

// A level's queries and keys of different parts, by all threads.
template <int LEVEL> static inline void put_far(PrepareMemory& memory, OwnRows& own) {
  own.forget();
  constexpr int BLOCK_PARTS = LEVEL / PART;
  float left[2] = {};
  if (BLOCK_PARTS > 1 && (own.part == 0 || own.part == 3)) {  // what the block's other part leaves
    const float* other = memory.logs[own.part == 0 ? 1 : 2] + own.key;
    left[0] = other[0], left[1] = other[1];
  }
  float* keys = memory.far.keys + own.first * FAR_PITCH + own.key;
  if (own.part & BLOCK_PARTS) {
    float* queries = memory.far.queries + (BLOCK_PARTS > 1 ? own.part - 2 : own.part / 2) * PART * FAR_PITCH + own.key;
    weigh_later<PART>(own, 0, left, [&](int i, float low, float high) {
      put_key_pair(keys + i * FAR_PITCH, own.keys[i], low, high);
      put_key_pair(queries + i * FAR_PITCH, own.queries[i], low, high);
    });
  } else {
    weigh_earlier<PART>(own, 0, left, [&](int i, float low, float high) { put_key_pair(keys + i * FAR_PITCH, own.keys[i], low, high); });
  }
}

// Products of 16 later tokens (number `row` of 32 queries) with 8 earlier ones. use(t, s, of queries, of keys).
template <class Use> static inline void multiply_far(const PrepareMemory& memory, int row, int later, int earlier, Use use) {
  const int at = lane() / 4 * FAR_PITCH + lane() % 4 * 2;
  const float* queries = memory.far.queries + row * FAR_PITCH + at;
  const float* keys = memory.far.keys + later * FAR_PITCH + at;
  const float* others = memory.far.keys + earlier * FAR_PITCH + at;
  float of_queries[4] = {}, of_keys[4] = {}, query_rest[4] = {}, key_rest[4] = {};
#pragma unroll 2
  for (int key = 0; key < KEYS; key += 8) {
    const Pack<float, 2> e = load_pack<2>(others + key);
    SplitFactor<4> q, k;
    SplitFactor<2> b;
    b.set(0, e.at[0]), b.set(1, e.at[1]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Pack<float, 2> query = load_pack<2>(queries + 8 * h * FAR_PITCH + key), later_key = load_pack<2>(keys + 8 * h * FAR_PITCH + key);
      q.set(h, query.at[0]), q.set(2 + h, query.at[1]), k.set(h, later_key.at[0]), k.set(2 + h, later_key.at[1]);
    }
    mma_split(of_queries, query_rest, q, b);
    mma_split(of_keys, key_rest, k, b);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    use(later + lane() / 4 + 8 * (i / 2), earlier + lane() % 4 * 2 + i % 2, of_queries[i] + query_rest[i], of_keys[i] + key_rest[i]);
}

// Where gates leave enough of all keys between the chunk's middle and its ends, no levels are needed: rows are weighed by what they leave from the
// middle on, or its inverse. Half of the keys, WHICH of a thread's two. `left`: the log of what they leave from the middle to the part's start.
template <int WHICH> static inline void put_flat(PrepareMemory& memory, OwnRows& own) {
  own.forget();
  const auto log_of_part = [&](int part) { return memory.logs[part][own.key + WHICH]; };
  float left[2] = {own.part == 0 ? -(log_of_part(0) + log_of_part(1)) : own.part == 1 ? -log_of_part(1) : own.part == 3 ? log_of_part(2) : 0, 0};
  left[1] = left[0];
#pragma unroll
  for (int i = 0; i < PART / 2; ++i) left[1] += own.gates[i][WHICH];
  const auto number_of = [](uint32_t word) { return WHICH ? high_of(word) : low_of(word); };
  const int at = own.part * (PART / 2) * FLAT_TWO_PITCH + own.key, earlier = own.first * FLAT_PITCH + own.key / 2;
#pragma unroll
  for (int i = 0; i < PART / 2; ++i) {
    Pack<float, 2> keys, queries;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int t = i + PART / 2 * h;
      left[h] += own.gates[t][WHICH];
      const float later = exp2_of(left[h]), k = number_of(own.keys[t]);
      keys.at[h] = k * later, queries.at[h] = number_of(own.queries[t]) * later;
      memory.flat.earlier[earlier + t * FLAT_PITCH] = k * exp2_of(-left[h]);
    }
    store_pack(memory.flat.keys + at + i * FLAT_TWO_PITCH, keys), store_pack(memory.flat.queries + at + i * FLAT_TWO_PITCH, queries);
  }
}

// Which tiles of 16 later tokens by 8 earlier ones a warp of eight has: up to three side by side.
struct FlatTiles {
  int row, column, count;
  explicit FlatTiles(int number)
      : row(number < 3 ? 48 : number < 5 ? 32 : number < 7 ? 16 : 0),
        column(number < 3 ? 24 * number : number < 5 ? 24 * (number - 3) : number < 7 ? 16 * (number - 5) : 0),
        count(number == 2 || number > 4 ? 2 : 3) {}
};
typedef float FlatSums[3][4];
static inline void multiply_flat(const PrepareMemory& memory, const FlatTiles& tiles, FlatSums& of_queries, FlatSums& of_keys) {
  const int later = (tiles.row / 2 + lane() / 4) * FLAT_TWO_PITCH + lane() % 4 * 4, earlier = (tiles.column + lane() / 4) * FLAT_PITCH + lane() % 4 * 2;
#pragma unroll 2
  for (int key = 0; key < KEYS / 2; key += 8) {
    SplitFactor<4> q, k;
    const Pack<float, 4> queries = load_pack<4>(memory.flat.queries + later + 2 * key), keys = load_pack<4>(memory.flat.keys + later + 2 * key);
#pragma unroll
    for (int i = 0; i < 4; ++i) q.set(i, queries.at[i]), k.set(i, keys.at[i]);
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      if (n >= tiles.count) continue;
      const Pack<float, 2> e = load_pack<2>(memory.flat.earlier + earlier + 8 * n * FLAT_PITCH + key);
      SplitFactor<2> b;
      b.set(0, e.at[0]), b.set(1, e.at[1]);
      if (PAIR_PIECES > 1) mma_16x8x8(of_queries[n], q.rest, b.all);
      mma_16x8x8(of_queries[n], q.all, b.rest);
      mma_16x8x8(of_queries[n], q.all, b.all);
      mma_split(of_keys[n], of_keys[n], k, b);
    }
  }
}
// Pairs of all tokens. Threads are together before it and before `use`. use(t, s, of queries, of keys), also where s > t: then they are of no meaning.
template <class Use> static inline void multiply_flat_pairs(PrepareMemory& memory, OwnRows& own, Use use) {
  constexpr int TURNS = 8 / PREPARE_WARPS;
  FlatSums of_queries[TURNS] = {}, of_keys[TURNS] = {};
  const auto multiply = [&] {
    sync_block();
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) multiply_flat(memory, FlatTiles(uniform(warp()) + turn * PREPARE_WARPS), of_queries[turn], of_keys[turn]);
  };
  float* gates = memory.m.system;  // there is no system yet
  static_assert(sizeof(Matrices) >= 2 * PART * PREPARE_THREADS * sizeof(float));
  own.put_gates(gates);
  put_flat<0>(memory, own);
  multiply();
  sync_block();
  own.take_gates(gates);
  put_flat<1>(memory, own);
  multiply();
  own.take_gates(gates);
  sync_block();
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const FlatTiles tiles(uniform(warp()) + turn * PREPARE_WARPS);
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      if (n >= tiles.count) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) use(tiles.row + lane() / 4 + 8 * (i / 2), tiles.column + 8 * n + lane() % 4 * 2 + i % 2, of_queries[turn][n][i], of_keys[turn][n][i]);
    }
  }
}

// Two numbers of a row in global memory; pieces are a matrix apart.
template <int PIECE_COUNT> static inline void store_pieces(Element* to, float x, float y) {
#pragma unroll
  for (int piece = 0; piece < PIECE_COUNT; ++piece) {
    const uint32_t word = pack_pair<Element>(x, y);
    *reinterpret_cast<uint32_t*>(to + piece * CHUNK * KEYS) = word;
    x -= low_of(word), y -= high_of(word);
  }
}

// What states are read by and take in: queries and keys times what the gates leave from the chunk's start, keys times what they leave to its end.
static inline void store_weighed(const PrepareMemory& memory, OwnRows& own, float scale, Element* queries, Element* before, Element* after) {
  own.forget();
  float left[2] = {}, later[2] = {};
#pragma unroll
  for (int part = 0; part < PARTS; ++part)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float log = memory.logs[part][own.key + j];
      if (part < own.part) left[j] += log;
      if (part > own.part) later[j] += log;
    }
  const int at = own.first * KEYS + own.key;
  weigh_later<PART>(own, 0, left, [&](int i, float low, float high) {
    const float query = scale * (NORMED ? memory.query_norms[own.first + i] : 1), key = NORMED ? memory.key_norms[own.first + i] : 1;
    store_pieces<QUERY_PIECES>(queries + at + i * KEYS, low_of(own.queries[i]) * query * low, high_of(own.queries[i]) * query * high);
    store_pieces<ROW_PIECES>(before + at + i * KEYS, low_of(own.keys[i]) * key * low, high_of(own.keys[i]) * key * high);
  });
  own.forget();
  weigh_earlier<PART>(own, 0, later, [&](int i, float low, float high) {
    const float key = NORMED ? memory.key_norms[own.first + i] : 1;
    store_pieces<ROW_PIECES>(after + at + i * KEYS, low_of(own.keys[i]) * key * low, high_of(own.keys[i]) * key * high);
  });
}

// Sums over a warp's keys of products of a part's rows; then of all keys.
static inline void put_row_sums(PrepareMemory& memory, int which, const OwnRows& own, const uint32_t (&x)[PART], const uint32_t (&y)[PART]) {
  float products[PART];
#pragma unroll
  for (int i = 0; i < PART; ++i) products[i] = low_of(x[i]) * low_of(y[i]) + high_of(x[i]) * high_of(y[i]);
  const float sum = sum_of_each(products);
  if (lane() % 2 == 0) memory.row_sums[which][own.key / WARP_KEYS][own.first + lane() / 2] = sum;
}
static inline float sum_of_row(const PrepareMemory& memory, int which, int row) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < KEY_WARPS; ++i) sum += memory.row_sums[which][i][row];
  return sum;
}

// Pairs of all tokens, level by level. Threads are together before it. use_query(t, s, x) and use_key likewise.
template <class UseQuery, class UseKey> static inline void multiply_levels(PrepareMemory& memory, OwnRows& own, UseQuery use_query, UseKey use_key) {
  float* near_sums = memory.m.inverse + warp() * NEAR_LEVELS * 4 * WARP + lane();
  put_row_sums(memory, 2, own, own.queries, own.keys);
  multiply_near<1>(near_sums, memory.near[warp()], own);
  multiply_near<2>(near_sums + 4 * WARP, memory.near[warp()], own);
  multiply_near<4>(near_sums + 8 * WARP, memory.near[warp()], own);
  multiply_near<8>(near_sums + 12 * WARP, memory.near[warp()], own);
  sync_block();
  if (thread_x() < CHUNK) use_query(thread_x(), thread_x(), sum_of_row(memory, 2, thread_x()));
  put_far<32>(memory, own);
  if (own.key < WARP_KEYS) {
    put_near_level<1>(own.first, near_sums, use_query, use_key), put_near_level<2>(own.first, near_sums + 4 * WARP, use_query, use_key);
    put_near_level<4>(own.first, near_sums + 8 * WARP, use_query, use_key), put_near_level<8>(own.first, near_sums + 12 * WARP, use_query, use_key);
  }
  sync_block();
  const auto use = [&](int t, int s, float of_query, float of_key) { use_query(t, s, of_query), use_key(t, s, of_key); };
#pragma unroll 1
  for (int tile = warp(); tile < 8; tile += PREPARE_WARPS) multiply_far(memory, tile / 4 * PART, 32 + tile / 4 * PART, tile % 4 * 8, use);
  sync_block();
  put_far<16>(memory, own);
  sync_block();
#pragma unroll 1
  for (int tile = warp(); tile < 4; tile += PREPARE_WARPS) multiply_far(memory, tile / 2 * PART, 32 * (tile / 2) + PART, 32 * (tile / 2) + tile % 2 * 8, use);
}

// The system's inverse, by the first warps.
constexpr int INVERTERS = 2, STORERS_AT = (PREPARE_WARPS > 2 * INVERTERS ? 2 : 1) * INVERTERS * WARP;  // and the first thread that stores weights
static inline void invert_by_two(Matrices& m) {
  const auto meet = [] { sync_some(1, 2 * WARP); };
  invert_diagonal<2>(m);
  meet();
  invert_below<1>(m, 2 * warp(), 0);
  meet();
  invert_below<2>(m, 0, warp());
}

// Block number: a chunk of a head.
KERNEL(PREPARE_THREADS, 2) prepare(${parameters('prepare')}) {
  const int number = block_x(), all_heads = static_cast<int>(heads), chunk = number / all_heads, head = number - chunk * all_heads;
  const int64_t sequence = sequence_of_chunk(cum_seqlens, sequences, chunk, k_view.shape[1]);
  const Tokens tokens(cum_seqlens, sequences, sequence, k_view.shape[1]);
  const int count = static_cast<int>(tokens.end - tokens.first);
  const int token = static_cast<int>(chunk - chunks_before(cum_seqlens, tokens, sequence, k_view.shape[1])) * CHUNK;
  if (token >= count) return;
  PrepareMemory& memory = *reinterpret_cast<PrepareMemory*>(dynamic_shared());
  Matrices& m = memory.m;
  OwnRows own;
  own.set(uniform(warp()));
  if (thread_x() == 0) memory.steep = 0;
  own.load_gates(gk_view, gk_type, tokens, head, token, count);
  own.load(own.keys, k_view, tokens, head, heads, token, count);
  own.load(own.queries, q_view, tokens, head, heads, token, count);
  if (warp() == 0) {
    float numbers[2];
    const float gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
    TokenNumbers(g_view, g_type, tokens, head, reverse).load(token, count, gamma, numbers);
    memory.token_gates[2 * lane()] = numbers[0], memory.token_gates[2 * lane() + 1] = numbers[1];
    TokenNumbers(beta_view, beta_type, tokens, head, reverse).load(token, count, 0, numbers);
    numbers[0] = not_zero(numbers[0]), numbers[1] = not_zero(numbers[1]);
    store_pack(decays + block_x() * int64_t{DECAY_ROW} + KEYS + 2 * lane(), Pack<float, 2>{numbers[0], numbers[1]});
    memory.betas[2 * lane()] = numbers[0], memory.betas[2 * lane() + 1] = numbers[1];
  }
  sync_block();
  float sums[2] = {};
#pragma unroll
  for (int i = 0; i < PART; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      own.gates[i][j] = bounded_gate(own.gates[i][j] + memory.token_gates[own.first + i]);
      sums[j] += own.gates[i][j];
    }
  memory.logs[own.part][own.key] = sums[0], memory.logs[own.part][own.key + 1] = sums[1];
  uint32_t large = 0;  // with the upper two bits of an exponent: a key of 2^65 or more, which over what is left would be too large
#pragma unroll
  for (int i = 0; i < PART; ++i) large |= own.keys[i] & own.keys[i] << 1;
  if (large & 0x40004000u) memory.steep = 1;
  own.forget();
  if (NORMED) {
    put_row_sums(memory, 0, own, own.queries, own.queries);
    own.forget();
    put_row_sums(memory, 1, own, own.keys, own.keys);
  }
  sync_block();

  const float scale = softmax_scale;
  if (thread_x() < CHUNK) {
    const int t = thread_x();
    memory.query_norms[t] = NORMED ? rsqrt_of(sum_of_row(memory, 0, t) + 1e-6f) : 1;
    memory.key_norms[t] = NORMED ? rsqrt_of(sum_of_row(memory, 1, t) + 1e-6f) : 1;
$if backward
    float* norms = decays + block_x() * int64_t{DECAY_ROW} + DECAYS_AND_BETAS;
    norms[t] = memory.query_norms[t], norms[CHUNK + t] = memory.key_norms[t];
$end
  }
  if (thread_x() < KEYS) {
    const int key = thread_x();
    const float earlier = memory.logs[0][key] + memory.logs[1][key], later = memory.logs[2][key] + memory.logs[3][key];
    decays[block_x() * int64_t{DECAY_ROW} + key] = in_one_word(split_exp((earlier + later) * LN_2));
    if (earlier < -FLAT_LOG || later < -FLAT_LOG) memory.steep = 1;
  }
  sync_block();
  const auto use_query = [&](int t, int s, float x) { memory.pairs[t * PAIR_PITCH + s] = x * scale * memory.query_norms[t] * memory.key_norms[s]; };
  const auto use_key = [&](int t, int s, float x) { m.system[t * PITCH + s] = x * memory.betas[t] * memory.key_norms[t] * memory.key_norms[s]; };
  if (memory.steep) multiply_levels(memory, own, use_query, use_key);
  else multiply_flat_pairs(memory, own, [&](int t, int s, float of_query, float of_key) { use_query(t, s, of_query), use_key(t, s, of_key); });
  const int64_t matrix = CHUNK * KEYS;
  float* handed = memory.near[0] + warp() % INVERTERS * 4 * PART * WARP;
  static_assert(PREPARE_WARPS >= 2 * INVERTERS && sizeof(memory.near) >= INVERTERS * 4 * PART * WARP * sizeof(float));
  sync_block();
  const bool inverts = warp() < INVERTERS, hands = warp() < 2 * INVERTERS;  // the next warps store the rows of those that invert, too
  if (inverts) own.put(handed);
  if (hands) sync_some(2, 2 * INVERTERS * WARP);
  if (inverts) {
    invert_by_two(m);
  } else {
    Element* to = reinterpret_cast<Element*>(weights) + static_cast<int64_t>(block_x()) * PAIR_PIECES * CHUNK * CHUNK;
#pragma unroll 1
    for (int i = thread_x() - STORERS_AT; i < CHUNK * CHUNK / 8 && i >= 0; i += PREPARE_THREADS - STORERS_AT) {
      const int row = i / 8, column = i % 8 * 8;
      float x[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] = column + j <= row ? memory.pairs[row * PAIR_PITCH + column + j] : 0;
#pragma unroll
      for (int piece = 0; piece < PAIR_PIECES; ++piece) {
        Pack<Element, 8> words;
#pragma unroll
        for (int j = 0; j < 8; ++j) words.at[j] = from_float<Element>(x[j]), x[j] -= to_float(words.at[j]);
        store_pack(to + piece * CHUNK * CHUNK + i * 8, words);
      }
    }
#pragma unroll 1
    for (int turn = 0; turn < (hands ? 2 : 1); ++turn) {
      if (turn > 0) own.set(uniform(warp()) - INVERTERS), own.take(handed);
      store_weighed(memory, own, scale, reinterpret_cast<Element*>(queries_before) + block_x() * QUERY_PIECES * matrix,
                    reinterpret_cast<Element*>(keys_before) + block_x() * ROW_PIECES * matrix, reinterpret_cast<Element*>(keys_after) + block_x() * ROW_PIECES * matrix);
    }
  }
  sync_block();
  store_inverse_parts<PREPARE_THREADS>(m, reinterpret_cast<Element*>(inverses) + static_cast<int64_t>(block_x()) * INVERSE_PARTS * CHUNK * CHUNK);
}
