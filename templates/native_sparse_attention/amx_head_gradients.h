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
constexpr int64_t JOINED = TOKENS / 2;
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

// The rows of heads as left operands of products whose results are rows: [pass][chunk] tiles.
template <int64_t FEATURES> static void pack_heads(const Element* from, int64_t stride, int64_t heads, int64_t passes, float* lines) {
  constexpr int64_t CHUNKS = (FEATURES + 31) / 32;
  for (int64_t pass = 0; pass < passes; ++pass)
    for (int64_t c = 0; c < CHUNKS; ++c)
      pack_lines(lines + (pass * CHUNKS + c) * TILE_WORDS, from + pass * ROWS * stride + 32 * c, stride, smaller(16, heads - pass * ROWS),
                 smaller(32, FEATURES - 32 * c), false);
}

// Half a chunk of features of 16 heads, and of 16 others or none, as a left operand whose rows are features; `heads`: tiles of pack_heads.
static void turn_heads(const float* heads, const float* others, int64_t half, float* to) {
  Floats lines[LANES];
  for (int64_t pair = 0; pair < LANES; ++pair) {
    const float* from = pair < 8 ? heads : others;
    const auto row = [&](int64_t i) { return from ? load_words(reinterpret_cast<const Element*>(from + i % ROWS * 16 + 8 * half), 16) : Words{}; };
    lines[pair] = reinterpret_cast<Floats>(row(2 * pair) | row(2 * pair + 1) << 16);
  }
  store_tile(to, lines, true);
}

// The query heads of some tokens, 16 a pass; rows past a token's last are zeros. Products whose results are keys' take steps of 32 heads: of one
// token, or where a token has one pass of two tokens, which makes these products half as many.
struct HeadGradients {
  float *queries, *douts;                // [token][pass][chunk] tiles
  float *queries_turned, *douts_turned;  // [token, or two][chunk][step][2] tiles
  float* finite;                         // [token]: 1 where queries and douts are finite
  float* dq;                             // [token][row][KEY_WIDTH]
  float *weight_pairs, *slope_pairs;     // [entry, or two][GROUPS][step][2] tiles: right operands, whose lines are pairs of heads
  float* slope_lines;                    // [pass][GROUPS] tiles, of a token
  float* seen_rows;                      // [KEY_TILES] tiles for each of GROUPS: keys of a group, zeros for those that are not seen
  float* joined;                         // [JOINED] tiles of two tokens that do not lie side by side
  int64_t heads, rows;                   // of a token

  int64_t passes() const { return rows / ROWS; }
  int64_t steps() const { return (rows + 31) / 32; }
  bool shares() const { return rows == ROWS; }                                           // two tokens have a step together
  int64_t shared(int64_t tokens) const { return shares() ? (tokens + 1) / 2 : tokens; }  // so many of them, or tokens
  int64_t pairs() const { return GROUPS * steps() * 2 * TILE_WORDS; }                    // of one
  int64_t turned(int64_t chunks) const { return chunks * steps() * 2 * TILE_WORDS; }

  // Own floats of so many rows a token.
  static int64_t scratch(int64_t rows, int64_t tokens) {
    const int64_t of_steps = (KEY_CHUNKS + VALUE_CHUNKS + 2 * GROUPS) * ((rows + 31) / 32) * 2 * TILE_WORDS;
    const int64_t of_rows = (KEY_CHUNKS + VALUE_CHUNKS) * 16 + KEY_WIDTH;
    return tokens * (rows * of_rows + 16) + (rows == ROWS ? (tokens + 1) / 2 : tokens) * of_steps +
           ((rows / ROWS + KEY_TILES) * GROUPS + JOINED) * TILE_WORDS;
  }
  void lay_out(float* next, int64_t tokens) {
    const auto take = [&](int64_t count) { return next += count, next - count; };
    queries = take(tokens * passes() * KEY_CHUNKS * TILE_WORDS), douts = take(tokens * passes() * VALUE_CHUNKS * TILE_WORDS);
    queries_turned = take(shared(tokens) * turned(KEY_CHUNKS)), douts_turned = take(shared(tokens) * turned(VALUE_CHUNKS));
    dq = take(tokens * rows * KEY_WIDTH);
    weight_pairs = take(shared(tokens) * pairs()), slope_pairs = take(shared(tokens) * pairs());
    slope_lines = take(passes() * GROUPS * TILE_WORDS), seen_rows = take(GROUPS * KEY_TILES * TILE_WORDS), joined = take(JOINED * TILE_WORDS);
    finite = take(tokens * 16);
    __builtin_memset(weight_pairs, 0, 2 * shared(tokens) * pairs() * sizeof(float));
    __builtin_memset(slope_lines, 0, passes() * GROUPS * TILE_WORDS * sizeof(float));
  }
  void start() { amx_configure(); }
  void end() { amx_release(); }

  float* row_of_dq(int64_t token, int64_t row) const { return dq + (token * rows + row) * KEY_WIDTH; }

  void load(int64_t token, const Element* query, int64_t query_stride, const Element* dout, int64_t dout_stride) {
    float *q = queries + token * passes() * KEY_CHUNKS * TILE_WORDS, *d = douts + token * passes() * VALUE_CHUNKS * TILE_WORDS;
    pack_heads<D>(query, query_stride, heads, passes(), q);
    pack_heads<DV>(dout, dout_stride, heads, passes(), d);
    finite[token] = are_finite(q, passes() * KEY_CHUNKS * TILE_WORDS) && are_finite(d, passes() * VALUE_CHUNKS * TILE_WORDS) ? 1 : 0;
    __builtin_memset(row_of_dq(token, 0), 0, rows * KEY_WIDTH * sizeof(float));
  }
  // After all tokens have been loaded.
  void turn(int64_t tokens) {
    turn<KEY_CHUNKS>(tokens, queries, queries_turned);
    turn<VALUE_CHUNKS>(tokens, douts, douts_turned);
  }
  template <int64_t CHUNKS> void turn(int64_t tokens, const float* lines, float* to) const {
    const int64_t last = shares() ? tokens : passes();  // of those that follow one another in steps
    for (int64_t token = 0; token < (shares() ? 1 : tokens); ++token)
      for (int64_t i = 0; i < last; i += 2)
        for (int64_t tile = 0; tile < 2 * CHUNKS; ++tile) {
          const float* from = lines + ((token * passes() + i) * CHUNKS + tile / 2) * TILE_WORDS;
          const int64_t at = shares() ? i / 2 * 2 * CHUNKS + tile : ((token * CHUNKS + tile / 2) * steps() + i / 2) * 2 + tile % 2;
          turn_heads(from, i + 1 < last ? from + CHUNKS * TILE_WORDS : nullptr, tile % 2, to + at * TILE_WORDS);
        }
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

  // Weights of an entry, times the gates, and gradients of scores as operands, the right ones as half `half` of number `at`. Pairs of rows past
  // the last stay the zeros of lay_out().
  void narrow(const Entry& e, const float* gates, const float* deltas, int64_t at, int64_t half) const {
    const float *gate = gates + e.token * rows, *delta = deltas + e.token * rows;
    for (int64_t row = 0; row < heads; row += 2) {
      const bool both = row + 1 < heads;
      const float odd_gate = both ? gate[row + 1] : 0, odd_delta = both ? delta[row + 1] : 0;
      for (int64_t i = 0; i < e.groups.count; ++i) {
        const float *weights = e.weights + row * e.pitch + i * GROUP, *slopes = e.slopes + row * e.pitch + i * GROUP;
        const int64_t to = pairs_at(at, e.groups.index[i], half, row);
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

  int64_t pairs_at(int64_t at, int64_t group, int64_t half, int64_t row) const {
    return at * pairs() + (group % GROUPS * steps() + row / 32) * 2 * TILE_WORDS + (row % 32 / 2 + half * (ROWS / 2)) * LANES;
  }
  // Zeros as a half's right operands of a group.
  void clear_pairs(int64_t at, int64_t group, int64_t half) const {
    for (int64_t row = 0; row < heads; row += 2)
      for (int64_t v = 0, to = pairs_at(at, group, half, row); v < 2; ++v, to += TILE_WORDS)
        store_floats(weight_pairs + to, Floats{}), store_floats(slope_pairs + to, Floats{});
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

  // A step of heads, or those of a token that has several passes: of an entry, and of another one or none (-1).
  struct Shared {
    int64_t first, second;
  };
  bool is_finite(const Entry& e) const { return finite[e.token] != 0; }
  // Of entries whose numbers are finite: two whose heads have been turned together, else the next two that are left.
  int64_t share_steps(const Entry* entries, int64_t count, Shared* to) const {
    int64_t some = 0, alone = -1;
    for (int64_t i = 0; i < count; ++i) {
      if (!is_finite(entries[i])) continue;
      if (!shares()) {
        to[some++] = {i, -1};
      } else if (i + 1 < count && entries[i].token % 2 == 0 && entries[i + 1].token == entries[i].token + 1 && is_finite(entries[i + 1])) {
        to[some++] = {i, i + 1}, ++i;
      } else if (alone < 0) {
        alone = some, to[some++] = {i, -1};
      } else {
        to[alone].second = i, alone = -1;
      }
    }
    return some;
  }

  // A tile of turned heads of a token and of another one, or zeros: as it lies, or made at `to`.
  template <int64_t CHUNKS> const float* turned_tile(const float* turned_rows, const Entry* entries, const Shared& of, int64_t tile, float* to) const {
    const int64_t token = entries[of.first].token, other = of.second < 0 ? -1 : entries[of.second].token;
    const float* from = turned_rows + token / 2 * turned(CHUNKS) + tile * TILE_WORDS;
    if (token % 2 == 0 && other == token + 1) return from;
    const float* others = other < 0 ? nullptr : turned_rows + other / 2 * turned(CHUNKS) + tile * TILE_WORDS + other % 2 * 8;
    typedef float Half __attribute__((vector_size(32)));
    for (int64_t line = 0; line < TILE_WORDS; line += LANES) {
      Half halves[2] = {};
      __builtin_memcpy(&halves[0], from + line + token % 2 * 8, sizeof(Half));
      if (others) __builtin_memcpy(&halves[1], others + line, sizeof(Half));
      __builtin_memcpy(to + line, halves, sizeof halves);
    }
    return to;
  }

  // Two tiles of a group, and two of the next, `apart` floats on.
  struct PairTiles {
    const float* first;
    int64_t apart;
    template <int REGISTER> void load(int i) const { amx_load<REGISTER>(first + i / 2 * apart + i % 2 * TILE_WORDS, 64); }
  };
  // sums[group][chunk][feature][key] += turned rows times pairs, of both groups of a range: left operands, which come from far away, are loaded
  // once for both.
  template <int64_t CHUNKS>
  void add_to_keys(const Entry* entries, const Shared* shared, int64_t count, const float* turned_rows, const float* pairs_of, float* sums) const {
    typedef AmxBlock<1, 4> Tiles;
    const int64_t apart = 2 * TILE_WORDS;  // of steps
    for (int64_t tile = 0; tile < 2 * CHUNKS; ++tile) {
      float *to = sums + tile * SQUARE / 2, *second = to + CHUNKS * SQUARE;
      const float* left[TOKENS];
      for (int64_t i = 0; i < count; ++i)
        left[i] = shares() ? turned_tile<CHUNKS>(turned_rows, entries, shared[i], tile, joined + i * TILE_WORDS)
                           : turned_rows + entries[shared[i].first].token * turned(CHUNKS) + tile / 2 * steps() * apart + tile % 2 * TILE_WORDS;
      amx_load<0>(to, 128), amx_load<1>(to + 16, 128), amx_load<2>(second, 128), amx_load<3>(second + 16, 128);
      for (int64_t i = 0; i < count; ++i) {
        const float* right = pairs_of + i * pairs();
        for (int64_t step = 0; step < steps(); ++step) Tiles::multiply(left[i] + step * apart, PairTiles{right + step * apart, steps() * apart});
      }
      amx_store<0>(to, 128), amx_store<1>(to + 16, 128), amx_store<2>(second, 128), amx_store<3>(second + 16, 128);
    }
  }
  // The same of one group.
  template <int64_t CHUNKS>
  void add_to_group(const Entry* entries, const Shared* shared, int64_t count, const float* turned_rows, const float* pairs_of, float* sums) const {
    typedef AmxBlock<1, 2> Tiles;
    const int64_t apart = 2 * TILE_WORDS;
    for (int64_t tile = 0; tile < 2 * CHUNKS; ++tile) {
      float* to = sums + tile * SQUARE / 2;
      Tiles::load_rows(to, 32);
      for (int64_t i = 0; i < count; ++i) {
        const float* left = shares() ? turned_tile<CHUNKS>(turned_rows, entries, shared[i], tile, joined + i * TILE_WORDS)
                                     : turned_rows + entries[shared[i].first].token * turned(CHUNKS) + tile / 2 * steps() * apart + tile % 2 * TILE_WORDS;
        for (int64_t step = 0; step < steps(); ++step) Tiles::multiply(left + step * apart, pairs_of + i * pairs() + step * apart);
      }
      Tiles::store_rows(to, 32);
    }
  }

  // What an entry brings to keys, where its numbers may not be finite: keys that it does not see stay as they are.
  template <int64_t CHUNKS> void add_guarded(const Entry& e, int64_t place, const float* turned_rows, const float* pairs_of, float* sums) const {
    for (int64_t chunk = 0; chunk < CHUNKS; ++chunk) {
      const float* left = turned_rows + e.token * turned(CHUNKS) + chunk * steps() * 2 * TILE_WORDS;
      if (shares()) {
        for (int64_t i = 0; i < 2; ++i) turned_tile<CHUNKS>(turned_rows, &e, {0, -1}, 2 * chunk + i, joined + i * TILE_WORDS);
        left = joined;
      }
      const float* right = pairs_of + e.groups.index[place] % GROUPS * steps() * 2 * TILE_WORDS;
      float* to = sums + e.groups.index[place] * CHUNKS * SQUARE + chunk * SQUARE;
      if (e.groups.seen[place] == WHOLE)
        amx_tile_product(left, 2 * TILE_WORDS, right, steps(), to, false);
      else
        tile_product_guarded<false>(left, 2 * TILE_WORDS, right, steps(), to);
    }
  }
  void add_alone(const Keys& keys, const Entry& e, const float* gates, const float* deltas) const {
    narrow(e, gates, deltas, 0, 0);
    add_to_queries(keys, e);
    for (int64_t i = 0; i < e.groups.count; ++i) {
      if (shares()) clear_pairs(0, e.groups.index[i], 1);
      add_guarded<KEY_CHUNKS>(e, i, queries_turned, slope_pairs, keys.key_sums);
      add_guarded<VALUE_CHUNKS>(e, i, douts_turned, weight_pairs, keys.value_sums);
    }
  }

  // Operands of a half, zeros for groups of the range that the entry lacks; of the groups it has, a bit each.
  uint32_t narrow_half(const Keys& keys, const Entry& e, const float* gates, const float* deltas, int64_t at, int64_t half) const {
    uint32_t has = 0;
    narrow(e, gates, deltas, at, half);
    add_to_queries(keys, e);
    for (int64_t i = 0; i < e.groups.count; ++i) has |= 1u << e.groups.index[i] % GROUPS;
    for (int64_t group = 0; group < GROUPS; ++group)
      if (!(has >> group & 1)) clear_pairs(at, group, half);
    return has;
  }

  // What the entries of a range bring to the gradients. gates, deltas: [token][row].
  void add(const Keys& keys, const Entry* entries, int64_t count, const float* gates, const float* deltas) const {
    for (int64_t i = 0; i < count; ++i)
      if (!is_finite(entries[i])) add_alone(keys, entries[i], gates, deltas);
    Shared shared[TOKENS];
    const int64_t some = share_steps(entries, count, shared);
    if (some == 0) return;
    uint32_t has = 0;
    for (int64_t i = 0; i < some; ++i) {
      has |= narrow_half(keys, entries[shared[i].first], gates, deltas, i, 0);
      if (shared[i].second >= 0)
        has |= narrow_half(keys, entries[shared[i].second], gates, deltas, i, 1);
      else if (shares())
        for (int64_t group = 0; group < GROUPS; ++group) clear_pairs(i, group, 1);
    }
    const int64_t first = entries[0].groups.index[0] / GROUPS * GROUPS;
    if (has == 3) {
      add_to_keys<KEY_CHUNKS>(entries, shared, some, queries_turned, slope_pairs, keys.key_sums + first * KEY_SUMS);
      add_to_keys<VALUE_CHUNKS>(entries, shared, some, douts_turned, weight_pairs, keys.value_sums + first * VALUE_SUMS);
    } else {
      const int64_t group = has == 1 ? 0 : 1, of_pairs = group * steps() * 2 * TILE_WORDS;
      add_to_group<KEY_CHUNKS>(entries, shared, some, queries_turned, slope_pairs + of_pairs, keys.key_sums + (first + group) * KEY_SUMS);
      add_to_group<VALUE_CHUNKS>(entries, shared, some, douts_turned, weight_pairs + of_pairs, keys.value_sums + (first + group) * VALUE_SUMS);
    }
  }
};

#include "native_sparse_attention/amx_group_parts.h"
