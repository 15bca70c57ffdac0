// GPU vocabulary of the chunked recurrence with gates of keys, the delta rule and more than 128 key features: the entry that weighs a chunk's queries and
// keys, 128 of them at a time. Part of chunk_prepare.h, which says what p and r are, and whose KEYS are those 128. Pairs of tokens are added up in f32:
// those of queries where the inverse comes later.
#pragma once

// Four threads a row of queries, or of keys: to `norms` what makes its norm 1 (l2_norm); returns the largest of a thread's numbers then.
static inline float norm_of_row(const View& q_view, const View& k_view, const Tokens& tokens, int64_t head, int64_t heads, int token, int count,
                                bool reverse, Norms& norms) {
  static_assert(PREPARE_THREADS == 4 * 2 * CHUNK);
  const int row = thread_x() / 4 % CHUNK;
  const bool is_key = thread_x() >= 4 * CHUNK;
  const int key_count = static_cast<int>(q_view.shape[3]);
  const ChunkRows<Element, KEYS, PREPARE_THREADS> rows(is_key ? k_view : q_view, tokens, head, heads, 0, key_count, reverse);
  const Element* at = rows.first + static_cast<int64_t>(token + row) * rows.stride;
  float squares = 0, largest = 0;
  for (int i = thread_x() % 4 * 8; i < key_count && token + row < count; i += 32) {
    const Pack<Element, 8> x = load_pack<8>(at + i);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float number = to_float(x.at[j]);
      squares += number * number, largest = larger_of(largest, larger_of(number, -number));
    }
  }
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2) squares += shuffle_xor(squares, mask);
  if (!NORMED) return largest;
  const float norm = rsqrt_of(squares + 1e-6f);
  float* to = is_key ? norms.k : norms.q;
  if (thread_x() % 4 == 0) to[row] = norm;
  return largest * norm;
}

// Two numbers of a row in global memory, in pieces that are a matrix of all keys apart.
template <int PIECE_COUNT> static inline void store_two_of_all(Element* to, int row, int key, float x, float y) {
#pragma unroll
  for (int piece = 0; piece < PIECE_COUNT; ++piece) {
    const uint32_t word = pack_pair<Element>(x, y);
    *reinterpret_cast<uint32_t*>(to + piece * CHUNK * ALL_KEYS + row * ALL_KEYS + key) = word;
    x -= low_of(word), y -= high_of(word);
  }
}

// Pairs of tokens of different parts, a block of 16 x 16 a warp: of queries the first six, of keys six others. use(t, s, product).
template <int PIECE_COUNT, class Use> static inline void multiply_parts(SharedPointer later, SharedPointer earlier, const float* logs, int block, Use use) {
  const int r = block < 1 ? 1 : block < 3 ? 2 : 3, c = block - r * (r - 1) / 2;
  float sums[2][4] = {};
#pragma unroll 2
  for (int k = 0; k < SLICES; ++k) {
    uint32_t a[PIECE_COUNT][4], b[4];
    float leaves[4];
    between(logs, c, r, k, leaves);
#pragma unroll
    for (int piece = 0; piece < PIECE_COUNT; ++piece) KeyTile{later + piece * KeyTile::BYTES}.load_a(a[piece], 16 * r, 16 * k);
    weigh(a, leaves);
#pragma unroll
    for (int piece = PIECE_COUNT - 1; piece >= 0; --piece) {
      KeyTile{earlier + piece * KeyTile::BYTES}.load_b(b, 16 * c, 16 * k);
#pragma unroll
      for (int other = PIECE_COUNT - 1 - piece; other >= 0; --other) multiply_two(sums[0], sums[1], a[other], b);
    }
  }
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) use(16 * r + i / 2 * 8 + lane() / 4, 16 * c + 8 * n + lane() % 4 * 2 + i % 2, sums[n][i]);
}

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
  float* betas = reinterpret_cast<float*>(memory + BETAS);
  Matrices& m = *reinterpret_cast<Matrices*>(memory + MATRICES);
  float* pairs = m.inverse;
  const int group = thread_x() / GROUP_THREADS, own = thread_x() % GROUP_THREADS;
  const int part = own / (KEYS / 2), key = own % (KEYS / 2) * 2, first = part * PART;  // two keys of a part
  if (warp() == 0) {
    float numbers[2];
    const float gamma = gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers);
    TokenNumbers(g_view, g_type, tokens, head, reverse).load(token, count, gamma, numbers);
    token_gates[2 * lane()] = numbers[0], token_gates[2 * lane() + 1] = numbers[1];
    TokenNumbers(beta_view, beta_type, tokens, head, reverse).load(token, count, 0, numbers);
    numbers[0] = not_zero(numbers[0]), numbers[1] = not_zero(numbers[1]);
    store_pack(decays + block_x() * int64_t{DECAY_ROW} + ALL_KEYS + 2 * lane(), Pack<float, 2>{numbers[0], numbers[1]});
    betas[2 * lane()] = numbers[0], betas[2 * lane() + 1] = numbers[1];
  }
  for (int i = thread_x(); i < CHUNK * CHUNK; i += PREPARE_THREADS) m.system[i / CHUNK * PITCH + i % CHUNK] = 0, pairs[i / CHUNK * PITCH + i % CHUNK] = 0;
$if narrow
  const float largest = norm_of_row(q_view, k_view, tokens, head, heads, token, count, reverse, norms);
  const bool has_key = thread_x() >= 4 * CHUNK;
  const Unit query_unit = unit_of_block<PREPARE_THREADS / WARP>(has_key ? 0 : largest, m);
  sync_block();
  const Unit key_unit = unit_of_block<PREPARE_THREADS / WARP>(has_key ? largest : 0, m);
  const float pair_unit = query_unit.of * key_unit.of * PAIR_FACTOR;
$elif normed
  norm_of_row(q_view, k_view, tokens, head, heads, token, count, reverse, norms);
$end
  const float scale = softmax_scale;

#pragma unroll 1
  for (int from = 0; from < ALL_KEYS; from += KEYS) {
    sync_block();  // all are done with the rows before
    using Rows = ChunkRows<Element, KEYS, PREPARE_THREADS>;
    const int key_count = static_cast<int>(q_view.shape[3]) - from;
    Rows(q_view, tokens, head, heads, from, key_count, reverse).copy_async({shared}, token, count);
    Rows(k_view, tokens, head, heads, from, key_count, reverse).copy_async({shared + RAW_KEYS}, token, count);
    copy_async_commit();
    const bool mine = from + key < ALL_KEYS;
    PartGates x;
    load_key_gates(x, gk_view, gk_type, tokens, head, token + first, count, from + key, reverse);
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
    copy_async_wait<0>();
    sync_block();
#pragma unroll 1
    for (int turn = 0; turn < PARTS / PREPARE_GROUPS; ++turn) {
      static_assert(GROUP_THREADS / WARP == PART / 2);
      const int column = warp() % (PART / 2), pair = turn % 2 ? PART / 2 - 1 - column : column;  // earlier ones are longer: a warp has both kinds
      multiply_within(memory, PART * (turn * PREPARE_GROUPS + group) + 2 * pair, [&](int t, int s, float of_query, float of_key) {
        const float norm = NORMED ? norms.k[s] : 1;
        pairs[t * PITCH + s] += of_query * ${narrow ? 'pair_unit' : 'scale'} * norm * (NORMED ? norms.q[t] : 1);
        m.system[t * PITCH + s] += t > s ? betas[t] * of_key * norm * (NORMED ? norms.k[t] : 1) : 0;
      });
    }
    uint32_t early[PART];  // keys, which the other group overwrites
#pragma unroll
    for (int i = 0; i < PART; ++i) early[i] = word_at(memory + RAW_KEYS, first + i, key);
    sync_block();

    const int64_t matrix = CHUNK * ALL_KEYS;
    float before[2] = {}, after[2] = {};
#pragma unroll
    for (int other = 0; other < PARTS; ++other)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float log = logs[other * KEYS + key + j];
        if (other < part) before[j] += log;
        if (other > part) after[j] += log;
      }
    sums[0] = 0, sums[1] = 0;
    if (group == 0) {
      Element* to_queries = reinterpret_cast<Element*>(queries_before) + block_x() * QUERY_PIECES * matrix;
      Element* to_keys = reinterpret_cast<Element*>(keys_before) + block_x() * ROW_PIECES * matrix;
#pragma unroll
      for (int i = 0; i < PART; ++i) {
        const int t = first + i;
        const uint32_t q = word_at(memory, t, key), k = early[i];
        const float norm = ${narrow ? 'query_unit.of' : 'scale'} * (NORMED ? norms.q[t] : 1);
        const float key_norm = ${narrow ? 'key_unit.of * ' : ''}(NORMED ? norms.k[t] : 1);
        sums[0] += x[i][0], sums[1] += x[i][1];
        const float low = low_of(q) * norm, high = high_of(q) * norm, k_low = low_of(k) * key_norm, k_high = high_of(k) * key_norm;
        put_two<PAIR_PIECES>(memory, t, key, low * exp2_of(sums[0]), high * exp2_of(sums[1]));
        put_two<ROW_PIECES>(memory + FACTORS, t, key, k_low * exp2_of(sums[0]), k_high * exp2_of(sums[1]));
        if (!mine) continue;
        const float left[2] = {exp2_of(sums[0] + before[0]), exp2_of(sums[1] + before[1])};
        store_two_of_all<QUERY_PIECES>(to_queries, t, from + key, low * left[0], high * left[1]);
        store_two_of_all<ROW_PIECES>(to_keys, t, from + key, k_low * left[0], k_high * left[1]);
      }
    } else {
      Element* to_keys = reinterpret_cast<Element*>(keys_after) + block_x() * ROW_PIECES * matrix;
#pragma unroll
      for (int i = PART - 1; i >= 0; --i) {
        const int t = first + i;
        const float norm = ${narrow ? 'key_unit.of * ' : ''}(NORMED ? norms.k[t] : 1), low = low_of(early[i]) * norm, high = high_of(early[i]) * norm;
        put_two<ROW_PIECES>(memory + RAW_KEYS, t, key, low * exp2_of(sums[0]), high * exp2_of(sums[1]));
        if (mine) store_two_of_all<ROW_PIECES>(to_keys, t, from + key, low * exp2_of(sums[0] + after[0]), high * exp2_of(sums[1] + after[1]));
        sums[0] += x[i][0], sums[1] += x[i][1];
      }
    }
    if (thread_x() < KEYS && from + thread_x() < ALL_KEYS) {
      const float all = (logs[thread_x()] + logs[KEYS + thread_x()]) + (logs[2 * KEYS + thread_x()] + logs[3 * KEYS + thread_x()]);
      decays[block_x() * int64_t{DECAY_ROW} + from + thread_x()] = in_one_word(split_exp(all * LN_2));
    }
    sync_block();
    if (warp() < 6)
      multiply_parts<PAIR_PIECES>(shared, shared + RAW_KEYS, logs, warp(),
                                  [&](int t, int s, float x) { pairs[t * PITCH + s] += x${narrow ? ' * PAIR_FACTOR' : ''}; });
    else if (warp() < 12)
      multiply_parts<ROW_PIECES>(shared + FACTORS, shared + RAW_KEYS, logs, warp() - 6,
                                 [&](int t, int s, float x) { m.system[t * PITCH + s] += betas[t] * x${narrow ? ' * key_unit.inverse * key_unit.inverse' : ''}; });
  }
  sync_block();
  Element* to_pairs = reinterpret_cast<Element*>(weights) + static_cast<int64_t>(block_x()) * PAIR_PIECES * CHUNK * CHUNK;
#pragma unroll 1
  for (int i = thread_x(); i < CHUNK * CHUNK / 8; i += PREPARE_THREADS) {
    const int row = i / 8, column = i % 8 * 8;
    Pack<float, 8> x;
#pragma unroll
    for (int j = 0; j < 8; ++j) x.at[j] = column + j <= row ? pairs[row * PITCH + column + j] : 0;
#pragma unroll
    for (int piece = 0; piece < PAIR_PIECES; ++piece) {
      Pack<Element, 8> words;
#pragma unroll
      for (int j = 0; j < 8; ++j) words.at[j] = from_float<Element>(x.at[j]), x.at[j] -= to_float(words.at[j]);
      store_pack(to_pairs + piece * CHUNK * CHUNK + i * 8, words);
    }
  }
  sync_block();  // the inverse takes the place of pairs
  invert_system<PREPARE_THREADS>(m);
  Element* to_inverse = reinterpret_cast<Element*>(inverses) + static_cast<int64_t>(block_x()) * INVERSE_PARTS * CHUNK * CHUNK;
$if narrow
  const float inverse = store_scaled_inverse<PREPARE_THREADS>(m, betas, to_inverse);
  if (thread_x() == 0) units_in(decays + block_x() * int64_t{DECAY_ROW}) = {query_unit.inverse * scale, key_unit.inverse, query_unit.inverse, inverse};
$else
  store_inverse_parts<PREPARE_THREADS>(m, to_inverse);
$end
}
