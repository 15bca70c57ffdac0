// Products of 16 x 16 tiles by a whole wave, on the matrix instructions of AMD's GPUs: MFMA (CDNA) and WMMA (RDNA 3 and 4). Needs
// device/gpu.h before it. Every lane of the wave must call these words together.
//
//   c += a b:  c[16 rows][16 columns] in f32, a[16 rows][16 k] and b[16 k][16 columns] of half or bfloat16
//   a lane's column of c, row of a and column of b: matrix_column(), its number modulo 16
//   sync_wave()  what the wave's lanes wrote to shared memory before it they read after it
//   part()  parts what comes before it from what comes after: the compiler mixes no instructions of theirs, and needs fewer registers
//   hold(x)  x, sums or an int, is computed here, not later, until when what it is made of would take registers; nor is what is made of it
//   computed earlier
//   uniform(x)  x, which is the same in all lanes: the compiler is told, and needs scalar registers for it
//   its rows of c, SUMS of them: matrix_row(i); its k of a and b, K_LANE in a row: from first_k() on
//
// Rows and columns are as the instructions have them ("AMD Matrix Instruction Calculator", ROCm, for V_MFMA_F32_16X16X16_F16 and
// V_WMMA_F32_16X16X16_F16 of each arch). The order of k is the same for a and b, which is all that a sum over k asks for: RDNA 4 itself
// gives the lanes k by fours in turn, here each has eight in a row.
#pragma once
constexpr int SUMS = 256 / WAVE;
constexpr int K_LANE = ${arch.generation == 'cdna' ? 4 : arch.generation == 'rdna3' ? 16 : 8};
constexpr int OPERAND_WORDS = K_LANE / 2;

struct Sums { float at[SUMS]; };
struct Operand { uint32_t words[OPERAND_WORDS]; };

static inline int wave() { return thread_x() / WAVE; }
static inline int wave_lane() { return thread_x() % WAVE; }
static inline int matrix_column() { return wave_lane() % 16; }
static inline int first_k() { return ${arch.generation == 'rdna3' ? '0' : 'K_LANE * (wave_lane() / 16)'}; }
static inline int matrix_row(int i) {
  return ${arch.generation == 'rdna3' ? '2 * i + wave_lane() / 16' : 'SUMS * (wave_lane() / 16) + i'};
}

$if arch.platform == 'hip'
#include "device/matrix/hip_matrix.h"
$else
#include "device/matrix/simt_matrix.h"
$end

// Over the lanes that share a column of c; each gets it.
static inline float largest_of_column(float x) {
  for (int mask = 16; mask < WAVE; mask *= 2) x = larger_of(x, exchange_wave(x, mask));
  return x;
}
static inline float sum_of_column(float x) {
  for (int mask = 16; mask < WAVE; mask *= 2) x += exchange_wave(x, mask);
  return x;
}

// Of a tile in shared memory whose rows are this operand's rows (a) or columns (b): `tile` is the address of its first row's first k, rows
// are `pitch` bytes apart. Addresses are multiples of 8.
static inline Operand load_operand(SharedPointer tile, int pitch) {
  const SharedPointer from = tile + matrix_column() * pitch + first_k() * 2;
  Operand x;
#pragma unroll
  for (int i = 0; i < OPERAND_WORDS; i += 2) {
    const Pack<uint32_t, 2> two = load_pack<2>(static_cast<const uint32_t*>(shared_at<uint32_t>(from + 4 * i)));
    x.words[i] = two.at[0], x.words[i + 1] = two.at[1];
  }
  return x;
}

// c as the operand b of another product, its rows summed over.
template <class T> static inline Operand operand_of(const Sums& c) {
  Operand x;
$if arch.generation == 'rdna3'
  // A lane has every other row, the lane 16 further the others; both need all.
  const bool upper = wave_lane() >= 16;
#pragma unroll
  for (int i = 0; i < OPERAND_WORDS; i += 2) {
    const uint32_t mine = pack_pair<T>(c.at[i], c.at[i + 1]), other = exchange_wave(mine, 16);
    const uint32_t even = upper ? other : mine, odd = upper ? mine : other;
    x.words[i] = (even & 0xffff) | odd << 16;
    x.words[i + 1] = even >> 16 | (odd & 0xffff0000);
  }
$else
#pragma unroll
  for (int i = 0; i < OPERAND_WORDS; ++i) x.words[i] = pack_pair<T>(c.at[2 * i], c.at[2 * i + 1]);
$end
  return x;
}
