// What decoders of matrix instructions share: parts of decode_matrix, shapes, formats, and the product with each kind of sums.
#pragma once
#include <optional>

#include "emulator/ptx/machine.hpp"
#include "emulator/ptx/matrix/matrix_product.hpp"

namespace ejk::ptx {

void decode_mma(const Parsed& parsed, Instruction& made);
void decode_wgmma(const Parsed& parsed, Instruction& made);
void decode_matrix_move(const Parsed& parsed, Instruction& made);  // ldmatrix, stmatrix, movmatrix

struct MatrixShape {
  int m = 0, n = 0, k = 0;
};
std::optional<MatrixShape> matrix_shape(const Parsed& parsed);
// Throws std::runtime_error, as all of these do, for a type that is none of a factor's.
FactorType matrix_format(const Parsed& parsed, std::string_view type);
[[noreturn]] void refuse_matrix(const Parsed& parsed, std::string_view why);
void require_operands(const Parsed& parsed, std::size_t count);
void require_parts(const Parsed& parsed, std::size_t operand, std::size_t count);

// Throws Fault: .aligned instructions are for all lanes of a warp.
void require_whole_warp(const Warp& warp, const Instruction& instruction);

// Sums in registers: a float32 or int32 an element; two float16 of a row in a register, of which a group of 8 columns has two.
enum class Sums : std::uint8_t { single, half, integer, saturated };
Sums matrix_sums(const Parsed& parsed, std::string_view type);
constexpr int registers_per_group(Sums sums) { return sums == Sums::half ? 2 : 4; }
// `product`'s slots c and d are those of such registers. Half sums are float32 within one product and rounded once.
void multiply_sums(Sums sums, MatrixProduct product);

}  // namespace ejk::ptx
