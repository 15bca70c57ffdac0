// Words of a warp, lane by lane, from the PTX ISA (8.8): "shfl.sync", "Matrix fragments for mma.m16n8k16", "ldmatrix".
#include <cstring>

#include "emulator/block.hpp"
#include "emulator/numbers.hpp"

namespace ejk::simt {
namespace {

const Operands& operands_of(const Warp& warp, int lane) { return warp.lanes[lane]->operands; }

// A lane outside the warp is oneself (the clamp of shfl.sync); the value of one that has exited is undefined.
void shuffle(Wait word, Warp& warp) {
  for (int lane = 0; lane < warp_size; ++lane) {
    auto* thread = warp.lanes[lane];
    if (!thread || !thread->live) continue;
    const int operand = thread->operands.operand;
    int from = word == Wait::shuffle_xor ? lane ^ operand : word == Wait::shuffle_down ? lane + operand : operand & (warp_size - 1);
    if (from < 0 || from >= warp_size) from = lane;
    const auto* source = warp.lanes[from];
    thread->results.words[0] = source && source->live ? source->operands.words[0] : undefined_word;
  }
}

void vote(Warp& warp) {
  bool any = false;
  for (const auto* lane : warp.lanes)
    if (lane && lane->live) any = any || lane->operands.words[0] != 0;
  for (auto* lane : warp.lanes)
    if (lane && lane->live) lane->results.words[0] = any;
}

float element(Wait word, std::uint32_t pair, int which) {
  const auto bits = static_cast<std::uint16_t>(pair >> (16 * which));
  return word == Wait::mma_half ? half_value(bits) : bfloat16_value(bits);
}

// Lane 4 g + t: register i of A holds row g + 8 (i % 2), columns 2 t + 8 (i / 2) and the next; of B rows 2 t + 8 i and the next, column g;
// element i of C row g + 8 (i / 2), column 2 t + i % 2.
void multiply(Wait word, Warp& warp) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < warp_size; ++lane) {
    const auto& given = operands_of(warp, lane);
    const int g = lane / 4, t = lane % 4;
    for (int which = 0; which < 2; ++which) {
      for (int i = 0; i < 4; ++i) a[g + 8 * (i % 2)][2 * t + 8 * (i / 2) + which] = element(word, given.words[i], which);
      for (int i = 0; i < 2; ++i) b[2 * t + 8 * i + which][g] = element(word, given.words[4 + i], which);
    }
  }
  float products[16][8] = {};
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) products[row][column] += a[row][k] * b[k][column];
  for (int lane = 0; lane < warp_size; ++lane)
    for (int i = 0; i < 4; ++i)
      warp.lanes[lane]->results.c[i] = operands_of(warp, lane).c[i] + products[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
}

// Lane l brings the address of row l % 8 of matrix l / 8; register i of lane 4 g + t gets elements [g][2 t] and [g][2 t + 1] of matrix i,
// or of its transpose.
void load_matrices(bool transposed, Warp& warp) {
  std::uint16_t matrices[4][8][8];
  for (int lane = 0; lane < warp_size; ++lane) std::memcpy(matrices[lane / 8][lane % 8], operands_of(warp, lane).row, 16);
  for (int lane = 0; lane < warp_size; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int g = lane / 4, t = lane % 4;
      const auto& matrix = matrices[i];
      const std::uint32_t low = transposed ? matrix[2 * t][g] : matrix[g][2 * t];
      const std::uint32_t high = transposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
      warp.lanes[lane]->results.words[i] = high << 16 | low;
    }
}

}  // namespace

void compute_results(Wait word, Warp& warp) {
  switch (word) {
    case Wait::any_in_warp:
      return vote(warp);
    case Wait::shuffle_xor:
    case Wait::shuffle_down:
    case Wait::shuffle:
      return shuffle(word, warp);
    case Wait::mma_half:
    case Wait::mma_bfloat16:
      return multiply(word, warp);
    case Wait::load_matrices:
    case Wait::load_matrices_transposed:
      return load_matrices(word == Wait::load_matrices_transposed, warp);
    default:
      return;
  }
}

}  // namespace ejk::simt
