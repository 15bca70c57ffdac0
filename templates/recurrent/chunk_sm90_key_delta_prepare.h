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
// away. So a level of blocks is a product of matrices, likewise of several elements a number. A warp has 64 keys of a part of 16 tokens to itself, and so
// the levels up to 8; the other two go by all warps. Pairs of the first two, of four tokens, are added up without matrices.
#pragma once
#include "recurrent/chunk_delta_products.h"

constexpr int PARTS = 4, PART = CHUNK / PARTS;
#include "recurrent/chunk_key_gates.h"

constexpr int WARP_KEYS = 2 * WARP, KEY_WARPS = KEYS / WARP_KEYS, PREPARE_WARPS = PARTS * KEY_WARPS, PREPARE_THREADS = PREPARE_WARPS * WARP;
constexpr int PAIR_PITCH = CHUNK + 4;  // floats
constexpr float FLAT_LOG = 48;  // half a chunk's gates leave 2^-48 or more of every key: logs beyond that are rounded too far in f32, and rows over what is left too large

constexpr int FLAT_ROW = KEYS + 8, NEAR_ROW = WARP_KEYS + 8, FLAT_PIECES = KEYS > 64 ? 2 : 3;  // elements; of them a number of keys: fewer may overlap more
// Of a level, rows of a warp's keys; queries are of later tokens alone.
struct NearRows {
  Element keys[FLAT_PIECES][PART * NEAR_ROW], queries[PAIR_PIECES][PART / 2 * NEAR_ROW];
};
struct PrepareMemory {
  union {
    struct {
      union {
        NearRows near[PREPARE_WARPS];
        struct {
          Element keys[FLAT_PIECES][CHUNK * FLAT_ROW], queries[PAIR_PIECES][CHUNK / 2 * FLAT_ROW];
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
  float row_sums[2][KEY_WARPS][CHUNK];  // of q q, k k
  float query_norms[CHUNK], key_norms[CHUNK], key_factors[CHUNK], betas[CHUNK], token_gates[CHUNK];
  int steep;  // levels are needed

  float* sums_of_warp() { return reinterpret_cast<float*>(&near[warp()]); }  // a place for numbers of all lanes
};
static_assert(sizeof(PrepareMemory) <= ${prepare_shared}, "the spec has another size");

#include "recurrent/chunk_sm90_key_delta_rows.h"

// Sums over a warp of 32 numbers a lane, which hands them over in a row of its own: lane l < 8 gets numbers 4 l to 4 l + 3. After a wait of the warp.
constexpr int SUMS_AT_ONCE = 32, ROW_OF_SUMS = SUMS_AT_ONCE + 4, SUM_PACKS = SUMS_AT_ONCE / 4;
static_assert(WARP * ROW_OF_SUMS * sizeof(float) <= sizeof(NearRows));
static inline float* row_of_sums(float* rows) { return rows + lane() * ROW_OF_SUMS; }
static inline Pack<float, 4> sum_of_rows(const float* rows) {
  constexpr int APART = WARP / SUM_PACKS;  // from one of a lane's rows to the next
  const float* from = rows + lane() / SUM_PACKS * ROW_OF_SUMS + lane() % SUM_PACKS * 4;
  Pack<float, 4> sums = load_pack<4>(from);
#pragma unroll
  for (int i = APART; i < WARP; i += APART) {
    const auto more = load_pack<4>(from + i * ROW_OF_SUMS);
#pragma unroll
    for (int j = 0; j < 4; ++j) sums.at[j] += more.at[j];
  }
#pragma unroll
  for (int mask = SUM_PACKS; mask < WARP; mask *= 2)
#pragma unroll
    for (int j = 0; j < 4; ++j) sums.at[j] += shuffle_xor(sums.at[j], mask);
  return sums;
}

// Squares of a part's queries and keys, added up over a warp's keys; then over all keys.
static inline void put_row_sums(PrepareMemory& memory, const OwnRows& own) {
  float *rows = memory.sums_of_warp(), *row = row_of_sums(rows);
#pragma unroll
  for (int which = 0; which < 2; ++which)
#pragma unroll
    for (int first = 0; first < PART; first += 4) {
      Pack<float, 4> squares;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t word = which ? own.keys[first + i] : own.queries[first + i];
        squares.at[i] = low_of(word) * low_of(word) + high_of(word) * high_of(word);
      }
      store_pack(row + which * PART + first, squares);
    }
  sync_warp();
  const auto sums = sum_of_rows(rows);
  if (lane() < SUM_PACKS) store_pack(&memory.row_sums[lane() / 4][own.key / WARP_KEYS][own.first + lane() % 4 * 4], sums);
}
#include "recurrent/chunk_sm90_key_delta_prepare_pieces.h"
#include "recurrent/chunk_sm90_key_delta_prepare_levels.h"

static inline float sum_of_row(const PrepareMemory& memory, int which, int row) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < KEY_WARPS; ++i) sum += memory.row_sums[which][i][row];
  return sum;
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
  put_row_sums(memory, own);
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
