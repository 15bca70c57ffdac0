// CPU vocabulary: the five products of the gradients of tokens' query heads on AMX tiles of bf16, f32 sums. 16 heads of a token are the rows of
// tiles of scores. Sums for keys and values lie feature by feature, in squares of 32 x 32, and stay in registers for all tokens that pass
// together. Weights and gradients of scores are rounded to bf16. Part of a template, which has defined before: Element, D, DV, TOKENS.
#pragma once
#include "device/attention/decode_rows.h"
#include "device/matrix/amx_block.h"

$require E == 'bf16'
constexpr int ROWS = 16;
constexpr int64_t GROUP = 32, GROUPS = 2, SQUARE = 1024;
constexpr int64_t KEY_CHUNKS = (D + 31) / 32, VALUE_CHUNKS = (DV + 31) / 32, KEY_TILES = 2 * KEY_CHUNKS;
constexpr int64_t KEY_WIDTH = 32 * KEY_CHUNKS, VALUE_WIDTH = 32 * VALUE_CHUNKS;
// Words of a group: of keys and values [two times 16 keys][chunk] tiles; of keys by rows [KEY_TILES] tiles, then a line whose first word is 1 where
// all of them are known to be finite.
constexpr int64_t KEY_GROUP = 2 * KEY_CHUNKS * TILE_WORDS, VALUE_GROUP = 2 * VALUE_CHUNKS * TILE_WORDS, ROW_GROUP = KEY_TILES * TILE_WORDS + 16;
constexpr int64_t ROW_STRIDE = 0;  // rows are in tiles
constexpr int64_t KEY_SUMS = KEY_CHUNKS * SQUARE, VALUE_SUMS = VALUE_CHUNKS * SQUARE;
#include "native_sparse_attention/key_groups.h"
#include "native_sparse_attention/group_entries.h"

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Keys of a kv head and their values, and the sums of their gradients: [group][chunk][32 features][32 keys].
struct Keys {
  const float *keys, *values, *rows;
  int64_t row_stride;
  float *key_sums, *value_sums;
};

// Whether the bf16 of tiles are no infinities and NaN.
static inline bool are_finite(const float* tiles, int64_t words) {
  Integers special = {};
  for (int64_t i = 0; i < words; i += LANES) {
    const Integers pairs = __builtin_bit_cast(Integers, load_floats(tiles + i));
    special |= ((pairs & 0x7f80) == 0x7f80) | ((pairs & 0x7f800000) == 0x7f800000);
  }
  return !any(special);
}

// The rows of heads as left operands of products whose results are rows, [pass][chunk] tiles, and of those whose results are features,
// [chunk][step of 32 heads][2] tiles.
template <int64_t FEATURES>
static void pack_heads(const Element* from, int64_t stride, int64_t heads, int64_t passes, float* lines, float* turned) {
  constexpr int64_t CHUNKS = (FEATURES + 31) / 32;
  const int64_t steps = (passes + 1) / 2;
  for (int64_t pass = 0; pass < passes; ++pass)
    for (int64_t c = 0; c < CHUNKS; ++c)
      pack_lines(lines + (pass * CHUNKS + c) * TILE_WORDS, from + pass * ROWS * stride + 32 * c, stride, smaller(16, heads - pass * ROWS),
                 smaller(32, FEATURES - 32 * c), false);
  for (int64_t tile = 0; tile < 2 * CHUNKS; ++tile)
    for (int64_t step = 0; step < steps; ++step)
      pack_steps(turned + ((tile / 2 * steps + step) * 2 + tile % 2) * TILE_WORDS, from + 32 * step * stride + 16 * tile, stride,
                 smaller(16, FEATURES - 16 * tile), heads - 32 * step, true);
}

// The query heads of some tokens, 16 a pass; rows past a token's last are zeros.
struct HeadGradients {
  float *queries, *douts;                // [token][pass][chunk] tiles
  float *queries_turned, *douts_turned;  // [token][chunk][step][2] tiles
  float* finite;                         // [token]: 1 where queries and douts are finite
  float* dq;                             // [token][row][KEY_WIDTH]
  float *weight_pairs, *slope_pairs;     // [token][GROUPS][step][2] tiles: right operands, whose lines are pairs of heads
  float* slope_lines;                    // [pass][GROUPS] tiles, of a token
  float* seen_rows;                      // [KEY_TILES] tiles for each of GROUPS: keys of a group, zeros for those that are not seen
  int64_t heads, rows;                   // of a token

  int64_t passes() const { return rows / ROWS; }
  int64_t steps() const { return (rows + 31) / 32; }
  int64_t pairs() const { return GROUPS * steps() * 2 * TILE_WORDS; }  // of a token
  int64_t turned(int64_t chunks) const { return chunks * steps() * 2 * TILE_WORDS; }

  // Own floats of so many rows a token.
  static int64_t scratch(int64_t rows, int64_t tokens) {
    const int64_t of_steps = (KEY_CHUNKS + VALUE_CHUNKS + 2 * GROUPS) * ((rows + 31) / 32) * 2 * TILE_WORDS;
    const int64_t of_rows = (KEY_CHUNKS + VALUE_CHUNKS) * 16 + KEY_WIDTH;
    return tokens * (rows * of_rows + of_steps + 16) + (rows / ROWS + KEY_TILES) * GROUPS * TILE_WORDS;
  }
  void lay_out(float* next, int64_t tokens) {
    const auto take = [&](int64_t count) { return next += count, next - count; };
    queries = take(tokens * passes() * KEY_CHUNKS * TILE_WORDS), douts = take(tokens * passes() * VALUE_CHUNKS * TILE_WORDS);
    queries_turned = take(tokens * turned(KEY_CHUNKS)), douts_turned = take(tokens * turned(VALUE_CHUNKS));
    dq = take(tokens * rows * KEY_WIDTH);
    weight_pairs = take(tokens * pairs()), slope_pairs = take(tokens * pairs());
    slope_lines = take(passes() * GROUPS * TILE_WORDS), seen_rows = take(GROUPS * KEY_TILES * TILE_WORDS);
    finite = take(tokens * 16);
    __builtin_memset(weight_pairs, 0, 2 * tokens * pairs() * sizeof(float));
    __builtin_memset(slope_lines, 0, passes() * GROUPS * TILE_WORDS * sizeof(float));
  }
  void start() { amx_configure(); }
  void end() { amx_release(); }

  float* row_of_dq(int64_t token, int64_t row) const { return dq + (token * rows + row) * KEY_WIDTH; }

  void load(int64_t token, const Element* query, int64_t query_stride, const Element* dout, int64_t dout_stride) {
    float *q = queries + token * passes() * KEY_CHUNKS * TILE_WORDS, *d = douts + token * passes() * VALUE_CHUNKS * TILE_WORDS;
    pack_heads<D>(query, query_stride, heads, passes(), q, queries_turned + token * turned(KEY_CHUNKS));
    pack_heads<DV>(dout, dout_stride, heads, passes(), d, douts_turned + token * turned(VALUE_CHUNKS));
    finite[token] = are_finite(q, passes() * KEY_CHUNKS * TILE_WORDS) && are_finite(d, passes() * VALUE_CHUNKS * TILE_WORDS) ? 1 : 0;
    __builtin_memset(row_of_dq(token, 0), 0, rows * KEY_WIDTH * sizeof(float));
  }

  // Chunk `chunk` of groups one after the other, two tiles a group.
  template <int64_t CHUNKS> struct GroupTiles {
    const float* groups;
    const int64_t* index;
    int64_t chunk;

    template <int REGISTER> void load(int i) const {
      amx_load<REGISTER>(groups + ((2 * index[i / 2] + i % 2) * CHUNKS + chunk) * TILE_WORDS, 64);
    }
  };
  // to[16][pitch] = a pass of rows times COUNT groups.
  template <int64_t CHUNKS, int COUNT>
  static void multiply(const float* left, const float* right, const Groups& groups, float* to, int64_t pitch) {
    typedef AmxBlock<1, 2 * COUNT> Tiles;
    Tiles::zero();
    for (int64_t chunk = 0; chunk < CHUNKS; ++chunk) Tiles::multiply(left + chunk * TILE_WORDS, GroupTiles<CHUNKS>{right, groups.index, chunk});
    Tiles::store_rows(to, pitch);
  }
  template <int COUNT> void score(const Keys& keys, const Entry& e, int64_t pass) const {
    const int64_t at = e.token * passes() + pass, to = pass * ROWS * e.pitch;
    multiply<KEY_CHUNKS, COUNT>(queries + at * KEY_CHUNKS * TILE_WORDS, keys.keys, e.groups, e.weights + to, e.pitch);
    multiply<VALUE_CHUNKS, COUNT>(douts + at * VALUE_CHUNKS * TILE_WORDS, keys.values, e.groups, e.slopes + to, e.pitch);
  }
  // Scores of an entry, and gradients of its weights.
  void score(const Keys& keys, const Entry& e) const {
    for (int64_t pass = 0; pass < passes(); ++pass)
      if (e.groups.count == 2)
        score<2>(keys, e, pass);
      else
        score<1>(keys, e, pass);
  }

  // Weights of an entry, times the gates, and gradients of scores as operands. Pairs of rows past the last stay the zeros of lay_out().
  void narrow(const Entry& e, const float* gates, const float* deltas) const {
    const float *gate = gates + e.token * rows, *delta = deltas + e.token * rows;
    for (int64_t row = 0; row < heads; row += 2) {
      const bool both = row + 1 < heads;
      const float odd_gate = both ? gate[row + 1] : 0, odd_delta = both ? delta[row + 1] : 0;
      for (int64_t i = 0; i < e.groups.count; ++i) {
        const float *weights = e.weights + row * e.pitch + i * GROUP, *slopes = e.slopes + row * e.pitch + i * GROUP;
        const int64_t to = e.token * pairs() + (i * steps() + row / 32) * 2 * TILE_WORDS + row % 32 / 2 * LANES;
        Floats slope[2][2];
#pragma GCC unroll 2
        for (int64_t v = 0; v < 2; ++v) {
          const Floats even = load_floats(weights + v * LANES) * gate[row], odd = load_floats(weights + e.pitch + v * LANES) * odd_gate;
          slope[0][v] = even * (load_floats(slopes + v * LANES) - delta[row]);
          slope[1][v] = both ? odd * (load_floats(slopes + e.pitch + v * LANES) - odd_delta) : Floats{};
          store_floats(weight_pairs + to + v * TILE_WORDS, pair_of_bf16(even, both ? odd : Floats{}));
          store_floats(slope_pairs + to + v * TILE_WORDS, pair_of_bf16(slope[0][v], slope[1][v]));
        }
        float* lines = slope_lines + (row / ROWS * GROUPS + i) * TILE_WORDS + row % ROWS * LANES;
        for (int64_t r = 0; r < 2; ++r) store_floats(lines + r * LANES, line_of_bf16(slope[r][0], slope[r][1]));
      }
    }
  }

  // A group's keys, zeros in place of those that are not seen: a gradient of 0 would not hide a NaN.
  const float* seen_keys(int64_t i, const float* from, uint32_t seen) const {
    float* to = seen_rows + i * KEY_TILES * TILE_WORDS;
    for (int64_t pair = 0; pair < 16; ++pair) {
      const uint32_t two = seen >> 2 * pair & 3;
      const Words mask = Words{} + ((two & 1 ? 0xffff : 0) | (two & 2 ? 0xffff0000 : 0));
      for (int64_t at = pair * LANES; at < KEY_TILES * TILE_WORDS; at += TILE_WORDS)
        store_floats(to + at, reinterpret_cast<Floats>(reinterpret_cast<Words>(load_floats(from + at)) & mask));
    }
    return to;
  }
  template <int COUNT> void add_to_queries(const float* const* key_rows, int64_t groups, int64_t pass, int64_t tile, float* to) const {
    typedef AmxBlock<1, COUNT> Tiles;
    const float* left = slope_lines + pass * GROUPS * TILE_WORDS;
    Tiles::load_rows(to + tile * 16, KEY_WIDTH);
    for (int64_t i = 0; i < groups; ++i) Tiles::multiply(left + i * TILE_WORDS, key_rows[i] + tile * TILE_WORDS);
    Tiles::store_rows(to + tile * 16, KEY_WIDTH);
  }
  void add_to_queries(const Keys& keys, const Entry& e) const {
    const float* key_rows[GROUPS];
    for (int64_t i = 0; i < e.groups.count; ++i) {
      const float* from = keys.rows + e.groups.index[i] * ROW_GROUP;
      const bool as_it_lies = e.groups.seen[i] == WHOLE || from[KEY_TILES * TILE_WORDS] != 0;
      key_rows[i] = as_it_lies ? from : seen_keys(i, from, e.groups.seen[i]);
    }
    for (int64_t pass = 0; pass < passes(); ++pass) {
      float* to = row_of_dq(e.token, pass * ROWS);
      int64_t tile = 0;
      for (; tile + 4 <= KEY_TILES; tile += 4) add_to_queries<4>(key_rows, e.groups.count, pass, tile, to);
      if (tile < KEY_TILES) add_to_queries<2>(key_rows, e.groups.count, pass, tile, to);
    }
  }

  // sums[chunk][feature][key] += turned rows times pairs, of each member's heads.
  template <int64_t CHUNKS>
  void add_to_keys(const Member* members, int64_t count, const float* turned_rows, const float* pairs_of, float* sums) const {
    const int64_t apart = steps() * 2 * TILE_WORDS;
    const auto right_of = [&](const Member& m) { return pairs_of + m.entry->token * pairs() + m.place * apart; };
    const auto guarded = [&](const Member& m) { return finite[m.entry->token] == 0 && m.entry->groups.seen[m.place] != WHOLE; };
    for (int64_t chunk = 0; chunk < CHUNKS; ++chunk) {
      float* to = sums + chunk * SQUARE;
      const auto left_of = [&](const Member& m) { return turned_rows + m.entry->token * turned(CHUNKS) + chunk * apart; };
      AmxBlock<2, 2>::load_rows(to, 32);
      for (int64_t i = 0; i < count; ++i) {
        if (guarded(members[i])) continue;
        const float *left = left_of(members[i]), *right = right_of(members[i]);
        for (int64_t at = 0; at < apart; at += 2 * TILE_WORDS) AmxBlock<2, 2>::multiply(left + at, right + at);
      }
      AmxBlock<2, 2>::store_rows(to, 32);
      for (int64_t i = 0; i < count; ++i)
        if (guarded(members[i])) tile_product_guarded<false>(left_of(members[i]), 2 * TILE_WORDS, right_of(members[i]), steps(), to);
    }
  }

  // The same of a whole range, where each entry has both groups: left operands, which come from far away, are loaded once for both.
  template <int64_t CHUNKS>
  void add_to_range(const Entry* entries, int64_t count, const float* turned_rows, const float* pairs_of, float* sums) const {
    typedef AmxBlock<1, 4> Tiles;
    const int64_t apart = 2 * TILE_WORDS;  // of steps
    for (int64_t tile = 0; tile < 2 * CHUNKS; ++tile) {
      float *to = sums + tile * SQUARE / 2, *second = to + CHUNKS * SQUARE;
      amx_load<0>(to, 128), amx_load<1>(to + 16, 128), amx_load<2>(second, 128), amx_load<3>(second + 16, 128);
      for (int64_t i = 0; i < count; ++i) {
        const float* left = turned_rows + entries[i].token * turned(CHUNKS) + tile / 2 * steps() * apart + tile % 2 * TILE_WORDS;
        const float* right = pairs_of + entries[i].token * pairs();
        for (int64_t step = 0; step < steps(); ++step) Tiles::multiply(left + step * apart, PairTiles{right + step * apart, steps() * apart});
      }
      amx_store<0>(to, 128), amx_store<1>(to + 16, 128), amx_store<2>(second, 128), amx_store<3>(second + 16, 128);
    }
  }
  // Two tiles of a group, and two of the next, `apart` floats on.
  struct PairTiles {
    const float* first;
    int64_t apart;
    template <int REGISTER> void load(int i) const { amx_load<REGISTER>(first + i / 2 * apart + i % 2 * TILE_WORDS, 64); }
  };
  bool is_simple(const Entry& e) const {
    return e.groups.count == GROUPS && (finite[e.token] != 0 || (e.groups.seen[0] == WHOLE && e.groups.seen[1] == WHOLE));
  }

  // What the entries of a range bring to the gradients. gates, deltas: [token][row].
  void add(const Keys& keys, const Entry* entries, int64_t count, const float* gates, const float* deltas) const {
    bool simple = true;
    for (int64_t i = 0; i < count; ++i) {
      narrow(entries[i], gates, deltas);
      add_to_queries(keys, entries[i]);
      simple = simple && is_simple(entries[i]);
    }
    if (simple) {
      const int64_t group = entries[0].groups.index[0];
      add_to_range<KEY_CHUNKS>(entries, count, queries_turned, slope_pairs, keys.key_sums + group * KEY_SUMS);
      add_to_range<VALUE_CHUNKS>(entries, count, douts_turned, weight_pairs, keys.value_sums + group * VALUE_SUMS);
      return;
    }
    each_group(entries, count, [&](int64_t group, const Member* members, int64_t some) {
      add_to_keys<KEY_CHUNKS>(members, some, queries_turned, slope_pairs, keys.key_sums + group * KEY_SUMS);
      add_to_keys<VALUE_CHUNKS>(members, some, douts_turned, weight_pairs, keys.value_sums + group * VALUE_SUMS);
    });
  }
};

#include "native_sparse_attention/amx_group_parts.h"
