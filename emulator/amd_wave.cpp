// Words of a wave of AMD's GPUs, lane by lane, from the "AMD Instinct MI200" and "RDNA3" instruction set architecture documents:
// DS_BPERMUTE_B32, and a comparison's mask. A wave of 64 is two warps that may have parted: what one of them reads of the other is
// undefined.
// Matrix products: V_MFMA_F32_16X16X16_F16 and _BF16 ("AMD Instinct MI300" ISA, "Matrix Arithmetic Instructions") and
// V_WMMA_F32_16X16X16_F16 and _BF16 ("RDNA3" and "RDNA4" ISA, "Wave Matrix Multiply Accumulate"), registers and lanes as ROCm's "AMD Matrix
// Instruction Calculator" lists them for gfx90a, gfx942, gfx1100 and gfx1200.
#include <fmt/format.h>

#include "emulator/block.hpp"
#include "emulator/numbers.hpp"

namespace ejk::simt {

void permute_wave(Warp& warp, int first) {
  for (auto* thread : warp.lanes) {
    if (!thread || !thread->live) continue;
    const int from = thread->operands.operand - first;
    const auto* source = from >= 0 && from < warp_size ? warp.lanes[from] : nullptr;
    thread->results.words[0] = source && source->live ? source->operands.words[0] : undefined_word;
  }
}

void ballot_wave(Warp& warp, int first, int wave) {
  constexpr std::uint64_t of_warp = 0xffffffff;
  std::uint64_t mask = wave == widest_wave ? ~(of_warp << first) : 0;  // of the other half, whatever it has; here all
  for (int lane = 0; lane < warp_size; ++lane)
    if (const auto* thread = warp.lanes[lane]; thread && thread->live && thread->operands.words[0])
      mask |= std::uint64_t{1} << (first + lane);
  for (auto* thread : warp.lanes)
    if (thread && thread->live) thread->results.ballot = mask;
}

namespace {

// Of CDNA's, gfx90a reads denormal halves as 0 (PyTorch, "Numerical accuracy", on MFMA of AMD Instinct MI200): so does this model.
float element(Wait word, SimtMatrix layout, std::uint32_t pair, int which) {
  const auto bits = static_cast<std::uint16_t>(pair >> (16 * which));
  if (word == Wait::multiply_half && layout == SimtMatrix::cdna && (bits & 0x7c00) == 0) return 0;
  return word == Wait::multiply_half ? half_value(bits) : bfloat16_value(bits);
}

// Element j of a lane's operand is k number ...; of A in row lane % 16, of B in column lane % 16.
int k_of(SimtMatrix layout, int lane, int j) {
  switch (layout) {
    case SimtMatrix::cdna:
      return 4 * (lane / 16) + j;
    case SimtMatrix::rdna3:
      return j;  // both halves of the wave have all
    case SimtMatrix::rdna4:
      return 8 * (j / 4) + 4 * (lane / 16) + j % 4;
  }
  return 0;
}

// Register i of a lane's sums is in row ..., column lane % 16.
int row_of(SimtMatrix layout, int lane, int i) {
  switch (layout) {
    case SimtMatrix::cdna:
      return 4 * (lane / 16) + i;
    case SimtMatrix::rdna3:
      return 2 * i + lane / 16;
    case SimtMatrix::rdna4:
      return 8 * (lane / 16) + i;
  }
  return 0;
}

// RDNA 3 reads an operand from either half of the wave: both must have the same.
std::string differing_halves(const std::vector<Thread*>& lanes) {
  for (std::size_t lane = 16; lane < lanes.size(); ++lane)
    for (int i = 0; i < 16; ++i)
      if (lanes[lane]->operands.words[i] != lanes[lane - 16]->operands.words[i])
        return fmt::format("a matrix product whose operand {} differs between lanes {} and {}, which must have the same", i < 8 ? 'a' : 'b',
                           lane - 16, lane);
  return {};
}

std::string multiply(Wait word, const std::vector<Thread*>& lanes) {
  const auto layout = lanes[0]->operands.layout;
  if (layout == SimtMatrix::rdna3)
    if (auto wrong = differing_halves(lanes); !wrong.empty()) return wrong;
  float a[16][16], b[16][16], products[16][16] = {};
  for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane)
    for (int j = 0; j < 2 * operand_words(layout); ++j) {
      const auto& given = lanes[static_cast<std::size_t>(lane)]->operands;
      a[lane % 16][k_of(layout, lane, j)] = element(word, layout, given.words[j / 2], j % 2);
      b[k_of(layout, lane, j)][lane % 16] = element(word, layout, given.words[8 + j / 2], j % 2);
    }
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 16; ++column) products[row][column] += a[row][k] * b[k][column];
  for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane)
    for (int i = 0; i < sums_a_lane(layout); ++i) {
      auto& thread = *lanes[static_cast<std::size_t>(lane)];
      thread.results.c[i] = thread.operands.c[i] + products[row_of(layout, lane, i)][lane % 16];
    }
  return {};
}

std::string exchange(const std::vector<Thread*>& lanes) {
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    auto* thread = lanes[lane];
    if (!thread || !thread->live) continue;
    const auto from = lane ^ static_cast<std::size_t>(thread->operands.operand);
    const auto* source = from < lanes.size() ? lanes[from] : nullptr;
    thread->results.words[0] = source && source->live ? source->operands.words[0] : undefined_word;
  }
  return {};
}

}  // namespace

std::string compute_wave(Wait word, const std::vector<Thread*>& lanes) {
  return word == Wait::exchange_wave ? exchange(lanes) : multiply(word, lanes);
}

}  // namespace ejk::simt
