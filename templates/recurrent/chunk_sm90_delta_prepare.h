// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: the entry that makes a chunk's numbers, the inverse of its matrix and the
// weights of its pairs of tokens. Part of backward.chunk_delta.sm90.cu; backward.chunk.gpu.cu has the formulas.
#pragma once
#include "recurrent/chunk_delta_products.h"
#include "recurrent/chunk_sm90_delta_system.h"

// What `states` needs of a chunk of a head: factors of its tokens, each a product of all that their numbers are times there.
struct alignas(16) StateFactors {
  float betas[CHUNK];
  float before[CHUNK];   // what is left at a token of the state before the chunk, by the key's norm
  float after[CHUNK];    // what is left of a token's write after the chunk, likewise
  float reads[CHUNK];    // what a token's key takes from the gradient of the state before: -beta times `before`
  float queries[CHUNK];  // what its query gives to it
  float base, rest, power, none;  // what the chunk leaves of a state; what the inverse is over

  // Of token t. scale: of what queries read.
  void set(const ChunkNumbers& numbers, int t, float scale) {
    const Gates& gates = numbers.gates;
    betas[t] = gates.beta[t], before[t] = gates.before[t] * numbers.key_norm(t), after[t] = gates.after[t] * numbers.key_norm(t);
    reads[t] = -gates.beta[t] * before[t], queries[t] = gates.before[t] * numbers.query_norm(t) * scale;
  }
};
constexpr int FACTORS_BYTES = static_cast<int>(sizeof(StateFactors));
// As they lie in memory.
struct KeptNumbers {
  ChunkNumbers numbers;
  StateFactors factors;
};
static_assert(sizeof(KeptNumbers) == 4 * ${kept_numbers} && sizeof(KeptNumbers) == NUMBERS_BYTES + FACTORS_BYTES, "the spec has another size");

// Matrices of elements of each chunk and head: the inverse, and the weights of pairs of tokens.
constexpr int MATRICES_KEPT = INVERSE_PARTS + PARTS;

// Shared memory: rows of queries, whose place weights of pairs take, rows of keys, whose place the inverse takes; numbers; a warp's words; a barrier.
struct PreparePlaces {
  static constexpr uint32_t NUMBERS = 2 * BOXES * BOX, EXPONENTS = NUMBERS + sizeof(KeptNumbers), BARRIER = EXPONENTS + 16, BYTES = BARRIER + 16;
  static_assert(PARTS * TRIANGLE <= BOXES * BOX && INVERSE_PARTS * TRIANGLE <= BOXES * BOX && SYSTEM_BYTES <= BOXES * BOX);
  uint32_t first;
  uint32_t queries() const { return first; }
  uint32_t keys() const { return first + BOXES * BOX; }
  uint32_t pairs(int part) const { return queries() + part * TRIANGLE; }
  uint32_t inverse(int part) const { return keys() + part * TRIANGLE; }
  uint32_t numbers() const { return first + NUMBERS; }
  uint32_t full() const { return first + BARRIER; }
};
static_assert(1024 + PreparePlaces::BYTES <= ${prepare_shared}, "the spec has another size");

// A chunk of a head. Chunks of a sequence are pairs: the last one may have no tokens.
struct PrepareItem {
  int sequence, head, chunk, number, count;  // number: of all chunks of all sequences; count: tokens of a sequence
$if packed
  PackedRows q, k;
  static int row_of_block(int64_t heads) { return static_cast<int>(static_cast<uint32_t>(block_x()) / static_cast<uint32_t>(heads)); }
  PrepareItem(int64_t heads, const PackedChunk& own, int64_t boxes, const TensorMap& q_map, const TensorMap& k_map, const TensorMap& copies)
      : sequence(own.sequence), head(static_cast<int>(block_x() - row_of_block(heads) * heads)), chunk(own.number),
        number(row_of_block(heads)), count(own.of.count),
        q(PackedRows::of(q_map, copies, Q_ROWS, boxes, sequence, own.of.first, count, own.of.before)),
        k(PackedRows::of(k_map, copies, K_ROWS, boxes, sequence, own.of.first, count, own.of.before)) {}
$else
  PrepareItem(int64_t heads, int64_t tokens) : count(static_cast<int>(tokens)) {
    const uint32_t block = static_cast<uint32_t>(block_x()), per_sequence = (static_cast<uint32_t>(tokens) + 2 * CHUNK - 1) / (2 * CHUNK) * 2;
    number = static_cast<int>(block / static_cast<uint32_t>(heads)), head = static_cast<int>(block) - number * static_cast<int>(heads);
    sequence = number / static_cast<int>(per_sequence), chunk = number - sequence * static_cast<int>(per_sequence);
  }
$end
  int token() const { return chunk * CHUNK; }
};

// A warp has 16 rows, in this order, so that of several blocks on a processor not the same of its schedulers has most to do.
static inline int own_rows() { return uniform((warp() + static_cast<int>(block_x())) % 4); }

// 16 rows, `own` of four, as left factors; factors that make their norms 1, to `norms`.
static inline void load_rows(uint32_t (&a)[SLICES][4], uint32_t rows, int own, float* norms) {
  const int row = 16 * own + lane() % 16;
  float squares[2][4] = {};
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    load_matrices(a[k], rows + k / 4 * BOX + row * 128 + ((k % 4 * 2 + lane() / 16) ^ row % 8) * 16);
#pragma unroll
    for (int h = 0; h < 2 && NORMED; ++h) mma_16x8x16<Element>(squares[h], a[k], a[k][h], a[k][2 + h]);
  }
#pragma unroll
  for (int h = 0; h < 2 && NORMED; ++h) {
    const float all = lane() / 4 % 2 ? squares[h][2 * h + 1] : squares[h][2 * h];
    if (lane() % 4 == lane() / 4 / 2) norms[16 * own + lane() / 4 + 8 * h] = rsqrt_of(all + 1e-6f);
  }
}
// Products of a warp's rows with 64 keys.
static inline void multiply_with_keys(float (&sums)[CHUNK / 2], const uint32_t (&a)[SLICES][4], uint32_t keys) {
  keep_in_place(sums);
  wgmma_fence();
  multiply_by_rows(sums, a, keys, false);
  wgmma_commit();
  wgmma_wait<0>();
  keep_in_place(sums);
}

// Products of keys with keys become the system below its diagonal, those of queries with keys weights of pairs.
static inline void weigh_products(const ChunkNumbers& numbers, int own, float (&of_keys)[CHUNK / 2], float (&of_queries)[CHUNK / 2], float scale) {
  const Gates& gates = numbers.gates;
  const int first_t = 16 * own + lane() / 4;
  float high[2], low[2], at_key[2], at_query[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int t = first_t + 8 * h;
    high[h] = gates.high[t], low[h] = gates.low[t], at_key[h] = gates.beta[t] * numbers.key_norm(t), at_query[h] = scale * numbers.query_norm(t);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    if (j / 2 > own) {
#pragma unroll
      for (int i = 0; i < 4; ++i) of_keys[4 * j + i] = of_queries[4 * j + i] = 0;
      continue;
    }
    const int s = 8 * j + lane() % 4 * 2;
    const Pack<float, 2> from_high = load_pack<2>(gates.high + s), from_low = load_pack<2>(gates.low + s);
    const float norms[2] = {numbers.key_norm(s), numbers.key_norm(s + 1)};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int h = i / 2, t = first_t + 8 * h;
      const float left = norms[i % 2] * exp2_of((high[h] - from_high.at[i % 2]) + (low[h] - from_low.at[i % 2]));
      const float system = at_key[h] * left * of_keys[4 * j + i], pair = at_query[h] * left * of_queries[4 * j + i];
      of_keys[4 * j + i] = s + i % 2 < t ? system : 0;
      of_queries[4 * j + i] = s + i % 2 <= t ? pair : 0;
    }
  }
}

// Parts of the warp's numbers, each of which is what rounding took from those before, to boxes one after another.
template <class T, int COUNT> static inline void put_parts(const float (&x)[CHUNK / 2], int own, uint32_t box) {
  uint32_t words[4][4], rest[4][4];
  to_factor<T>(words, x);
  const int row = 16 * own + lane() / 8 % 2 * 8 + lane() % 8;
  const auto put = [&](const uint32_t (&from)[4][4], uint32_t to) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < 2 || own >= 2) store_matrices(to + in_triangle(row, 2 * j + lane() / 16), from[j]);
  };
  put(words, box);
  if constexpr (COUNT > 1) {
    to_rounding<T>(rest, words, x);
    put(rest, box + TRIANGLE);
  }
}

// The inverse without its diagonal, its rows over their betas, all over a power of two where it has large numbers, which goes to `power`. `exponents`: of
// each warp's largest number.
static inline void scale_inverse(float (&x)[CHUNK / 2], int own, const float* betas, int* exponents, float* power) {
  constexpr int LARGE = 8;
  const int t = 16 * own + lane() / 4;
  const float over[2] = {reciprocal(betas[t]), reciprocal(betas[t + 8])};
  float largest = 0;
#pragma unroll
  for (int i = 0; i < CHUNK / 2; ++i) {
    const int s = i / 4 * 8 + lane() % 4 * 2 + i % 2, h = i % 4 / 2;
    x[i] = s < t + 8 * h ? x[i] * over[h] : 0;
    largest = larger_of(largest, absolute(x[i]));
  }
  const int exponent = largest_in_warp(exponent_of(largest));
  if (lane() == 0) exponents[warp()] = exponent;
  sync_block();
  int most = LARGE;
#pragma unroll
  for (int i = 0; i < 4; ++i) most = exponents[i] > most ? exponents[i] : most;
  const float down = most > LARGE ? power_of(most < 126 ? -most : -126) : 1;
  if (thread_x() == 0) *power = inverse_of_power(down);
#pragma unroll
  for (int i = 0; i < CHUNK / 2; ++i) x[i] *= down;
}

// Block number: a chunk of a head.
KERNEL(WARPGROUP, 4) prepare(${parameters('prepare')}) {
  const PreparePlaces at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
  KeptNumbers& kept = *reinterpret_cast<KeptNumbers*>(memory + PreparePlaces::NUMBERS);
  ChunkNumbers& numbers = kept.numbers;
$if packed
  const PackedChunk own_chunk(cum_seqlens, sequences, PrepareItem::row_of_block(heads), q_view.shape[1]);
  const PrepareItem item(heads, own_chunk, copied_boxes, q_map, k_map, row_copies_map);
$else
  const PrepareItem item(heads, q_view.shape[1]);
$end
  // What takes longest to come is asked for first.
  const bool has_gates = uniform(warp()) == 1;
  const Tokens tokens(${packed ? 'cum_seqlens' : 'nullptr'}, sequences, item.sequence, item.count);
  const TokenNumbers gates(g_view, g_type, tokens, item.head, ${packed ? 'REVERSED' : 'false'}), betas(beta_view, beta_type, tokens, item.head, ${packed ? 'REVERSED' : 'false'});
  uint32_t raw_gates[2], raw_betas[2];
  if (has_gates) {
    gates.load_raw(item.token(), item.count, raw_gates);
    betas.load_raw(item.token(), item.count, raw_betas);
  }
  if (thread_x() == 0) {
    barrier_init(at.full(), 1);
    fence_barrier_init();
    barrier_arrive_expect(at.full(), 2 * BOXES * BOX);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      const int from[4] = {64 * box, item.head, item.token(), item.sequence};
      load_tile(at.queries() + box * BOX, ${packed ? 'item.q' : 'q_map'}, at.full(), from);
      load_tile(at.keys() + box * BOX, ${packed ? 'item.k' : 'k_map'}, at.full(), from);
    }
  }
  sync_warp();
  let_next_launch_go();
  if (has_gates) {
    float of_tokens[2];
    gates.read(raw_gates, item.token(), item.count, gamma_of(g_gamma_view, gamma_type, item.head, heads, layer_idx, num_layers), of_tokens);
    put_gates(numbers.gates, of_tokens);
    betas.read(raw_betas, item.token(), item.count, 0, of_tokens);
    of_tokens[0] = not_zero(of_tokens[0]), of_tokens[1] = not_zero(of_tokens[1]);
    put_betas(numbers.gates, of_tokens);
  }
  sync_block();
  barrier_wait_all(at.full(), 0);
  float *norms_of_queries = nullptr, *norms_of_keys = nullptr;
$if normed
  norms_of_queries = numbers.norms.q, norms_of_keys = numbers.norms.k;
$end
  const int own = own_rows();
  float of_keys[CHUNK / 2], of_queries[CHUNK / 2];
  {
    uint32_t rows[SLICES][4];
    load_rows(rows, at.keys(), own, norms_of_keys);
    multiply_with_keys(of_keys, rows, at.keys());
    load_rows(rows, at.queries(), own, norms_of_queries);
    multiply_with_keys(of_queries, rows, at.keys());
  }
  sync_block();  // rows have been read
  if (thread_x() < CHUNK) kept.factors.set(numbers, thread_x(), softmax_scale);
  if (thread_x() == 0) kept.factors.base = numbers.gates.base, kept.factors.rest = numbers.gates.rest, kept.factors.none = 0;
  weigh_products(numbers, own, of_keys, of_queries, softmax_scale);
  put_parts<Element, PARTS>(of_queries, own, at.pairs(0));
  const auto store = [&](int first, int count, uint32_t from) {
    for (int i = 0; i < count; ++i) store_tile(matrices_map, {0, 0, first + i, item.head, item.number}, from + i * TRIANGLE);
    store_commit();
  };
  SystemInverse{memory + BOXES * BOX, own}.invert(of_keys, [&] {
    if (thread_x() == 0) store(INVERSE_PARTS, PARTS, at.pairs(0));
  });
  scale_inverse(of_keys, own, numbers.gates.beta, reinterpret_cast<int*>(memory + PreparePlaces::EXPONENTS), &kept.factors.power);
  put_parts<Piece, INVERSE_PARTS>(of_keys, own, at.inverse(0));
  fence_async();
  sync_block();
  if (thread_x() == 0) {
    store_bytes(reinterpret_cast<KeptNumbers*>(chunk_numbers) + item.number * static_cast<int64_t>(heads) + item.head, at.numbers(), sizeof(KeptNumbers));
    store(0, INVERSE_PARTS, at.inverse(0));
    store_wait_read<0>();
  }
}
