// GPU vocabulary of the chunked recurrence with gates of keys: the entry that weighs a chunk's queries and keys. Part of a template, which
// has defined PREPARE_GROUPS of 256 threads (of more than 128 keys without the delta rule 512; 2 groups with it: one for queries and keys before
// they write, one for keys that are written), and of how many elements a number is, each of which is what rounding took from those before it: of weighed queries QUERY_PIECES,
// of weighed keys ROW_PIECES, of weights of pairs PAIR_PIECES.
//
// A chunk is four parts of 16 tokens. With p_t what the gates leave from a part's start to token t, by key, and r_s what they leave from
// token s to its end, the weight of a pair of tokens in parts a > b is (p_t q_t) . (m r_s k_s), where m is what the parts between leave:
// products of factors that are at most 1. Within a part the factors of tokens in between are multiplied one after another, in f32.
#pragma once
$if delta
#include "recurrent/chunk_delta_products.h"
$if narrow
#include "recurrent/chunk_delta_units.h"
$end
$end

$if delta and keys > 128
// Shared memory has no place for all keys: the entry goes through them, 128 at a time. Here KEYS are those.
constexpr int ALL_KEYS = KEYS;
namespace pass {
constexpr int KEYS = 128, SLICES = KEYS / 16;
using KeyTile = Tile<Element, CHUNK, KEYS>;
$end

constexpr int GROUP_THREADS = ${keys > 128 and not delta ? 512 : 256}, PREPARE_THREADS = PREPARE_GROUPS * GROUP_THREADS, PARTS = 4, PART = CHUNK / PARTS;
constexpr int FACTORS_BYTES = DELTA ? ROW_PIECES * KeyTile::BYTES : CHUNK * KEYS * 4;
// Shared memory: queries and keys as they are, then times p and r, in pieces; factors, then (delta) keys times p; sums; the chunk's pairs; norms; gates of tokens and betas; the delta rule's matrices.
constexpr int RAW_KEYS = PAIR_PIECES * KeyTile::BYTES, FACTORS = RAW_KEYS + (DELTA ? ROW_PIECES : 1) * KeyTile::BYTES;
constexpr int LOGS = FACTORS + FACTORS_BYTES, CHUNK_PAIRS = LOGS + PARTS * KEYS * 4;
constexpr int PREPARE_NORMS = CHUNK_PAIRS${keys > 128 and delta ? '' : ' + PAIR_PIECES * Square::BYTES'};
constexpr int TOKEN_GATES = PREPARE_NORMS + static_cast<int>(sizeof(Norms)), BETAS = TOKEN_GATES + CHUNK * 4, MATRICES = BETAS + CHUNK * 4;
$if delta
static_assert(MATRICES + (DELTA ? 33280 : 0) <= ${prepare_shared}, "the spec has another size");
$end
static_assert(2 * KEYS <= GROUP_THREADS && PREPARE_GROUPS <= (DELTA ? 2 : 1));

#include "recurrent/chunk_key_gates.h"

// Pairs of tokens of one part: the columns of tokens s and s + 1, which is even and odd. A lane has four keys. use(t, s, of queries, of keys):
// sums for token t >= s, 0 for others.
template <class Use> static inline void multiply_within(const char* memory, int s, Use use) {
  const Element* queries = reinterpret_cast<const Element*>(memory) + 4 * lane();
  const Element* keys = reinterpret_cast<const Element*>(memory + RAW_KEYS) + 4 * lane();
  const float* factors = reinterpret_cast<const float*>(memory + FACTORS) + 4 * lane();
  const bool mine = 4 * lane() < KEYS;
  const int first = s / PART * PART;
  float left[2][4] = {}, of_queries[2][PART], of_keys[2][PART];
#pragma unroll
  for (int i = 0; i < PART; ++i) {
#pragma unroll
    for (int c = 0; c < 2; ++c) of_queries[c][i] = 0, of_keys[c][i] = 0;
    const int t = first + i;
    if (t < s || !mine) continue;
    const Pack<Element, 4> keys_here = load_pack<4>(keys + t * KeyTile::PITCH), queries_here = load_pack<4>(queries + t * KeyTile::PITCH);
    const Pack<float, 4> e = load_pack<4>(factors + t * KEYS);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float k = to_float(keys_here.at[j]), q = to_float(queries_here.at[j]);
#pragma unroll
      for (int c = 0; c < 2; ++c) {  // of the second column nothing is left before its token
        left[c][j] = t == s + c ? k : left[c][j] * e.at[j];
        of_queries[c][i] += left[c][j] * q;
        if (DELTA) of_keys[c][i] += left[c][j] * k;
      }
    }
  }
  const int t = first + lane() / 2;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const float of_query = sum_of_each(of_queries[c]);
    const float of_key = DELTA ? sum_of_each(of_keys[c]) : 0;
    if (lane() % 2 == 0) use(t, s + c, t >= s + c ? of_query : 0, t >= s + c ? of_key : 0);
  }
}

static inline uint32_t word_at(const char* tile, int row, int key) {
  return *reinterpret_cast<const uint32_t*>(tile + (row * KeyTile::PITCH + key) * 2);
}
static inline void put_word(char* tile, int row, int key, uint32_t word) {
  *reinterpret_cast<uint32_t*>(tile + (row * KeyTile::PITCH + key) * 2) = word;
}
// Two numbers of a row in global memory, and in a tile; pieces are a matrix apart.
template <int PIECE_COUNT> static inline void store_two(Element* to, int row, int key, float x, float y) {
#pragma unroll
  for (int piece = 0; piece < PIECE_COUNT; ++piece) {
    const uint32_t word = pack_pair<Element>(x, y);
    *reinterpret_cast<uint32_t*>(to + piece * CHUNK * KEYS + row * KEYS + key) = word;
    x -= low_of(word), y -= high_of(word);
  }
}
template <int PIECE_COUNT> static inline void put_two(char* tile, int row, int key, float x, float y) {
#pragma unroll
  for (int piece = 0; piece < PIECE_COUNT; ++piece) {
    const uint32_t word = pack_pair<Element>(x, y);
    put_word(tile + piece * KeyTile::BYTES, row, key, word);
    x -= low_of(word), y -= high_of(word);
  }
}

// Operand A's elements, all pieces of them, times factors of their keys.
template <int PIECE_COUNT> static inline void weigh(uint32_t (&a)[PIECE_COUNT][4], const float (&factors)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float x = 0, y = 0;
#pragma unroll
    for (int piece = PIECE_COUNT - 1; piece >= 0; --piece) x += low_of(a[piece][i]), y += high_of(a[piece][i]);
    x *= factors[i / 2 * 2], y *= factors[i / 2 * 2 + 1];
#pragma unroll
    for (int piece = 0; piece < PIECE_COUNT; ++piece) {
      a[piece][i] = pack_pair<Element>(x, y);
      x -= low_of(a[piece][i]), y -= high_of(a[piece][i]);
    }
  }
}
// What the parts between parts `from` and `to` leave of the keys of slice k that a lane's words of operand A are of.
static inline void between(const float* logs, int from, int to, int k, float (&factors)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float sum = 0;
    for (int part = from + 1; part < to; ++part) sum += logs[part * KEYS + 16 * k + i / 2 * 8 + lane() % 4 * 2 + i % 2];
    factors[i] = exp2_of(sum);
  }
}

$if not delta
#include "recurrent/chunk_prepare_keys.h"
$elif keys > 128
#include "recurrent/chunk_prepare_passes.h"
}  // namespace pass
using pass::base_of;
using pass::prepare;
$else
// Block number: a chunk of a head.
KERNEL(PREPARE_THREADS, 1) prepare(${parameters('prepare')}) {
  const int64_t chunk = block_x() / heads, head = block_x() % heads;
  const int64_t sequence = sequence_of_chunk(cum_seqlens, sequences, chunk, k_view.shape[1]);
  const Tokens tokens(cum_seqlens, sequences, sequence, k_view.shape[1]);
  const int count = static_cast<int>(tokens.end - tokens.first);
  const int token = static_cast<int>(chunk - chunks_before(cum_seqlens, tokens, sequence, k_view.shape[1])) * CHUNK;
  if (token >= count) return;
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  float* factors = reinterpret_cast<float*>(memory + FACTORS);
  float* logs = reinterpret_cast<float*>(memory + LOGS);  // of each part, by key: the sum of its gates
  Norms& norms = *reinterpret_cast<Norms*>(memory + PREPARE_NORMS);
  float* token_gates = reinterpret_cast<float*>(memory + TOKEN_GATES);
  using Rows = ChunkRows<Element, KEYS, PREPARE_THREADS>;
  const int key_count = static_cast<int>(q_view.shape[3]);
  Rows(q_view, tokens, head, heads, 0, key_count, reverse).copy_async({shared}, token, count);
  Rows(k_view, tokens, head, heads, 0, key_count, reverse).copy_async({shared + RAW_KEYS}, token, count);
  copy_async_commit();
  const int group = thread_x() / GROUP_THREADS, own = thread_x() % GROUP_THREADS;
  const bool mine = own < 2 * KEYS;  // two keys of a part
  const int part = own / (KEYS / 2), key = own % (KEYS / 2) * 2, first = part * PART;
  PartGates x;
  if (mine) load_key_gates(x, gk_view, gk_type, tokens, head, token + first, count, key, reverse);
  if (warp() == 0) {
    float numbers[2];
    const float gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
    TokenNumbers(g_view, g_type, tokens, head, reverse).load(token, count, gamma, numbers);
    token_gates[2 * lane()] = numbers[0], token_gates[2 * lane() + 1] = numbers[1];
$if delta
    TokenNumbers(beta_view, beta_type, tokens, head, reverse).load(token, count, 0, numbers);
    numbers[0] = not_zero(numbers[0]), numbers[1] = not_zero(numbers[1]);
    store_pack(decays + block_x() * int64_t{DECAY_ROW} + KEYS + 2 * lane(), Pack<float, 2>{numbers[0], numbers[1]});
    float* betas = reinterpret_cast<float*>(memory + BETAS);
    betas[2 * lane()] = numbers[0], betas[2 * lane() + 1] = numbers[1];
$end
  }
  copy_async_wait<0>();
  sync_block();
  if (mine) {
    float sums[2] = {};
#pragma unroll
    for (int t = 0; t < PART; ++t)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        x[t][j] = bounded_gate(x[t][j] + token_gates[first + t]);
        if (group == 0) factors[(first + t) * KEYS + key + j] = exp2_of(x[t][j]);
        sums[j] += x[t][j];
      }
    if (group == 0) logs[part * KEYS + key] = sums[0], logs[part * KEYS + key + 1] = sums[1];
  }
  if (NORMED) {
    put_norms<PREPARE_THREADS>(memory, 0, norms.q);
    put_norms<PREPARE_THREADS>(memory + RAW_KEYS, CHUNK, norms.k);
  }
  sync_block();

  const float scale = softmax_scale;
  char* pairs = memory + CHUNK_PAIRS;
$if delta
  Matrices& m = *reinterpret_cast<Matrices*>(memory + MATRICES);
$if narrow
  float largest_query = 0, largest_key = 0;
  for (int t = first; mine && t < first + PART; ++t) {
    const uint32_t q = word_at(memory, t, key), k = word_at(memory + RAW_KEYS, t, key);
    const float q_norm = NORMED ? norms.q[t] : 1, k_norm = NORMED ? norms.k[t] : 1;
    largest_query = larger_size(larger_size(largest_query, low_of(q) * q_norm), high_of(q) * q_norm);
    largest_key = larger_size(larger_size(largest_key, low_of(k) * k_norm), high_of(k) * k_norm);
  }
  const Unit query_unit = unit_of_block<PREPARE_THREADS / WARP>(largest_query, m);
  sync_block();
  const Unit key_unit = unit_of_block<PREPARE_THREADS / WARP>(largest_key, m);
  const float pair_unit = query_unit.of * key_unit.of * PAIR_FACTOR;
$end
  const float* betas = reinterpret_cast<const float*>(memory + BETAS);
$end
  const auto put_pair = [&](int t, int s, float weight) {
#pragma unroll
    for (int piece = 0; piece < PAIR_PIECES; ++piece) {
      const Element element = from_float<Element>(weight);
      *reinterpret_cast<Element*>(pairs + piece * Square::BYTES + (t * Square::PITCH + s) * 2) = element;
      weight -= to_float(element);
    }
  };
#pragma unroll 1
  for (int turn = 0; turn < PARTS / PREPARE_GROUPS; ++turn) {
    static_assert(GROUP_THREADS / WARP == PART / 2);
    const int column = warp() % (PART / 2), pair = turn % 2 ? PART / 2 - 1 - column : column;  // earlier ones are longer: a warp has both kinds
    multiply_within(memory, PART * (turn * PREPARE_GROUPS + group) + 2 * pair, [&](int t, int s, float of_query, float of_key) {
      put_pair(t, s, of_query * ${narrow ? 'pair_unit' : 'scale'} * (NORMED ? norms.q[t] * norms.k[s] : 1));
$if delta
      m.system[t * PITCH + s] = t > s ? betas[t] * of_key * (NORMED ? norms.k[t] * norms.k[s] : 1) : 0;
$end
    });
  }
  sync_block();

  uint32_t early[PART];  // two groups: keys, which the other one overwrites
  if constexpr (PREPARE_GROUPS > 1) {
#pragma unroll
    for (int i = 0; i < PART; ++i) early[i] = mine ? word_at(memory + RAW_KEYS, first + i, key) : 0;
    sync_block();
  }
  const int64_t matrix = CHUNK * KEYS;
  if (mine) {
    Element* to_queries = reinterpret_cast<Element*>(queries_before) + block_x() * QUERY_PIECES * matrix;
    Element* to_keys = reinterpret_cast<Element*>(keys_after) + block_x() * ROW_PIECES * matrix;
$if delta
    Element* to_keys_before = reinterpret_cast<Element*>(keys_before) + block_x() * ROW_PIECES * matrix;
$end
    float before[2] = {}, after[2] = {}, sums[2] = {};
#pragma unroll
    for (int other = 0; other < PARTS; ++other)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float log = logs[other * KEYS + key + j];
        if (other < part) before[j] += log;
        if (other > part) after[j] += log;
      }
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      if (group > 0) break;
      const int t = first + i;
      const uint32_t q = word_at(memory, t, key);
      const float norm = ${narrow ? 'query_unit.of' : 'scale'} * (NORMED ? norms.q[t] : 1);
      sums[0] += x[i][0], sums[1] += x[i][1];
      const float low = low_of(q) * norm * exp2_of(sums[0]), high = high_of(q) * norm * exp2_of(sums[1]);
      put_two<PAIR_PIECES>(memory, t, key, low, high);
      store_two<QUERY_PIECES>(to_queries, t, key, low * exp2_of(before[0]), high * exp2_of(before[1]));
$if delta
      const uint32_t k = PREPARE_GROUPS > 1 ? early[i] : word_at(memory + RAW_KEYS, t, key);
      const float key_norm = ${narrow ? 'key_unit.of * (NORMED ? norms.k[t] : 1)' : 'NORMED ? norms.k[t] : 1'}, k_low = low_of(k) * key_norm, k_high = high_of(k) * key_norm;
      put_two<ROW_PIECES>(memory + FACTORS, t, key, k_low * exp2_of(sums[0]), k_high * exp2_of(sums[1]));
      store_two<ROW_PIECES>(to_keys_before, t, key, k_low * exp2_of(sums[0] + before[0]), k_high * exp2_of(sums[1] + before[1]));
$end
    }
    sums[0] = 0, sums[1] = 0;
#pragma unroll
    for (int i = PART - 1; i >= 0; --i) {
      if (group + 1 < PREPARE_GROUPS) break;
      const int t = first + i;
      const uint32_t k = PREPARE_GROUPS > 1 ? early[i] : word_at(memory + RAW_KEYS, t, key);
      const float norm = ${narrow ? 'key_unit.of * (NORMED ? norms.k[t] : 1)' : 'NORMED ? norms.k[t] : 1'}, low = low_of(k) * norm, high = high_of(k) * norm;
      put_two<DELTA ? ROW_PIECES : 1>(memory + RAW_KEYS, t, key, low * exp2_of(sums[0]), high * exp2_of(sums[1]));
      store_two<ROW_PIECES>(to_keys, t, key, low * exp2_of(sums[0] + after[0]), high * exp2_of(sums[1] + after[1]));
      sums[0] += x[i][0], sums[1] += x[i][1];
    }
  }
  if (thread_x() < KEYS) {
    const float all = (logs[thread_x()] + logs[KEYS + thread_x()]) + (logs[2 * KEYS + thread_x()] + logs[3 * KEYS + thread_x()]);
    decays[block_x() * int64_t{DECAY_ROW} + thread_x()] = in_one_word(split_exp(all * LN_2));
  }
  sync_block();

  // Pairs of tokens of different parts: a block of 16 x 16 a warp; two groups: queries' and keys' in warps of their own.
  if (warp() < 6 * PREPARE_GROUPS) {
    const int block = warp() % 6, r = block < 1 ? 1 : block < 3 ? 2 : 3, c = block - r * (r - 1) / 2;
    const bool has_queries = warp() < 6;
    float of_queries[2][4] = {};
$if delta
    const bool has_keys = warp() >= 6 * (PREPARE_GROUPS - 1);
    float of_keys[2][4] = {};
$end
#pragma unroll 2
    for (int k = 0; k < SLICES; ++k) {
      uint32_t b[4];
      float leaves[4];
      between(logs, c, r, k, leaves);
      if (has_queries) {
        uint32_t a[PAIR_PIECES][4];
#pragma unroll
        for (int piece = 0; piece < PAIR_PIECES; ++piece) KeyTile{shared + piece * KeyTile::BYTES}.load_a(a[piece], 16 * r, 16 * k);
        weigh(a, leaves);
#pragma unroll
        for (int piece = PAIR_PIECES - 1; piece >= 0; --piece) {
          KeyTile{shared + RAW_KEYS + piece * KeyTile::BYTES}.load_b(b, 16 * c, 16 * k);
#pragma unroll
          for (int other = PAIR_PIECES - 1 - piece; other >= 0; --other) multiply_two(of_queries[0], of_queries[1], a[other], b);
        }
      }
$if delta
      if (!has_keys) continue;
      uint32_t later[ROW_PIECES][4];
#pragma unroll
      for (int piece = 0; piece < ROW_PIECES; ++piece) KeyTile{shared + FACTORS + piece * KeyTile::BYTES}.load_a(later[piece], 16 * r, 16 * k);
      weigh(later, leaves);
#pragma unroll
      for (int piece = ROW_PIECES - 1; piece >= 0; --piece) {
        KeyTile{shared + RAW_KEYS + piece * KeyTile::BYTES}.load_b(b, 16 * c, 16 * k);
#pragma unroll
        for (int other = ROW_PIECES - 1 - piece; other >= 0; --other) multiply_two(of_keys[0], of_keys[1], later[other], b);
      }
$end
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = 16 * r + i / 2 * 8 + lane() / 4, s = 16 * c + 8 * n + lane() % 4 * 2 + i % 2;
        if (has_queries) put_pair(t, s, of_queries[n][i]${narrow ? ' * PAIR_FACTOR' : ''});
$if delta
        if (has_keys) m.system[t * PITCH + s] = betas[t] * of_keys[n][i]${narrow ? ' * key_unit.inverse * key_unit.inverse' : ''};
$end
      }
  }
  sync_block();
  Element* to_pairs = reinterpret_cast<Element*>(weights) + static_cast<int64_t>(block_x()) * PAIR_PIECES * CHUNK * CHUNK;
#pragma unroll 1
  for (int i = thread_x(); i < PAIR_PIECES * CHUNK * CHUNK / 8; i += PREPARE_THREADS) {
    const int piece = i / (CHUNK * CHUNK / 8), row = i / 8 % CHUNK, column = i % 8 * 8;
    Pack<Element, 8> words = {};
    if (column / PART <= row / PART)
      words = load_pack<8>(reinterpret_cast<const Element*>(pairs + piece * Square::BYTES) + row * Square::PITCH + column);
    store_pack(to_pairs + i * 8, words);
  }
$if delta
  invert_system<PREPARE_THREADS>(m);
$if narrow
  const float inverse = store_scaled_inverse<PREPARE_THREADS>(m, betas, reinterpret_cast<Element*>(inverses) + static_cast<int64_t>(block_x()) * INVERSE_PARTS * CHUNK * CHUNK);
  if (thread_x() == 0) ${backward ? 'reinterpret_cast<RowUnits*>(row_units)[block_x()]' : 'units_in(decays + block_x() * int64_t{DECAY_ROW})'} = {query_unit.inverse * scale, key_unit.inverse, query_unit.inverse, inverse};
$else
  store_inverse_parts<PREPARE_THREADS>(m, reinterpret_cast<Element*>(inverses) + static_cast<int64_t>(block_x()) * INVERSE_PARTS * CHUNK * CHUNK);
$end
$end
}
$end
