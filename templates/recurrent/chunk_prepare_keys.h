// GPU vocabulary of the chunked recurrence with gates of keys and without the delta rule: the entry that weighs a chunk's queries and keys.
// Part of chunk_prepare.h, which says what p and r are.
//
// Pairs of tokens within 8 tokens are weighed one after another, in f32. Those of the later 8 tokens of a part with the earlier 8 are a
// matrix product, of factors from the part's middle on and up to it; pairs of different parts are one as there. `by_steps`: each part is
// by itself, a step of chunk_values.h: rows are weighed from its start on or up to its end, and no pairs of different parts are made.
#pragma once

// Shared memory: queries and keys as they are, then times p and r; what gates leave, by token and key, then rows times their factors from
// and to the middle of a part, and the chunk's pairs; sums of logs; norms; gates of tokens; near pairs.
struct PrepareAt {
  static constexpr int KEY_ROWS = KeyTile::BYTES, FACTORS = 2 * KeyTile::BYTES, MIDDLE = FACTORS, PAIRS = MIDDLE + KeyTile::BYTES;
  static constexpr int LOGS = FACTORS + (CHUNK * KEYS * 4 > KeyTile::BYTES + Square::BYTES ? CHUNK * KEYS * 4 : KeyTile::BYTES + Square::BYTES);
  static constexpr int NORMS = LOGS + PARTS * KEYS * 4, TOKEN_GATES = NORMS + static_cast<int>(sizeof(Norms)), NEAR_PAIRS = TOKEN_GATES + CHUNK * 4;
$if narrow
  static constexpr int LARGEST = NEAR_PAIRS + CHUNK * 8 * 4, END = LARGEST + ${keys > 128 ? 128 : 64};
$else
  static constexpr int END = NEAR_PAIRS + CHUNK * 8 * 4;
$end
};
static_assert(PrepareAt::END <= ${prepare_shared} && PAIR_PIECES == 1, "the spec has another size");
constexpr int NEAR = PART / 2;  // tokens

// Products of tokens first + S and first + S + 1 with those of the NEAR tokens from `first` on that follow: of token first + i with the
// first of the two in lanes 2 i and 2 i + 1, with the second 16 lanes later. A lane has four keys of 128.
template <int S> static inline float multiply_near(const char* memory, int first) {
  const Element* queries = reinterpret_cast<const Element*>(memory) + 4 * lane();
  const Element* keys = reinterpret_cast<const Element*>(memory + PrepareAt::KEY_ROWS) + 4 * lane();
  const float* factors = reinterpret_cast<const float*>(memory + PrepareAt::FACTORS) + 4 * lane();
  float left[2][4] = {}, sums[PART] = {};
$if keys > 128
#pragma unroll 1
  for (int key = 4 * lane(); key < KEYS; key += 4 * WARP, queries += 4 * WARP, keys += 4 * WARP, factors += 4 * WARP) {
$else
  if (4 * lane() < KEYS) {
$end
#pragma unroll
    for (int i = S; i < NEAR; ++i) {
      const int t = first + i;
      const Pack<Element, 4> query = load_pack<4>(queries + t * KeyTile::PITCH);
      if (i > S) {
        const Pack<float, 4> e = load_pack<4>(factors + t * KEYS);
#pragma unroll
        for (int j = 0; j < 4; ++j) left[0][j] *= e.at[j], left[1][j] *= e.at[j];
      }
      if (i < S + 2) {
        const Pack<Element, 4> key = load_pack<4>(keys + t * KeyTile::PITCH);
#pragma unroll
        for (int j = 0; j < 4; ++j) left[i - S][j] = to_float(key.at[j]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float q = to_float(query.at[j]);
        sums[i] += left[0][j] * q;
        if (i > S) sums[NEAR + i] += left[1][j] * q;
      }
    }
  }
  return sum_of_each(sums);
}
// Near pairs, of each token with the NEAR of its own: two columns a warp and turn. Earlier ones have more tokens: a warp has all kinds.
static inline void multiply_near(char* memory) {
  static_assert(GROUP_THREADS / WARP == ${keys > 128 ? '2 * NEAR' : 'NEAR'});
#pragma unroll 1
  for (int turn = 0; turn < ${keys > 128 ? 'NEAR / 4' : 'NEAR / 2'}; ++turn) {
    const int own = warp() % (NEAR / 2), pair = turn % 2 ? NEAR / 2 - 1 - own : own, first = NEAR * (${keys > 128 ? 4 : 2} * turn + warp() / (NEAR / 2));
    const float sum = pair == 0   ? multiply_near<0>(memory, first)
                      : pair == 1 ? multiply_near<2>(memory, first)
                      : pair == 2 ? multiply_near<4>(memory, first)
                                  : multiply_near<6>(memory, first);
    if (lane() % 2 == 0) reinterpret_cast<float*>(memory + PrepareAt::NEAR_PAIRS)[(first + lane() / 2 % NEAR) * NEAR + 2 * pair + lane() / 16] = sum;
  }
}

// A thread's rows of a part, of two keys, times what gates leave of them. `factors`: of its tokens and keys.
struct Weigher {
  char* memory;
  const Norms& norms;
  const PartGates& factors;
  const int part, key;
  const int64_t block;

  void put_middle(int t, float x, float y) const { put_two<1>(memory + PrepareAt::MIDDLE, t, key, x, y); }
  void weigh_queries(float scale, const float (&before)[2]) const {
    Element* to = reinterpret_cast<Element*>(queries) + block * QUERY_PIECES * CHUNK * KEYS;
    float p[2] = {scale, scale}, from_middle[2] = {scale, scale};
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      const int t = part * PART + i;
      const uint32_t q = word_at(memory, t, key);
      const float norm = NORMED ? norms.q[t] : 1, low = low_of(q) * norm, high = high_of(q) * norm;
      p[0] *= factors[i][0], p[1] *= factors[i][1];
$if not by_steps
      put_two<1>(memory, t, key, low * p[0], high * p[1]);
$end
      store_two<QUERY_PIECES>(to, t, key, low * p[0] * before[0], high * p[1] * before[1]);
      if (i < NEAR) continue;
      from_middle[0] *= factors[i][0], from_middle[1] *= factors[i][1];
      put_middle(t, low * from_middle[0], high * from_middle[1]);
    }
  }
$if narrow
  void weigh_keys(float unit, const float (&after)[2]) const {
$else
  void weigh_keys(const float (&after)[2]) const {
$end
    Element* to = reinterpret_cast<Element*>(keys) + block * ROW_PIECES * CHUNK * KEYS;
    float r[2] = {${narrow ? 'unit, unit' : '1, 1'}}, to_middle[2] = {${narrow ? 'unit, unit' : '1, 1'}};
#pragma unroll
    for (int i = PART - 1; i >= 0; --i) {
      const int t = part * PART + i;
      const uint32_t k = word_at(memory + PrepareAt::KEY_ROWS, t, key);
      const float norm = NORMED ? norms.k[t] : 1, low = low_of(k) * norm, high = high_of(k) * norm;
$if not by_steps
      put_two<1>(memory + PrepareAt::KEY_ROWS, t, key, low * r[0], high * r[1]);
$end
      store_two<ROW_PIECES>(to, t, key, low * r[0] * after[0], high * r[1] * after[1]);
      r[0] *= factors[i][0], r[1] *= factors[i][1];
      if (i >= NEAR) continue;
      put_middle(t, low * to_middle[0], high * to_middle[1]);
      to_middle[0] *= factors[i][0], to_middle[1] *= factors[i][1];
    }
  }
  void *queries, *keys;  // to memory
};

$if by_steps
static inline void put_pair(ValuePairs& to, int t, int s, float weight) { to.own[t / STEP][t / HALF % 2][t % HALF][s % HALF] = weight; }
$else
static inline void put_pair(char* memory, int t, int s, float weight) {
  reinterpret_cast<Element*>(memory + PrepareAt::PAIRS)[t * Square::PITCH + s] = from_float<Element>(weight${narrow ? ' * PAIR_FACTOR' : ''});
}
// Pairs of tokens of parts r > c, by a warp.
static inline void multiply_far(char* memory, int r, int c) {
  const SharedPointer shared = shared_pointer(memory);
  const float* logs = reinterpret_cast<const float*>(memory + PrepareAt::LOGS);
  float sums[2][4] = {};
#pragma unroll 2
  for (int k = 0; k < SLICES; ++k) {
    uint32_t a[1][4], b[4];
    float leaves[4];
    between(logs, c, r, k, leaves);
    KeyTile{shared}.load_a(a[0], 16 * r, 16 * k);
    weigh(a, leaves);
    KeyTile{shared + PrepareAt::KEY_ROWS}.load_b(b, 16 * c, 16 * k);
    multiply_two(sums[0], sums[1], a[0], b);
  }
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) put_pair(memory, 16 * r + i / 2 * 8 + lane() / 4, 16 * c + 8 * n + lane() % 4 * 2 + i % 2, sums[n][i]);
}
$end
// Pairs of a part's later 8 tokens with its earlier 8, and zeros for those the other way round.
static inline void multiply_across_middle(${by_steps ? 'const char* memory, int part, ValuePairs& to' : 'char* memory, int part'}) {
  const KeyTile rows{shared_pointer(memory) + PrepareAt::MIDDLE};
  float sums[2][4] = {};
#pragma unroll 2
  for (int k = 0; k < SLICES; ++k) {
    uint32_t a[4], b[4];
    rows.load_a(a, PART * part, 16 * k);
    rows.load_b(b, PART * part, 16 * k);
    multiply_two(sums[0], sums[1], a, b);
  }
$if by_steps
  to.across[part][lane()] = pack_pair<Element>(sums[0][2]${narrow ? ' * PAIR_FACTOR' : ''}, sums[0][3]${narrow ? ' * PAIR_FACTOR' : ''});
$else
  const int t = PART * part + lane() / 4, s = PART * part + lane() % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) put_pair(memory, t + NEAR, s + i, sums[0][2 + i]), put_pair(memory, t, s + NEAR + i, 0);
$end
}

// Block number: a chunk of a head.
$if exchanged
static inline void weigh_chunk(const View& q_view, const View& k_view, const View& g_view, const View& g_gamma_view, const View& gk_view, const int32_t* cum_seqlens,
                               Element* queries_before, Element* keys_after, Element* weights, float* decays, int64_t sequences, int64_t heads, int64_t g_type,
                               int64_t gamma_type, int64_t gk_type, float softmax_scale, int64_t layer_idx, int64_t num_layers, bool reverse${narrow ? ', float* row_units' : ''}) {
$else
KERNEL(PREPARE_THREADS, ${keys > 128 ? 1 : by_steps and normed ? 2 : 3}) prepare(${parameters('prepare')}) {
$end
  const int64_t chunk = block_x() / heads, head = block_x() % heads;
  const int64_t sequence = sequence_of_chunk(cum_seqlens, sequences, chunk, k_view.shape[1]);
  const Tokens tokens(cum_seqlens, sequences, sequence, k_view.shape[1]);
  const int count = static_cast<int>(tokens.end - tokens.first);
  const int token = static_cast<int>(chunk - chunks_before(cum_seqlens, tokens, sequence, k_view.shape[1])) * CHUNK;
  if (token >= count) return;
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  float* leaves = reinterpret_cast<float*>(memory + PrepareAt::FACTORS);
  float* logs = reinterpret_cast<float*>(memory + PrepareAt::LOGS);  // of each part, by key: the sum of its gates
  Norms& norms = *reinterpret_cast<Norms*>(memory + PrepareAt::NORMS);
  float* token_gates = reinterpret_cast<float*>(memory + PrepareAt::TOKEN_GATES);
  using Rows = ChunkRows<Element, KEYS, PREPARE_THREADS>;
  const int key_count = static_cast<int>(q_view.shape[3]);
  Rows(q_view, tokens, head, heads, 0, key_count, reverse).copy_async({shared}, token, count);
  Rows(k_view, tokens, head, heads, 0, key_count, reverse).copy_async({shared + PrepareAt::KEY_ROWS}, token, count);
  copy_async_commit();
  const bool mine = thread_x() < 2 * KEYS;  // two keys of a part
  const int part = thread_x() / (KEYS / 2), key = thread_x() % (KEYS / 2) * 2, first = part * PART;
  PartGates factors;
  if (mine) load_key_gates(factors, gk_view, gk_type, tokens, head, token + first, count, key, reverse);
  if (warp() == 0) {
    float numbers[2];
    const float gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
    TokenNumbers(g_view, g_type, tokens, head, reverse).load(token, count, gamma, numbers);
    token_gates[2 * lane()] = numbers[0], token_gates[2 * lane() + 1] = numbers[1];
  }
  copy_async_wait<0>();
  sync_block();
  if (mine) {
    float sums[2] = {};
#pragma unroll
    for (int t = 0; t < PART; ++t) {
      Pack<float, 2> left;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float log = bounded_gate(factors[t][j] + token_gates[first + t]);
        left.at[j] = exp2_of(log), sums[j] += log;
      }
      store_pack(leaves + (first + t) * KEYS + key, left);
    }
    store_pack(logs + part * KEYS + key, Pack<float, 2>{sums[0], sums[1]});
  }
  if (NORMED) {
    put_norms<PREPARE_THREADS>(memory, 0, norms.q);
    put_norms<PREPARE_THREADS>(memory + PrepareAt::KEY_ROWS, CHUNK, norms.k);
  }
  sync_block();

  const float scale = softmax_scale;
  multiply_near(memory);
  if (mine) {
#pragma unroll
    for (int t = 0; t < PART; ++t) {
      const auto left = load_pack<2>(leaves + (first + t) * KEYS + key);
      factors[t][0] = left.at[0], factors[t][1] = left.at[1];
    }
  }
$if narrow
  float* largest = reinterpret_cast<float*>(memory + PrepareAt::LARGEST);
  {
    LargestRows own;
    for (int t = first; mine && t < first + PART; ++t) {
      const uint32_t q = word_at(memory, t, key), k = word_at(memory + PrepareAt::KEY_ROWS, t, key);
      const float q_norm = NORMED ? norms.q[t] : 1, k_norm = NORMED ? norms.k[t] : 1;
      own.queries = larger_size(larger_size(own.queries, low_of(q) * q_norm), high_of(q) * q_norm);
      own.keys = larger_size(larger_size(own.keys, low_of(k) * k_norm), high_of(k) * k_norm);
    }
    own.put(largest);
  }
$end
  sync_block();  // all are done with what gates leave, whose place others take
$if by_steps
  ValuePairs& pairs = reinterpret_cast<ValuePairs*>(weights)[block_x()];
$end
$if narrow
  const LargestRows all_rows = LargestRows::of_all<PREPARE_THREADS / WARP>(largest);
  const Unit of_queries(all_rows.queries, LEAST_SUMMAND), of_keys(all_rows.keys, LEAST_SUMMAND);
  if (thread_x() == 0) ${by_steps ? 'pairs.units' : backward ? 'reinterpret_cast<RowUnits*>(row_units)[block_x()]' : 'units_in(decays + block_x() * int64_t{DECAY_ROW})'} = {of_queries.inverse * scale, of_keys.inverse, of_queries.inverse, 0};
$end

  if (mine) {
$if by_steps
    const float before[2] = {1, 1}, after[2] = {1, 1};
$else
    float before[2] = {}, after[2] = {};
#pragma unroll
    for (int other = 0; other < PARTS; ++other)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float log = logs[other * KEYS + key + j];
        if (other < part) before[j] += log;
        if (other > part) after[j] += log;
      }
#pragma unroll
    for (int j = 0; j < 2; ++j) before[j] = exp2_of(before[j]), after[j] = exp2_of(after[j]);
$end
    const Weigher rows{memory, norms, factors, part, key, static_cast<int64_t>(block_x()), queries_before, keys_after};
    rows.weigh_queries(${narrow ? 'of_queries.of' : 'scale'}, before);
    rows.weigh_keys(${narrow ? 'of_keys.of, ' : ''}after);
  }
#pragma unroll
  for (int i = thread_x(); i < CHUNK * NEAR; i += PREPARE_THREADS) {
    const int t = i / NEAR, s = t / NEAR * NEAR + i % NEAR;
    const float weight = reinterpret_cast<const float*>(memory + PrepareAt::NEAR_PAIRS)[i] * ${narrow and not by_steps ? 'of_queries.of * of_keys.of' : 'scale'};
    put_pair(${by_steps ? 'pairs' : 'memory'}, t, s, s <= t ? weight * (NORMED ? norms.q[t] * norms.k[s] : 1) : 0);
  }
$if by_steps
  for (int i = thread_x(); i < DECAY_ROW; i += PREPARE_THREADS) decays[block_x() * int64_t{DECAY_ROW} + i] = in_one_word(split_exp(logs[i] * LN_2));
  sync_block();
  if (warp() < PARTS) multiply_across_middle(memory, warp(), pairs);
$else
  if (thread_x() < KEYS) {
    const float all = (logs[thread_x()] + logs[KEYS + thread_x()]) + (logs[2 * KEYS + thread_x()] + logs[3 * KEYS + thread_x()]);
    decays[block_x() * int64_t{DECAY_ROW} + thread_x()] = in_one_word(split_exp(all * LN_2));
  }
  sync_block();

  if (warp() < 6) {
    const int r = warp() < 1 ? 1 : warp() < 3 ? 2 : 3;
    multiply_far(memory, r, warp() - r * (r - 1) / 2);
$if keys > 128
  } else if (warp() < 6 + PARTS) {
    multiply_across_middle(memory, warp() - 6);
$else
  } else {
    multiply_across_middle(memory, warp() % 2), multiply_across_middle(memory, 2 + warp() % 2);
$end
  }
  sync_block();
  Element* to_pairs = reinterpret_cast<Element*>(weights) + static_cast<int64_t>(block_x()) * CHUNK * CHUNK;
#pragma unroll
  for (int i = thread_x(); i < CHUNK * CHUNK / 8; i += PREPARE_THREADS) {
    const int row = i / 8, column = i % 8 * 8;
    Pack<Element, 8> words = {};
    if (column / PART <= row / PART) words = load_pack<8>(reinterpret_cast<const Element*>(memory + PrepareAt::PAIRS) + row * Square::PITCH + column);
    store_pack(to_pairs + i * 8, words);
  }
$end
}
