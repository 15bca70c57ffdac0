// Hopper vocabulary of the chunked recurrence with gates of keys and the delta rule: a chunk's pairs of tokens and the delta rule's system, in place
// of chunk_prepare.h's. Part of a template, which has defined Element, KEYS, NORMED and of how many elements a number is (QUERY_PIECES,
// ROW_PIECES, PAIR_PIECES, INVERSE_PARTS) before. The gradient's entry stores weighed rows, too; the forward one what they are weighed by where a state
// takes them in.
//
// The weight of a pair of tokens t >= s is (q_t . k_s), each key weighed by what its gates leave from s to t. Where they leave enough of all keys
// between the chunk's middle and its ends (as gates of models do), rows are weighed by that and its inverse, and all pairs are one product of
// matrices, of which a number is two elements, or three. Where they do not, tokens t > s are told apart by the largest of 1, 2, 4 to 32 tokens that
// make blocks in which both are neighbours: s in one block, t in the next. The weight is (p_t q_t) . (r_s k_s): p_t is what the gates leave from the
// start of t's block to t, r_s from s to the end of its block. These are at most 1, and their logs are sums of gates alone, of which nothing is taken
// away. So a level of blocks is a product of matrices, of f32. A warp has 64 keys of a part of 16 tokens to itself, and so the levels up to 8; the
// other two go by all warps.
#pragma once
#include "device/sm90/sm90_tf32.h"
#include "recurrent/chunk_delta_products.h"

constexpr int PARTS = 4, PART = CHUNK / PARTS;
#include "recurrent/chunk_key_gates.h"

constexpr int WARP_KEYS = 2 * WARP, KEY_WARPS = KEYS / WARP_KEYS, PREPARE_WARPS = PARTS * KEY_WARPS, PREPARE_THREADS = PREPARE_WARPS * WARP;
constexpr int NEAR_PITCH = WARP_KEYS + 8, FAR_PITCH = KEYS + 8, PAIR_PITCH = CHUNK + 4;  // floats
constexpr int NEAR_LEVELS = 4, NEAR_QUERIES = PART, NEAR_ROWS = PART + PART / 2;  // a warp's rows: keys, then queries
constexpr float FLAT_LOG = 24;  // half a chunk's gates leave 2^-24 or more of every key: logs beyond that are rounded too far in f32

constexpr int FLAT_ROW = KEYS + 8, FLAT_PIECES = KEYS > 64 ? 2 : 3;  // elements; of them a number of keys: fewer may overlap more
struct PrepareMemory {
  union {
    struct {
      union {
        float near[PREPARE_WARPS][NEAR_ROWS * NEAR_PITCH];
        struct {
          float keys[CHUNK * FAR_PITCH], queries[CHUNK / 2 * FAR_PITCH];
        } far;
      };
      float pairs[CHUNK * PAIR_PITCH];
      Matrices m;  // before there is an inverse: sums of near levels of the warps of later keys
    };
    struct {
      Element queries[PAIR_PIECES][CHUNK * FLAT_ROW], keys[FLAT_PIECES][CHUNK * FLAT_ROW], earlier[FLAT_PIECES][CHUNK * FLAT_ROW];
    } flat;  // before there are pairs
  };
  float logs[PARTS][KEYS];  // sums of a part's gates
  float row_sums[3][KEY_WARPS][CHUNK];  // of q q, k k, q k
  float query_norms[CHUNK], key_norms[CHUNK], key_factors[CHUNK], betas[CHUNK], token_gates[CHUNK];
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

#include "recurrent/chunk_sm90_key_delta_prepare_pieces.h"

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

// What makes of a row one of length 1, of the sum of its squares.
static inline float over_length(float sum) { return rsqrt_of(larger_of(sum, 1e-36f)); }
static inline float power_below(float x) { return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, larger_of(x, 0x1p-80f)) & 0x7f800000); }

// After token gates, betas and `steep` have been put and a barrier: the pairs' weights and the system, by all threads, of rows whose gates are raw logs
// before, and bounded after. To `numbers`: decays and norms. put_logs(key), by a thread of each key: its parts' logs are there.
template <class PutLogs> static inline void make_pairs(PrepareMemory& memory, OwnRows& own, float scale, float* numbers, PutLogs put_logs) {
  Matrices& m = memory.m;
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
  put_row_sums(memory, 0, own, own.queries, own.queries);
  own.forget();
  put_row_sums(memory, 1, own, own.keys, own.keys);
  sync_block();

  if (thread_x() < CHUNK) {
    const int t = thread_x();
    memory.query_norms[t] = NORMED ? rsqrt_of(sum_of_row(memory, 0, t) + 1e-6f) : 1;
    memory.key_norms[t] = NORMED ? rsqrt_of(sum_of_row(memory, 1, t) + 1e-6f) : 1;
    float* norms = numbers + DECAYS_AND_BETAS;
$if backward
    const float key = NORMED ? memory.key_norms[t] : power_below(over_length(sum_of_row(memory, 1, t)));  // so that a weighed row is of length 1 at most
    norms[t] = memory.query_norms[t], norms[CHUNK + t] = memory.key_norms[t];
    memory.key_factors[t] = key, numbers[ROW_FACTORS + t] = 1 / key;
$else
    const float query = over_length(sum_of_row(memory, 0, t)), key = over_length(sum_of_row(memory, 1, t));
    norms[t] = memory.betas[t] * memory.key_norms[t] / key, norms[CHUNK + t] = scale * memory.query_norms[t] / query;
    numbers[ROW_FACTORS + t] = key, numbers[ROW_FACTORS + CHUNK + t] = query;
    memory.query_norms[t] = query, memory.key_factors[t] = key;
$end
  }
  if (thread_x() < KEYS) {
    const int key = thread_x();
    const float earlier = memory.logs[0][key] + memory.logs[1][key], later = memory.logs[2][key] + memory.logs[3][key];
    numbers[key] = in_one_word(split_exp((earlier + later) * LN_2));
    if (earlier < -FLAT_LOG || later < -FLAT_LOG) memory.steep = 1;
    put_logs(key);
  }
  sync_block();
$if backward
  const auto use_query = [&](int t, int s, float x) { memory.pairs[t * PAIR_PITCH + s] = x * scale * memory.query_norms[t] * memory.key_norms[s]; };
$else
  const auto use_query = [&](int t, int s, float x) { memory.pairs[t * PAIR_PITCH + s] = x * memory.query_norms[t] * memory.key_factors[s]; };
$end
  const auto use_key = [&](int t, int s, float x) { m.system[t * PITCH + s] = x * memory.betas[t] * memory.key_norms[t] * memory.key_norms[s]; };
  if (memory.steep) multiply_levels(memory, own, use_query, use_key);
  else multiply_flat_pairs(memory, own, [&](int t, int s, float of_query, float of_key) { use_query(t, s, of_query), use_key(t, s, of_key); });
}
