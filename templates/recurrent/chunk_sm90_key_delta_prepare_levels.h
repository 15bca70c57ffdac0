// Hopper vocabulary of the chunked recurrence with gates of keys and the delta rule: pairs of tokens where levels are needed. Part of
// chunk_sm90_key_delta_prepare.h, which says what a level is, and has defined a chunk's memory and rows before.
#pragma once

// Sums of a warp's keys, until all warps' are there: of levels of 4 and 8 tokens, four a lane; then of each four tokens 16.
constexpr int FOUR = 4, PAIRS_OF_FOUR = FOUR * (FOUR - 1) / 2, OF_FOUR = 2 * PAIRS_OF_FOUR + FOUR;
constexpr int LEVEL_SUMS = 4 * WARP, FOURS_AT = 2 * LEVEL_SUMS, NEAR_SUMS = FOURS_AT + PART / FOUR * OF_FOUR;
static_assert(OF_FOUR == 16 && PREPARE_WARPS * NEAR_SUMS <= CHUNK * PITCH);

// A pair of four tokens: the later one and the earlier one of number n.
static constexpr int later_of_four(int n) { return n < 3 ? n + 1 : n < 5 ? n - 1 : 3; }
static constexpr int earlier_of_four(int n) { return n < 3 ? n : n < 5 ? n - 3 : 0; }

// Of four tokens and a thread's two keys: sums of pairs of queries and earlier keys, of keys and earlier keys, of queries and their own keys.
static inline void multiply_four(float (&sums)[OF_FOUR], const OwnRows& own, int first) {
#pragma unroll
  for (int i = 0; i < OF_FOUR; ++i) sums[i] = 0;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    float q[FOUR], k[FOUR], left[PAIRS_OF_FOUR];
#pragma unroll
    for (int i = 0; i < FOUR; ++i) {
      q[i] = j ? high_of(own.queries[first + i]) : low_of(own.queries[first + i]);
      k[i] = j ? high_of(own.keys[first + i]) : low_of(own.keys[first + i]);
      sums[2 * PAIRS_OF_FOUR + i] += q[i] * k[i];
      if (i > 0) left[i - 1] = exp2_of(own.gates[first + i][j]);
    }
    left[3] = left[0] * left[1], left[4] = left[1] * left[2], left[5] = left[3] * left[2];
#pragma unroll
    for (int n = 0; n < PAIRS_OF_FOUR; ++n) {
      const float earlier = left[n] * k[earlier_of_four(n)];
      sums[n] += q[later_of_four(n)] * earlier, sums[PAIRS_OF_FOUR + n] += k[later_of_four(n)] * earlier;
    }
  }
}
// Of each four tokens of a part, over a warp's keys.
static inline void multiply_fours(float* to, float* rows, OwnRows& own) {
  static_assert(SUMS_AT_ONCE == 2 * OF_FOUR);
#pragma unroll
  for (int first = 0; first < PART; first += FOUR) {
    float sums[OF_FOUR];
    own.forget();
    multiply_four(sums, own, first);
    float* row = row_of_sums(rows) + first % (2 * FOUR) * FOUR;
#pragma unroll
    for (int i = 0; i < OF_FOUR; i += 4) store_pack(row + i, Pack<float, 4>{sums[i], sums[i + 1], sums[i + 2], sums[i + 3]});
    if (first % (2 * FOUR) == 0) continue;
    sync_warp();
    const auto all = sum_of_rows(rows);
    if (lane() < SUM_PACKS) store_pack(to + (first - FOUR) * FOUR + lane() * 4, all);
    sync_warp();
  }
}
// Those of all warps, to where pairs are, by all threads.
template <class UseQuery, class UseKey> static inline void put_fours(const float* near_sums, UseQuery use_query, UseKey use_key) {
#pragma unroll 1
  for (int i = thread_x(); i < CHUNK / FOUR * OF_FOUR; i += PREPARE_THREADS) {
    constexpr int OF_PART = PART / FOUR * OF_FOUR;
    const float* sums = near_sums + i / OF_PART * KEY_WARPS * NEAR_SUMS + FOURS_AT + i % OF_PART;
    const float sum = sums[0] + (KEY_WARPS > 1 ? sums[NEAR_SUMS] : 0);
    const int first = i / OF_FOUR * FOUR, number = i % OF_FOUR, pair = number % PAIRS_OF_FOUR;
    const int t = first + later_of_four(pair), s = first + earlier_of_four(pair), itself = first + number - 2 * PAIRS_OF_FOUR;
    if (number < PAIRS_OF_FOUR) use_query(t, s, sum);
    else if (number < 2 * PAIRS_OF_FOUR) use_key(t, s, sum);
    else use_query(itself, itself, sum);
  }
}

// Place of a level's number g of 8 earlier tokens in their part; the later token's is LEVEL on.
template <int LEVEL> static inline int earlier_token(int g) { return (g & -LEVEL) * 2 + (g & (LEVEL - 1)); }

template <int COUNT, int MATRIX> static inline void put_weighed(Element* to, uint32_t word, float low, float high) {
  put_flat_pieces<COUNT, MATRIX>(to, low_of(word) * low, high_of(word) * high);
}

// Sums of a level of a part over a warp's keys. The left factor's rows are 8 queries and 8 keys.
template <int LEVEL> static inline void multiply_near(float* to, NearRows& rows, OwnRows& own) {
  constexpr int KEY_MATRIX = PART * NEAR_ROW, QUERY_MATRIX = PART / 2 * NEAR_ROW;
  own.forget();
  sync_warp();
#pragma unroll
  for (int block = 0; block < PART; block += 2 * LEVEL) {
    float left[2] = {}, earlier[2] = {};
    weigh_earlier<LEVEL>(own, block, earlier, [&](int i, float low, float high) {
      put_weighed<FLAT_PIECES, KEY_MATRIX>(rows.keys[0] + (block + i) * NEAR_ROW + 2 * lane(), own.keys[block + i], low, high);
    });
    weigh_later<LEVEL>(own, block + LEVEL, left, [&](int i, float low, float high) {
      const int t = block + LEVEL + i;
      put_weighed<FLAT_PIECES, KEY_MATRIX>(rows.keys[0] + t * NEAR_ROW + 2 * lane(), own.keys[t], low, high);
      put_weighed<PAIR_PIECES, QUERY_MATRIX>(rows.queries[0] + (block / 2 + i) * NEAR_ROW + 2 * lane(), own.queries[t], low, high);
    });
  }
  sync_warp();
  const int g = lane() % 8;
  const bool of_keys = lane() / 8 % 2;
  const uint32_t later = shared_pointer((of_keys ? rows.keys[0] + (earlier_token<LEVEL>(g) + LEVEL) * NEAR_ROW : rows.queries[0] + g * NEAR_ROW) + lane() / 16 * 8);
  const uint32_t earlier = shared_pointer(rows.keys[lane() / 16] + earlier_token<LEVEL>(g) * NEAR_ROW + lane() / 8 % 2 * 8);
  float sums[4] = {};
#pragma unroll 1
  for (int key = 0; key < WARP_KEYS; key += 16) {
    uint32_t a[FLAT_PIECES][4];
#pragma unroll
    for (int piece = 0; piece < FLAT_PIECES; ++piece) {
      const int of_query = piece < PAIR_PIECES ? piece * QUERY_MATRIX : 0;
      load_matrices(a[piece], later + (of_keys ? piece * KEY_MATRIX : of_query) * 2 + key * 2);
      if (piece >= PAIR_PIECES) a[piece][0] = a[piece][2] = 0;
    }
    EarlierPieces e;
    load_earlier(e, earlier + key * 2, KEY_MATRIX * 2);
    multiply_pieces(sums, a, e);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i * WARP] = sums[i];
}

// Those of all warps of the part, to where pairs are.
template <int LEVEL, class UseQuery, class UseKey> static inline void put_near_level(int first, const float* sums, UseQuery use_query, UseKey use_key) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int g = lane() / 4, n = lane() % 4 * 2 + i % 2, t = first + earlier_token<LEVEL>(g) + LEVEL, s = first + earlier_token<LEVEL>(n);
    if (g / LEVEL != n / LEVEL) continue;
    const float sum = sums[i * WARP] + (KEY_WARPS > 1 ? sums[NEAR_SUMS + i * WARP] : 0);
    if (i < 2) use_query(t, s, sum);
    else use_key(t, s, sum);
  }
}

// A level's queries and keys of different parts, by all threads.
template <int LEVEL> static inline void put_far(PrepareMemory& memory, OwnRows& own) {
  own.forget();
  constexpr int BLOCK_PARTS = LEVEL / PART, MATRIX = CHUNK * FLAT_ROW;
  float left[2] = {};
  if (BLOCK_PARTS > 1 && (own.part == 0 || own.part == 3)) {  // what the block's other part leaves
    const float* other = memory.logs[own.part == 0 ? 1 : 2] + own.key;
    left[0] = other[0], left[1] = other[1];
  }
  Element* keys = memory.far.keys[0] + own.first * FLAT_ROW + own.key;
  if (own.part & BLOCK_PARTS) {
    Element* queries = memory.far.queries[0] + (BLOCK_PARTS > 1 ? own.part - 2 : own.part / 2) * PART * FLAT_ROW + own.key;
    weigh_later<PART>(own, 0, left, [&](int i, float low, float high) {
      put_weighed<FLAT_PIECES, MATRIX>(keys + i * FLAT_ROW, own.keys[i], low, high);
      put_weighed<PAIR_PIECES, MATRIX / 2>(queries + i * FLAT_ROW, own.queries[i], low, high);
    });
  } else {
    weigh_earlier<PART>(own, 0, left, [&](int i, float low, float high) { put_weighed<FLAT_PIECES, MATRIX>(keys + i * FLAT_ROW, own.keys[i], low, high); });
  }
}

// Products of 16 later tokens (number `row` of 32 queries) with 8 earlier ones. use(t, s, of queries, of keys).
template <class Use> static inline void multiply_far(const PrepareMemory& memory, int row, int later, int earlier, Use use) {
  constexpr uint32_t MATRIX = CHUNK * FLAT_ROW * sizeof(Element);
  const auto& far = memory.far;
  const int at = lane() % 16 * FLAT_ROW + lane() / 16 * 8;
  const uint32_t queries = shared_pointer(far.queries[0] + row * FLAT_ROW + at), keys = shared_pointer(far.keys[0] + later * FLAT_ROW + at);
  const uint32_t others = shared_pointer(far.keys[lane() / 16] + (earlier + lane() % 8) * FLAT_ROW + lane() / 8 % 2 * 8);
  float of_queries[4] = {}, of_keys[4] = {};
#pragma unroll 2
  for (int key = 0; key < KEYS; key += 16) {
    uint32_t q[PAIR_PIECES][4], k[FLAT_PIECES][4];
#pragma unroll
    for (int piece = 0; piece < PAIR_PIECES; ++piece) load_matrices(q[piece], queries + piece * (MATRIX / 2) + key * 2);
#pragma unroll
    for (int piece = 0; piece < FLAT_PIECES; ++piece) load_matrices(k[piece], keys + piece * MATRIX + key * 2);
    EarlierPieces e;
    load_earlier(e, others + key * 2, MATRIX);
    multiply_pieces(of_keys, k, e);
    multiply_query_pieces(of_queries, q, e);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) use(later + lane() / 4 + 8 * (i / 2), earlier + lane() % 4 * 2 + i % 2, of_queries[i], of_keys[i]);
}

// Pairs of all tokens, level by level. Threads are together before it. use_query(t, s, x) and use_key likewise.
template <class UseQuery, class UseKey> static inline void multiply_levels(PrepareMemory& memory, OwnRows& own, UseQuery use_query, UseKey use_key) {
  float* near_sums = memory.m.inverse + warp() * NEAR_SUMS;
  multiply_fours(near_sums + FOURS_AT, memory.sums_of_warp(), own);
  multiply_near<4>(near_sums + lane(), memory.near[warp()], own);
  multiply_near<8>(near_sums + LEVEL_SUMS + lane(), memory.near[warp()], own);
  sync_block();
  put_far<32>(memory, own);
  put_fours(memory.m.inverse, use_query, use_key);
  if (own.key < WARP_KEYS) {
    put_near_level<4>(own.first, near_sums + lane(), use_query, use_key);
    put_near_level<8>(own.first, near_sums + LEVEL_SUMS + lane(), use_query, use_key);
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
