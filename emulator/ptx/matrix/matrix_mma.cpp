// mma.sync of shapes m16n8, and of float64: D = A B + C within a warp. (PTX ISA, "Matrix fragments for mma.m16n8k16" and its neighbours)
#include <cmath>

#include <fmt/format.h>

#include "emulator/ptx/matrix/matrix_decode.hpp"

namespace ejk::ptx {
namespace {

struct MmaForm {
  FactorType a = FactorType::bf16, b = FactorType::bf16;
  Sums sums = Sums::single;
  int bricks = 2;            // A has 2 registers each, B one
  int rows = 16, depth = 4;  // of float64
};

void run_mma(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp, instruction);
  const auto& form = *static_cast<const MmaForm*>(instruction.extra.get());
  const int sums = registers_per_group(form.sums);
  const Slot *d = instruction.slots.data(), *a = d + sums, *b = a + 2 * form.bricks;
  MatrixProduct product;
  product.a_format = form.a;
  product.b_format = form.b;
  product.bricks = form.bricks;
  for (int i = 0; i < 2 * form.bricks; ++i) product.a[i] = warp.lanes_of<std::uint32_t>(a[i]);
  alignas(64) std::uint32_t of_b[2][lanes];
  for (int i = 0; i < form.bricks; ++i) std::memcpy(of_b[i], warp.lanes_of<std::uint32_t>(b[i]), sizeof of_b[i]);
  product.b = of_b[0];
  product.file = warp.file.get();
  product.c = b + form.bricks;
  product.d = d;
  multiply_sums(form.sums, product);
}

// Lane 4 g + t: element i of A is [g + 8 (i % 2)][t + 4 (i / 2)] ([g][t], where A has 8 rows), of B [t + 4 i][g], of C
// [g + 8 (i / 2)][2 t + i % 2].
void run_mma_of_doubles(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp, instruction);
  const auto& form = *static_cast<const MmaForm*>(instruction.extra.get());
  const int halves = form.rows / 8, steps = form.depth / 4, sums = 2 * halves;
  const Slot *d = instruction.slots.data(), *a = d + sums, *b = a + halves * steps, *c = b + steps;
  double results[4][lanes];
  for (int i = 0; i < sums; ++i) {
    const auto* before = warp.lanes_of<double>(c[i]);
    for (int lane = 0; lane < lanes; ++lane) {
      const int g = lane / 4, column = 2 * (lane % 4) + i % 2;
      double sum = before[lane];
      for (int k = 0; k < form.depth; ++k)
        sum = std::fma(warp.lanes_of<double>(a[i / 2 + k / 4 * halves])[4 * g + k % 4], warp.lanes_of<double>(b[k / 4])[4 * column + k % 4],
                       sum);
      results[i][lane] = sum;
    }
  }
  for (int i = 0; i < sums; ++i) std::memcpy(warp.lanes_of<double>(d[i]), results[i], sizeof results[i]);
}

void require_mma_parts(const Parsed& parsed, int d, int a, int b) {
  require_operands(parsed, 4);
  require_parts(parsed, 0, static_cast<std::size_t>(d));
  require_parts(parsed, 1, static_cast<std::size_t>(a));
  require_parts(parsed, 2, static_cast<std::size_t>(b));
  require_parts(parsed, 3, static_cast<std::size_t>(d));
}

void decode_mma_of_doubles(const Parsed& parsed, const MatrixShape& shape, Instruction& made) {
  const bool small = shape.m == 8 && shape.k == 4;
  if (shape.n != 8 || (!small && (shape.m != 16 || (shape.k != 4 && shape.k != 8 && shape.k != 16))))
    refuse_matrix(parsed, fmt::format("the shape m{}n{}k{}", shape.m, shape.n, shape.k));
  if (parsed.has("rz") || parsed.has("rm") || parsed.has("rp")) refuse_matrix(parsed, "rounding other than to the nearest");
  const int halves = shape.m / 8, steps = shape.k / 4;
  require_mma_parts(parsed, 2 * halves, halves * steps, steps);
  MmaForm form;
  form.rows = shape.m;
  form.depth = shape.k;
  made.extra = std::make_shared<MmaForm>(form);
  made.run = run_mma_of_doubles;
}

}  // namespace

void decode_mma(const Parsed& parsed, Instruction& made) {
  const auto shape = matrix_shape(parsed);
  const auto& words = parsed.words;
  if (!shape || words.size() < 8 || parsed.words[1] != "sync") refuse_matrix(parsed, "this form");  // .sp: sparse
  if (!parsed.has("row") || !parsed.has("col")) refuse_matrix(parsed, "an order other than .row.col");
  const auto d = words[words.size() - 4], a = words[words.size() - 3], b = words[words.size() - 2], c = words[words.size() - 1];
  if (a == "f64") return decode_mma_of_doubles(parsed, *shape, made);
  MmaForm form;
  form.a = matrix_format(parsed, a);
  form.b = matrix_format(parsed, b);
  form.sums = matrix_sums(parsed, d);
  const bool integer = form.sums == Sums::integer || form.sums == Sums::saturated;
  if (c != d) refuse_matrix(parsed, "a type of C other than D's");
  const int width = elements_per_word(form.a);
  if (is_integer(form.a) != integer || is_integer(form.b) != integer || elements_per_word(form.b) != width || (width == 2 && a != b))
    refuse_matrix(parsed, "this choice of types");
  form.bricks = shape->k / (4 * width);
  if (shape->m != 16 || shape->n != 8 || (form.bricks != 1 && form.bricks != 2) || shape->k % (4 * width) != 0)
    refuse_matrix(parsed, fmt::format("the shape m{}n{}k{}", shape->m, shape->n, shape->k));
  require_mma_parts(parsed, registers_per_group(form.sums), 2 * form.bricks, form.bricks);
  made.extra = std::make_shared<MmaForm>(form);
  made.run = run_mma;
}

}  // namespace ejk::ptx
