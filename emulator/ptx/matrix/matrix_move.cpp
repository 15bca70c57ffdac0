// ldmatrix, stmatrix and movmatrix: matrices of 8 x 8 elements of 16 bits. Lane 4 g + t of a register holds elements [g][2 t] and [g][2 t +
// 1], so that its 32 lanes are the matrix, row by row.
#include <fmt/format.h>

#include "emulator/ptx/matrix/matrix_decode.hpp"

namespace ejk::ptx {
namespace {

constexpr std::size_t matrix_row = 16, matrix_bytes = 128;

// The matrix whose rows lie there, transposed.
void transpose_rows(const char* const* rows, char* to) {
  using Row = std::uint16_t __attribute__((vector_size(16)));
  Row from[8], pairs[8], quads[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&from[i], rows[i], sizeof from[i]);
  for (int i = 0; i < 4; ++i) {  // rows i and i + 4 interleaved, thrice over: a perfect shuffle of all 64
    pairs[2 * i] = __builtin_shufflevector(from[i], from[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
    pairs[2 * i + 1] = __builtin_shufflevector(from[i], from[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (int i = 0; i < 4; ++i) {
    quads[2 * i] = __builtin_shufflevector(pairs[i], pairs[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
    quads[2 * i + 1] = __builtin_shufflevector(pairs[i], pairs[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (int i = 0; i < 4; ++i) {
    from[2 * i] = __builtin_shufflevector(quads[i], quads[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
    from[2 * i + 1] = __builtin_shufflevector(quads[i], quads[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  std::memcpy(to, from, matrix_bytes);
}

void transpose_matrix(const char* from, char* to) {
  const char* rows[8];
  for (int i = 0; i < 8; ++i) rows[i] = from + matrix_row * static_cast<std::size_t>(i);
  transpose_rows(rows, to);
}

char* shared_row(Block& block, std::uint32_t address) {
  if (address % matrix_row == 0 && address + matrix_row <= block.shared.size()) return block.shared.data() + address;
  return block.shared_at(address, matrix_row, matrix_row);
}

// Where rows of matrices lie: lane 8 i + r has the address of row r of matrix i. Instruction::width tells the kind of address.
enum MatrixAddress { shared32, shared64, generic64 };

void find_rows(Warp& warp, const Instruction& instruction, Slot address, int count, char** rows) {
  for (int lane = 0; lane < 8 * count; ++lane) {
    if (instruction.width == shared32)
      rows[lane] = shared_row(*warp.block, warp.lanes_of<std::uint32_t>(address)[lane] + static_cast<std::uint32_t>(instruction.offset));
    else if (instruction.width == shared64)
      rows[lane] = shared_row(*warp.block, static_cast<std::uint32_t>(warp.lanes_of<std::uint64_t>(address)[lane] +
                                                                      static_cast<std::uint64_t>(instruction.offset)));
    else
      rows[lane] = generic_at(warp, lane, warp.lanes_of<std::uint64_t>(address)[lane] + static_cast<std::uint64_t>(instruction.offset),
                              matrix_row, matrix_row);
  }
}

template <bool TRANSPOSED>
void run_ldmatrix(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp, instruction);
  const int count = instruction.number;
  char* rows[lanes];
  find_rows(warp, instruction, instruction.slots[static_cast<std::size_t>(count)], count, rows);
  for (int i = 0; i < count; ++i) {
    char* to = warp.lanes_of<char[4]>(instruction.slots[static_cast<std::size_t>(i)])[0];
    if constexpr (TRANSPOSED)
      transpose_rows(rows + 8 * i, to);
    else
      for (int row = 0; row < 8; ++row) std::memcpy(to + matrix_row * static_cast<std::size_t>(row), rows[8 * i + row], matrix_row);
  }
}

template <bool TRANSPOSED>
void run_stmatrix(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp, instruction);
  const int count = instruction.number;
  char* rows[lanes];
  find_rows(warp, instruction, instruction.slots[0], count, rows);
  for (int i = 0; i < count; ++i) {
    const char* from = warp.lanes_of<char[4]>(instruction.slots[static_cast<std::size_t>(1 + i)])[0];
    alignas(16) char turned[matrix_bytes];
    if constexpr (TRANSPOSED) {
      transpose_matrix(from, turned);
      from = turned;
    }
    for (int row = 0; row < 8; ++row) std::memcpy(rows[8 * i + row], from + matrix_row * static_cast<std::size_t>(row), matrix_row);
  }
}

void run_movmatrix(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp, instruction);
  alignas(16) char turned[matrix_bytes];
  transpose_matrix(warp.lanes_of<char[4]>(instruction.slots[1])[0], turned);
  std::memcpy(warp.lanes_of<char[4]>(instruction.slots[0]), turned, matrix_bytes);
}

}  // namespace

void decode_matrix_move(const Parsed& parsed, Instruction& made) {
  if (!parsed.has("m8n8") || parsed.type() != "b16") refuse_matrix(parsed, "a shape or type other than .m8n8 of .b16");
  require_operands(parsed, 2);
  const bool transposed = parsed.has("trans");
  if (parsed.words.front() == "movmatrix") {
    made.run = run_movmatrix;
    return;
  }
  made.number = parsed.has("x4") ? 4 : parsed.has("x2") ? 2 : 1;
  const bool loads = parsed.words.front() == "ldmatrix";
  require_parts(parsed, loads ? 0 : 1, static_cast<std::size_t>(made.number));
  const auto& address = parsed.operands[loads ? 1 : 0];
  if (address.kind != OperandKind::address) refuse_matrix(parsed, "an operand in the place of the address that is none");
  made.offset = address.offset;
  const bool shared = parsed.has("shared") || parsed.has("shared::cta");
  if (!shared && !address.wide) refuse_matrix(parsed, "a generic address of 32 bits");
  made.width = !shared ? generic64 : address.wide ? shared64 : shared32;
  if (loads)
    made.run = transposed ? run_ldmatrix<true> : run_ldmatrix<false>;
  else
    made.run = transposed ? run_stmatrix<true> : run_stmatrix<false>;
}

}  // namespace ejk::ptx
