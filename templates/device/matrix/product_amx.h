// CPU vocabulary: blocks of a matrix product of bf16 on AMX tiles, c[i][j] = sum over s of left(i, s) * right(s, j) in f32.
#pragma once
#include "device/matrix/amx.h"
$if arch.bf16_pairs
#include "device/matrix/pair_dot.h"
$end
#include "device/matrix/product_pack.h"

// A tile in memory: 16 lines of 16 words, two bf16 each, as amx_load takes it. Left operand: line i, word p holds (i, 2p) and (i, 2p + 1).
// Right operand: line p, word j holds (2p, j) and (2p + 1, j).
constexpr int64_t TILE_STEPS = 32, TILE_WORDS = 256;
static_assert(LANES == 16, "a line of a tile is one vector");

static inline void store_tile(float* to, Floats (&lines)[LANES], bool turned) {
  if (turned) transpose(lines);
  for (int line = 0; line < LANES; ++line) store_floats(to + line * LANES, lines[line]);
}

// The bits of `count` bf16, at most 32, zeros after them.
static inline Floats load_line(const bfloat16* from, int64_t count) {
  Floats bits = {};
  if (count >= TILE_STEPS)
    __builtin_memcpy(&bits, from, sizeof bits);
  else
    __builtin_memcpy(&bits, from, 2 * count);
  return bits;
}
// The same of 16, each in a word.
static inline Words load_words(const bfloat16* from, int64_t count) {
  Halfwords bits = {};
  if (count >= LANES)
    __builtin_memcpy(&bits, from, sizeof bits);
  else
    __builtin_memcpy(&bits, from, 2 * count);
  return __builtin_convertvector(bits, Words);
}

// Two bf16 a word, the first in its lower half; rounded half up.
static inline Floats pair_of_bf16(Floats lower, Floats upper) {
  const Words low = reinterpret_cast<Words>(lower) + 0x8000, high = reinterpret_cast<Words>(upper) + 0x8000;
  return reinterpret_cast<Floats>(low >> 16 | (high & 0xffff0000));
}
// The bits of 32 bf16 side by side; rounded half up, or by the processor's instruction to nearest even.
static inline Floats line_of_bf16(Floats first, Floats second) {
#ifdef __AVX512BF16__
  Floats line;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(line) : "v"(first), "v"(second));
  return line;
#else
  const Words words[2] = {(reinterpret_cast<Words>(first) + 0x8000) >> 16, (reinterpret_cast<Words>(second) + 0x8000) >> 16};
  const Halfwords halves[2] = {__builtin_convertvector(words[0], Halfwords), __builtin_convertvector(words[1], Halfwords)};
  return __builtin_bit_cast(Floats, halves);
#endif
}

// Of lines whose steps lie side by side, `stride` apart: 16 lines, TILE_STEPS steps; zeros past `count` lines and `steps`.
static inline void pack_lines(float* to, const bfloat16* from, int64_t stride, int64_t count, int64_t steps, bool turned) {
  Floats lines[LANES];
  for (int64_t line = 0; line < LANES; ++line) {
    lines[line] = line < count ? load_line(from + line * stride, steps) : Floats{};
  }
  store_tile(to, lines, turned);
}

// Of steps whose lines lie side by side, `stride` apart: the same tile turned.
static inline void pack_steps(float* to, const bfloat16* from, int64_t stride, int64_t count, int64_t steps, bool turned) {
  Floats lines[LANES];
  for (int64_t pair = 0; pair < LANES; ++pair) {
    const auto step = [&](int64_t s) { return count > 0 && s < steps ? load_words(from + s * stride, count) : Words{}; };
    lines[pair] = reinterpret_cast<Floats>(step(2 * pair) | step(2 * pair + 1) << 16);
  }
  store_tile(to, lines, turned);
}

// An operand: SIDE_BY_SIDE says that an element's steps lie side by side (at i * stride + s), else elements do (at s * stride + i).
// Tiles of a left operand have its rows as lines, those of a right one its pairs of steps.
template <bool SIDE_BY_SIDE, bool LEFT>
struct AmxOperand {
  const bfloat16* data;
  int64_t stride;

  // Elements [first_element, + elements) in tiles of 16, steps [first, + steps): tile (t, s) at (s * tiles + t) * TILE_WORDS.
  void pack(float* to, int64_t first_element, int64_t elements, int64_t tiles, int64_t first, int64_t steps) const {
    for (int64_t step = 0; step < steps; step += TILE_STEPS)
      for (int64_t tile = 0; tile < tiles; ++tile, to += TILE_WORDS) {
        const int64_t element = first_element + 16 * tile, count = elements - 16 * tile;
        if constexpr (SIDE_BY_SIDE)
          pack_lines(to, data + element * stride + first + step, stride, count, steps - step, !LEFT);
        else
          pack_steps(to, data + (first + step) * stride + element, stride, count, steps - step, LEFT);
      }
  }
  // Part `part` of `parts` of what pack() will read.
  void prefetch(int64_t first_element, int64_t elements, int64_t first, int64_t steps, int64_t part, int64_t parts) const {
    if constexpr (SIDE_BY_SIDE)
      prefetch_part(data + first_element * stride + first, stride, elements, 2 * steps, part, parts);
    else
      prefetch_part(data + first * stride + first_element, stride, steps, 2 * elements, part, parts);
  }
};

// c[32][32] (+)= the product of two rows of tiles with two columns of tiles, `blocks` of TILE_STEPS steps each; left tiles lie `left_pitch`
// floats apart from one block to the next. Rows of c lie C_ROW floats apart.
$if arch.bf16_pairs
// By dot products of pairs, on processors that have no more: the first `rows_wanted` rows, rounded up to eight, whose sums stay in registers.
template <int64_t C_ROW = 32>
static __attribute__((noinline)) void amx_tile_product(const float* left, int64_t left_pitch, const float* right, int64_t blocks, float* c, bool fresh,
                                                       int64_t rows_wanted = 32) {
  for (int64_t first = 0; first < rows_wanted; first += 8) {
    Floats sum[8][2];
#pragma GCC unroll 16
    for (int row = 0; row < 8; ++row)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) sum[row][half] = fresh ? Floats{} : load_floats(c + (first + row) * C_ROW + 16 * half);
    const float *rows = left + first * LANES, *columns = right;
    for (int64_t block = 0; block < blocks; ++block, rows += left_pitch, columns += 2 * TILE_WORDS)
#pragma GCC unroll 2
      for (int64_t pair = 0; pair < LANES; ++pair) {
        const Words one = reinterpret_cast<Words>(load_floats(columns + pair * LANES));
        const Words other = reinterpret_cast<Words>(load_floats(columns + TILE_WORDS + pair * LANES));
#pragma GCC unroll 16
        for (int row = 0; row < 8; ++row) {
          const Words factor = reinterpret_cast<Words>(splat(rows[row * LANES + pair]));
          add_pairs(sum[row][0], factor, one), add_pairs(sum[row][1], factor, other);
        }
      }
#pragma GCC unroll 16
    for (int row = 0; row < 8; ++row)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) store_floats(c + (first + row) * C_ROW + 16 * half, sum[row][half]);
  }
}
$else
template <int64_t C_ROW = 32>
static inline void amx_tile_product(const float* left, int64_t left_pitch, const float* right, int64_t blocks, float* c, bool fresh) {
  constexpr int64_t LINE = 64, C_LINE = 4 * C_ROW, LOWER = 16 * C_ROW;  // LINE and C_LINE: bytes
  if (fresh) {
    amx_zero<0>(), amx_zero<1>(), amx_zero<2>(), amx_zero<3>();
  } else {
    amx_load<0>(c, C_LINE), amx_load<1>(c + 16, C_LINE), amx_load<2>(c + LOWER, C_LINE), amx_load<3>(c + LOWER + 16, C_LINE);
  }
  for (int64_t block = 0; block < blocks; ++block, left += left_pitch, right += 2 * TILE_WORDS) {
    amx_load<4>(left, LINE);
    amx_load<5>(left + TILE_WORDS, LINE);
    amx_load<6>(right, LINE);
    amx_load<7>(right + TILE_WORDS, LINE);
    amx_multiply<0, 4, 6>();
    amx_multiply<1, 4, 7>();
    amx_multiply<2, 5, 6>();
    amx_multiply<3, 5, 7>();
  }
  amx_store<0>(c, C_LINE), amx_store<1>(c + 16, C_LINE), amx_store<2>(c + LOWER, C_LINE), amx_store<3>(c + LOWER + 16, C_LINE);
}
$end

// c += the same product, where a 0 of the left operand (GUARD_LEFT), or of the right one, brings nothing, not even NaN.
template <bool GUARD_LEFT, int64_t C_ROW = 32>
static __attribute__((noinline)) void tile_product_guarded(const float* left, int64_t left_pitch, const float* right, int64_t blocks, float* c) {
  for (int64_t block = 0; block < blocks; ++block, left += left_pitch, right += 2 * TILE_WORDS)
    for (int64_t i = 0; i < 32; ++i)
      for (int64_t s = 0; s < TILE_STEPS; ++s) {
        const float factor = to_float(reinterpret_cast<const bfloat16*>(left + i * LANES)[s]);
        if (GUARD_LEFT && factor == 0) continue;
        for (int64_t j = 0; j < 32; ++j) {
          const float* pair = right + j / 16 * TILE_WORDS + s / 2 * LANES + j % 16;
          const float element = to_float(reinterpret_cast<const bfloat16*>(pair)[s % 2]);
          if (GUARD_LEFT || element != 0) c[i * C_ROW + j] += factor * element;
        }
      }
}

// As multiply_block (product.h) with tiles of 32 x 32. Scratch, in floats: 16 a step of DEPTH for each 32 rows of the block; 16 DEPTH;
// then 1024 for each tile of the block if steps > DEPTH, else 1024. DEPTH % 32 == 0.
template <int64_t DEPTH, class Left, class Right, class Finish>
static void multiply_block_amx(const Left& left, const Right& right, int64_t rows, int64_t columns, int64_t steps, float* scratch,
                               const Finish& finish) {
  const int64_t tiles = (rows + 31) / 32, panels = (columns + 31) / 32, blocks = steps > DEPTH ? (steps + DEPTH - 1) / DEPTH : 1;
  float *const a = scratch, *const b = a + tiles * 16 * DEPTH, *const c = b + 16 * DEPTH;
  amx_configure();
  for (int64_t block = 0, first = 0; block < blocks; ++block, first += DEPTH) {
    const int64_t count = least_of(DEPTH, steps - first), step_tiles = (count + TILE_STEPS - 1) / TILE_STEPS;
    left.pack(a, 0, rows, 2 * tiles, first, count);
    for (int64_t panel = 0; panel < panels; ++panel) {
      right.pack(b, 32 * panel, columns - 32 * panel, 2, first, count);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        if (panel + 1 < panels) right.prefetch(32 * (panel + 1), least_of(32, columns - 32 * (panel + 1)), first, count, tile, tiles);
        float* to = c + (blocks > 1 ? (panel * tiles + tile) * 1024 : 0);
        amx_tile_product(a + 2 * tile * TILE_WORDS, 2 * tiles * TILE_WORDS, b, step_tiles, to, block == 0);
        if (block + 1 == blocks) finish(32 * tile, 32 * panel, least_of(32, rows - 32 * tile), least_of(32, columns - 32 * panel), to);
      }
    }
  }
  amx_release();
}
