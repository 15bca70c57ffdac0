// GPU vocabulary: gradients of up to 64 keys (or means) through a list of tokens, whose query heads are rows of 16, on mma.sync or, with `by_waves`,
// MFMA or WMMA: four warps or waves of 16 keys each. Part of a template, which has defined before: Element, D and DV (multiples of 16).
#pragma once
#include "device/attention/softmax.h"
#include "device/tile/later.h"
#include "device/tile/tile.h"

$if by_waves
constexpr int KEYS = 64, ROWS = ${rows}, KEY_THREADS = KEYS / 16 * WAVE;
$else
constexpr int KEYS = 64, ROWS = 32, KEY_WARPS = 4, KEY_THREADS = KEY_WARPS * WARP;
$end
constexpr int TOKEN_RING = 4, RULE_RING = 3;

// The gradient's inputs of a branch.
struct BranchInputs {
  const View &q, &dout, &lse, &gates;  // gates: not given: 1
  const float* delta;
  int64_t lse_branch;  // elements to the branch's log-sum-exps
  int branch, heads, heads_a_kv_head, batch, kv_head, tokens;
  float unit;
};

// Tokens number 0, 1, ... of a list, or of those from `first` on; of each the keys [begin, end) of the tile that it sees.
struct TokenList {
  const int32_t* tokens;  // null: those from `first` on
  int first, count;
  int first_key, keys;  // of the tile
  int window_left;      // -1: none; a branch of means: divides
  int size;             // of a branch of means: tokens a block, else 0
$if packed
  int start;            // of a branch of means: the sequence's first token
$end

  int token(int i) const { return tokens ? tokens[i] : first + i; }
  int begin(int token) const {
    const int from = window_left < 0 ? 0 : token - window_left - first_key;
    return from > 0 ? from : 0;
  }
  int end(int token) const {
    const int to = (size > 0 ? (token ${packed ? '- start ' : ''}+ 1) / size : token + 1) - first_key;
    return to < 0 ? 0 : to < keys ? to : keys;
  }
};

struct RowPlace {
  int token, head;  // -1: none; of the kv head's
};
struct RowRule {
  float lse, delta, gate;  // to the base 2
  int begin, end;
};

$if by_waves
#include "native_sparse_attention/wave_key_columns.h"

struct KeySums : KeyColumns {
$else
// Shared memory: K and V; two stages of rows of q and dout; where they come from and how they count.
struct KeySumMemory {
  using KeyTile = Tile<Element, KEYS, D>;
  using ValueTile = Tile<Element, KEYS, DV>;
  using QueryRows = Tile<Element, ROWS, D>;
  using DoutRows = Tile<Element, ROWS, DV>;
  static constexpr int VALUES = KeyTile::BYTES, STAGES_AT = VALUES + ValueTile::BYTES, STAGE = QueryRows::BYTES + DoutRows::BYTES,
                       BYTES = STAGES_AT + 2 * STAGE;
};

struct KeySums {
  using Memory = KeySumMemory;
  float dk[D / 8][4], dv[DV / 8][4];  // of keys g and g + 8 of the warp's, lane 4 g + t

  template <int ROWS_OF, int COLUMNS>
  static void copy_rows(const Tile<Element, ROWS_OF, COLUMNS>& to, const Element* from, int64_t stride, int count) {
#pragma unroll 4
    for (int i = thread_x(); i < ROWS_OF * (COLUMNS / 8); i += KEY_THREADS) {
      const int row = i / (COLUMNS / 8), column = i % (COLUMNS / 8) * 8;
      copy_async_16(to.at(row, column), from + (row < count ? row * stride : 0) + column, row < count);
    }
  }
  template <int COLUMNS>
  static void copy_listed(const Tile<Element, ROWS, COLUMNS>& to, const View& from, const BranchInputs& in, const RowPlace* places) {
    const Element* const data =
        static_cast<const Element*>(from.data) + in.batch * from.strides[0] + in.kv_head * in.heads_a_kv_head * from.strides[2];
#pragma unroll 4
    for (int i = thread_x(); i < ROWS * (COLUMNS / 8); i += KEY_THREADS) {
      const int row = i / (COLUMNS / 8), column = i % (COLUMNS / 8) * 8;
      const RowPlace place = places[row];
      const bool wanted = place.token >= 0;
      copy_async_16(to.at(row, column), data + (wanted ? place.token * from.strides[1] + place.head * from.strides[2] : 0) + column,
                    wanted);
    }
  }
$end
  static RowPlace place_of(const TokenList& list, const BranchInputs& in, int row) {
    const int number = row / in.heads_a_kv_head;
    if (number >= list.count) return {-1, 0};
    return {list.token(number), row - number * in.heads_a_kv_head};
  }
  static RowRule rule_of(const TokenList& list, const BranchInputs& in, const RowPlace& place) {
    if (place.token < 0) return {0, 0, 0, 0, 0};
    const int head = in.kv_head * in.heads_a_kv_head + place.head;
    const float lse = static_cast<const float*>(in.lse.data)[in.batch * in.lse.strides[0] + head * in.lse.strides[1] + in.lse_branch +
                                                             place.token * in.lse.strides[in.lse.rank - 1]];
    const float gate =
        is_given(in.gates)
            ? to_float(static_cast<const Element*>(
                  in.gates.data)[in.batch * in.gates.strides[0] + place.token * in.gates.strides[1] + head * in.gates.strides[2]])
            : 1;
    return {lse > -INFINITE ? lse * LOG2_E : 0,
            in.delta[((static_cast<int64_t>(in.batch) * in.heads + head) * 3 + in.branch) * in.tokens + place.token], gate,
            list.begin(place.token), list.end(place.token)};
  }

$if by_waves
  // All of the list, by all threads of the block. The rows of one step are there at a time, so that more blocks fit a compute unit.
  void sum(const TokenList& list, const BranchInputs& in, const Element* keys, int64_t key_stride, const Element* values, int64_t value_stride) {
    const SharedPointer memory = shared_pointer(dynamic_shared());
    __shared__ RowPlace places[2][ROWS];
    __shared__ RowRule rules[2][ROWS];
    const int steps = (list.count * in.heads_a_kv_head + ROWS - 1) / ROWS;
    start(keys, key_stride, values, value_stride, list.keys);
    RowPlace next{};  // of the step that places have not yet
    if (thread_x() < ROWS) {
      places[0][thread_x()] = place_of(list, in, thread_x());
      rules[0][thread_x()] = rule_of(list, in, places[0][thread_x()]);
      next = place_of(list, in, ROWS + thread_x());
    }
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      sync_block();  // all have read the rows of the step before
      copy_rows(memory, in, places[i % 2]);
      sync_block();
      RowRule rule{};
      const RowPlace place = next;
      if (thread_x() < ROWS) {  // on its way while products are made
        rule = rule_of(list, in, place);
        next = place_of(list, in, (i + 2) * ROWS + thread_x());
      }
      add_step(memory, rules[i % 2], in.unit);
      if (thread_x() < ROWS) places[(i + 1) % 2][thread_x()] = place, rules[(i + 1) % 2][thread_x()] = rule;
    }
  }
$else
  template <int COLUMNS>
  static void multiply(float (&c)[4][4], const Tile<Element, KEYS, COLUMNS>& keys, const Tile<Element, ROWS, COLUMNS>& rows, int first) {
#pragma unroll
    for (int i = 0; i < 16; ++i) c[i / 4][i % 4] = 0;
#pragma unroll
    for (int step = 0; step < COLUMNS / 16; ++step) {
      uint32_t a[4];
      keys.load_a(a, first, 16 * step);
#pragma unroll
      for (int half_of = 0; half_of < 2; ++half_of) {
        uint32_t b[4];
        rows.load_b(b, 16 * half_of, 16 * step);
        mma_16x8x16<Element>(c[2 * half_of], a, b[0], b[1]);
        mma_16x8x16<Element>(c[2 * half_of + 1], a, b[2], b[3]);
      }
    }
  }
  template <int COLUMNS>
  static void add(float (&sums)[COLUMNS / 8][4], const float (&x)[4][4], const Tile<Element, ROWS, COLUMNS>& rows) {
#pragma unroll
    for (int half_of = 0; half_of < 2; ++half_of) {
      const uint32_t a[4] = {pack_pair<Element>(x[2 * half_of][0], x[2 * half_of][1]),
                             pack_pair<Element>(x[2 * half_of][2], x[2 * half_of][3]),
                             pack_pair<Element>(x[2 * half_of + 1][0], x[2 * half_of + 1][1]),
                             pack_pair<Element>(x[2 * half_of + 1][2], x[2 * half_of + 1][3])};
#pragma unroll
      for (int n = 0; n < COLUMNS / 16; ++n) {
        uint32_t b[4];
        rows.load_b_transposed(b, 16 * half_of, 16 * n);
        mma_16x8x16<Element>(sums[2 * n], a, b[0], b[1]);
        mma_16x8x16<Element>(sums[2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  // All of the list, by all threads of the block.
  void sum(const TokenList& list, const BranchInputs& in, const Element* keys, int64_t key_stride, const Element* values,
           int64_t value_stride) {
    const SharedPointer memory = shared_pointer(dynamic_shared());
    __shared__ RowPlace places[TOKEN_RING][ROWS];
    __shared__ RowRule rules[RULE_RING][ROWS];
    const Memory::KeyTile key_tile{memory};
    const Memory::ValueTile value_tile{memory + Memory::VALUES};
    const int steps = (list.count * in.heads_a_kv_head + ROWS - 1) / ROWS, first = warp() * 16;
    copy_rows(key_tile, keys, key_stride, list.keys);
    copy_rows(value_tile, values, value_stride, list.keys);
    if (thread_x() < ROWS) {
#pragma unroll
      for (int i = 0; i < 3; ++i) places[i][thread_x()] = place_of(list, in, i * ROWS + thread_x());
#pragma unroll
      for (int i = 0; i < 2; ++i) rules[i][thread_x()] = rule_of(list, in, places[i][thread_x()]);
    }
    sync_block();
    const auto copy_step = [&](int i) {
      const SharedPointer stage = memory + Memory::STAGES_AT + i % 2 * Memory::STAGE;
      copy_listed(Memory::QueryRows{stage}, in.q, in, places[i % TOKEN_RING]);
      copy_listed(Memory::DoutRows{stage + Memory::QueryRows::BYTES}, in.dout, in, places[i % TOKEN_RING]);
    };
#pragma unroll
    for (int i = 0; i < D / 8 * 4; ++i) dk[i / 4][i % 4] = 0;
#pragma unroll
    for (int i = 0; i < DV / 8 * 4; ++i) dv[i / 4][i % 4] = 0;
    copy_step(0);
    copy_async_commit();
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      copy_async_wait<0>();
      sync_block();
      copy_step(i + 1);
      copy_async_commit();
      RowPlace place{};
      RowRule rule{};
      if (thread_x() < ROWS) {  // on its way while products are made
        place = place_of(list, in, (i + 3) * ROWS + thread_x());
        rule = rule_of(list, in, places[(i + 2) % TOKEN_RING][thread_x()]);
      }
      const SharedPointer stage = memory + Memory::STAGES_AT + i % 2 * Memory::STAGE;
      const Memory::QueryRows queries{stage};
      const Memory::DoutRows douts{stage + Memory::QueryRows::BYTES};
      const RowRule* const by = rules[i % RULE_RING];
      float w[4][4], s[4][4];
      multiply(w, key_tile, queries, first);
      multiply(s, value_tile, douts, first);
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const RowRule row = by[8 * n + lane() % 4 * 2 + j];
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int key = first + lane() / 4 + 8 * r;
            const float weight = key >= row.begin && key < row.end ? exp2_of(w[n][2 * r + j] * in.unit - row.lse) * row.gate : 0;
            w[n][2 * r + j] = weight;
            s[n][2 * r + j] = weight == 0 ? 0 : weight * (s[n][2 * r + j] - row.delta);
          }
        }
      add<DV>(dv, w, douts);
      add<D>(dk, s, queries);
      if (thread_x() < ROWS) places[(i + 3) % TOKEN_RING][thread_x()] = place, rules[(i + 2) % RULE_RING][thread_x()] = rule;
    }
    copy_async_wait<0>();
  }

  // [KEYS][D + DV], of which `keys` rows.
  void store(float* to, int keys) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = warp() * 16 + lane() / 4 + 8 * r;
      if (key >= keys) continue;
      float* const row = to + key * (D + DV) + lane() % 4 * 2;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) store_pack(row + 8 * n, Pack<float, 2>{{dk[n][2 * r], dk[n][2 * r + 1]}});
#pragma unroll
      for (int n = 0; n < DV / 8; ++n) store_pack(row + D + 8 * n, Pack<float, 2>{{dv[n][2 * r], dv[n][2 * r + 1]}});
    }
  }
$end
};
