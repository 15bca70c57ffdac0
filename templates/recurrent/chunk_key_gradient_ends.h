// GPU vocabulary of the chunked recurrence's gradient with gates of keys: how a chunk ends: rows of gradients and gates' gradients go to memory. After
// chunk_key_gradient_rows.h.
#pragma once

// Rows go to memory eight lanes each: a lane has every ROW_LANES-th pack of four keys.
constexpr int ROW_LANES = 8, ROWS_AT_ONCE = THREADS / ROW_LANES, ROW_PACKS = (KEYS / 4 + ROW_LANES - 1) / ROW_LANES;
static inline int own_row() { return thread_x() / ROW_LANES; }
template <class Use> static inline void each_pack(Use use) {
#pragma unroll
  for (int i = 0; i < ROW_PACKS; ++i) {
    const int key = (i * ROW_LANES + lane() % ROW_LANES) * 4;
    if (KEYS % (4 * ROW_LANES) == 0 || key < KEYS) use(i, key);
  }
}
static inline float sum_of_lanes(float x) {
#pragma unroll
  for (int mask = 1; mask < ROW_LANES; mask *= 2) x += shuffle_xor(x, mask);
  return x;
}

// Factors that make the norms of a tile's rows 1.
static inline void put_norms_of_rows(const char* tile, float* to) {
#pragma unroll 1
  for (int row = own_row(); row < CHUNK; row += ROWS_AT_ONCE) {
    float squares = 0;
    each_pack([&](int, int key) {
      const auto x = load_pack<4>(reinterpret_cast<const Element*>(tile) + row * KeyTile::PITCH + key);
#pragma unroll
      for (int j = 0; j < 4; ++j) squares += to_float(x.at[j]) * to_float(x.at[j]);
    });
    squares = sum_of_lanes(squares);
    if (lane() % ROW_LANES == 0) to[row] = rsqrt_of(squares + 1e-6f);
  }
}

static inline void store_four(const GradientRows& to, int64_t token, int key, const Pack<float, 4>& x) {
  if (SHARED_HEADS) store_pack(static_cast<float*>(to.first) + token * to.stride + key, x);
  else store_pack(static_cast<uint32_t*>(to.first) + (token * to.stride + key) / 2, Pack<uint32_t, 2>{pack_pair<Element>(x.at[0], x.at[1]), pack_pair<Element>(x.at[2], x.at[3])});
}
// A row of gradients, from that of the row over its norm, of keys below `end`.
static inline void store_row(const char* tile, const float* sums, float norm, const GradientRows& to, int row, int token, int end) {
  const Element* raw = reinterpret_cast<const Element*>(tile) + row * KeyTile::PITCH;
  float along = 0;
  if (NORMED) {
    each_pack([&](int, int key) {
      const auto x = load_pack<4>(sums + key);
      const auto own = load_pack<4>(raw + key);
#pragma unroll
      for (int j = 0; j < 4; ++j) along += to_float(own.at[j]) * x.at[j];
    });
    along = sum_of_lanes(along) * norm * norm;
  }
  each_pack([&](int, int key) {
    auto x = load_pack<4>(sums + key);
    if (NORMED) {
      const auto own = load_pack<4>(raw + key);
#pragma unroll
      for (int j = 0; j < 4; ++j) x.at[j] = norm * (x.at[j] - to_float(own.at[j]) * along);
    }
    if (key < end) store_four(to, token + row, key, x);
  });
}

$if exchanged
// Rows of the keys' gradients, the later halves of words.
static inline void store_rows_of_words(const float* words, const GradientRows& dk, int64_t token, int end) {
  each_pack([&](int, int key) {
    if (key >= end) return;
    const auto x = load_pack<4>(reinterpret_cast<const uint32_t*>(words) + key);
    const Pack<uint32_t, 2> of_keys = {x.at[0] >> 16 | (x.at[1] & 0xffff0000u), x.at[2] >> 16 | (x.at[3] & 0xffff0000u)};
    store_pack(static_cast<uint32_t*>(dk.first) + (token * dk.stride + key) / 2, of_keys);
  });
}
$else
// Rows of both gradients, which are in words.
static inline void store_rows_of_words(const float* words, const GradientRows& dq, const GradientRows& dk, int64_t token, int end) {
  each_pack([&](int, int key) {
    if (key >= end) return;
    const auto x = load_pack<4>(reinterpret_cast<const uint32_t*>(words) + key);
    Pack<uint32_t, 2> of_queries, of_keys;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      of_queries.at[i] = (x.at[2 * i] & 0xffff) | x.at[2 * i + 1] << 16;
      of_keys.at[i] = x.at[2 * i] >> 16 | (x.at[2 * i + 1] & 0xffff0000u);
    }
    store_pack(static_cast<uint32_t*>(dq.first) + (token * dq.stride + key) / 2, of_queries);
    store_pack(static_cast<uint32_t*>(dk.first) + (token * dk.stride + key) / 2, of_keys);
  });
}
$end

// Whether rows of f32 can be written four at a time.
static inline bool are_in_packs(const View& view) {
  return (reinterpret_cast<uint64_t>(view.data) % 16 | (view.strides[0] | view.strides[1] | view.strides[2]) % 4) == 0;
}
// A row of gates' gradients, of keys below `end`; the sum of all `keys`.
static inline float store_gate_row(const float* sums, const GradientRow& to, bool in_packs, int end, int keys) {
  float sum = 0;
  each_pack([&](int, int key) {
    const auto x = load_pack<4>(sums + key);
    if (key < keys) sum += (x.at[0] + x.at[1]) + (x.at[2] + x.at[3]);
    if (key >= end) return;
    if (in_packs) {
      store_pack(static_cast<float*>(to.data) + to.base + key, x);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (F32_GATES) static_cast<float*>(to.data)[to.base + key + j] = x.at[j];
        else to.store(key + j, x.at[j]);
      }
    }
  });
  return sum_of_lanes(sum);
}

// Where a chunk's gradients go.
struct EndOfChunk {
  const ChunkPlace& at;
$if exchanged
  GradientRows dk;
$else
  GradientRows dq, dk;
$end
  const View &dgk, &dg;
  int64_t gk_type, g_type;
$if delta
  const View& dbeta;
  int64_t beta_type;
$end
  int keys;
  bool reverse;
  float* gate_sums;
};
// From sums of rows, which are there for all, to gradients in memory.
static inline void finish_chunk(char* memory, KeyFlows& flows, const Own& own, OwnFactors& factors, uint32_t closed,
                                const EndOfChunk& to) {
  const int token = to.at.token, count = to.at.count, keys = to.keys;
  float changes[PART][OWN_KEYS];
$if flat
  if (!flows.is_steep()) finish_flat_rows(memory, flows, factors);
  else finish_rows(memory, flows, own, factors, closed, changes);
$else
  if (own.there) finish_rows(memory, flows, own, factors, closed, changes);
$end
  sync_block();  // gradients of rows are there for all
#pragma unroll 1
  for (int row = own_row(); row < CHUNK; row += ROWS_AT_ONCE) {
    const int end = token + row < count ? keys : 0;
    if (IN_WORDS) {
$if exchanged
      store_rows_of_words(sums_of(memory, At::QUERY_SUMS, row, 0), to.dk, token + row, end);
$else
      store_rows_of_words(sums_of(memory, At::QUERY_SUMS, row, 0), to.dq, to.dk, token + row, end);
$end
    } else {
$if not exchanged
      store_row(memory, sums_of(memory, At::QUERY_SUMS, row, 0), NORMED ? flows.norms.q[row] : 1, to.dq, row, token, end);
$end
      store_row(memory + At::KEY_ROWS, sums_of(memory, At::KEY_SUMS, row, 0), NORMED ? flows.norms.k[row] : 1, to.dk, row, token, end);
    }
  }
  if (!GATED) return;
  if (!CHANGES_IN_MEMORY) sync_block();  // all are done with sums of queries, whose place gradients of gates take
$if flat
  if (!flows.is_steep()) put_flat_gate_gradients(memory, flows);
  else put_gate_gradients(memory, flows, own, closed, changes);
$else
  if (own.there) put_gate_gradients(memory, flows, own, closed, changes);
$end
  sync_block();  // gradients of gates are there for all
  const bool in_packs = is_given(to.dgk) && to.gk_type == 0 && are_in_packs(to.dgk);
  float all = 0;
#pragma unroll 1
  for (int row = own_row(); row < CHUNK; row += ROWS_AT_ONCE) {
    const Tokens& tokens = to.at.tokens;
    const int64_t place = to.reverse ? tokens.end - 1 - token - row : tokens.first + token + row;
    const bool there = token + row < count;
    const float sum = store_gate_row(sums_of(memory, GATE_SUMS, row, 0), GradientRow(to.dgk, to.gk_type, tokens.row, place, to.at.head), in_packs,
                                     there && is_given(to.dgk) ? keys : 0, keys);
    if (!there) continue;
    all += sum;
    if (lane() % ROW_LANES == 0 && is_given(to.dg)) GradientRow(to.dg, to.g_type, tokens.row, place, to.at.head).store(0, sum);
$if delta
    if (lane() % ROW_LANES == 0 && is_given(to.dbeta)) GradientRow(to.dbeta, to.beta_type, tokens.row, place, to.at.head).store(0, flows.of_betas[row]);
$end
  }
#pragma unroll
  for (int mask = ROW_LANES; mask < WARP; mask *= 2) all += shuffle_xor(all, mask);
  if (lane() == 0) flows.gates[warp()] = all;
  sync_block();
  if (thread_x() > 0) return;
  all = 0;
  for (int i = 0; i < WARPS; ++i) all += flows.gates[i];
  to.gate_sums[block_x()] = all;
}
