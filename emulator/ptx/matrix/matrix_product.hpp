// One warp's product of matrices, D [16][8 n] = A [16][depth] B [depth][8 n] + C, with A, C and D as mma.sync's and wgmma's fragments.
#pragma once
#include <cstdint>

#include "emulator/ptx/program.hpp"

namespace ejk::ptx {

enum class FactorType : std::uint8_t { bf16, f16, tf32, e4m3, e5m2, s8, u8 };

constexpr int elements_per_word(FactorType format) {
  return format == FactorType::tf32 ? 1 : format == FactorType::bf16 || format == FactorType::f16 ? 2 : 4;
}
constexpr bool is_integer(FactorType format) { return format == FactorType::s8 || format == FactorType::u8; }

// What the factors are made of, so that registers and tiles in shared memory are one: pieces of 16 bytes.
// Along the depth (depth-major): a brick is 8 rows of A, or 8 columns of B, each with 16 bytes of neighbours along the depth; a register of
// a fragment is one: lane 4 g + t holds word t of row g.
// Across it (rows; 16-bit elements and 16 depths alone): each piece is 8 rows of A, or 8 columns of B, of one depth.
struct MatrixProduct {
  FactorType a_format = FactorType::bf16, b_format = FactorType::bf16;
  bool integer = false;   // sums are int32, else float32
  bool negative = false;  // A's sign is turned
  bool a_rows = false, b_rows = false;
  int bricks = 2;  // along the depth: 2 are 32 bytes of it
  int groups = 1;  // of 8 columns
  // Brick i + 2 j: rows 8 i .. of A, bytes 16 j .. of their depth. a_rows: a[i] has rows 8 i .. 8 i + 7 of the 16 depths.
  const std::uint32_t* a[4] = {};
  // By groups: `bricks` bricks, or 16 depths.
  const std::uint32_t* b = nullptr;
  // Registers of 32 lanes: element e of group j, 4 j + e, is that of row g + 8 (e / 2), column 8 j + 2 t + e % 2. c: null is zero.
  char* file = nullptr;
  const Slot* c = nullptr;
  const Slot* d = nullptr;

  int depth() const { return 4 * bricks * elements_per_word(a_format); }
};

void multiply(const MatrixProduct& product);

// The same by the code for a kind of CPU: for tests.
enum class VectorWidth { bytes16, bytes32, bytes64 };
bool has_width(VectorWidth width);
void multiply_with(VectorWidth width, const MatrixProduct& product);

}  // namespace ejk::ptx
