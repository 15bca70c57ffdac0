// Words of a wave of AMD's GPUs, lane by lane, from the "AMD Instinct MI200" and "RDNA3" instruction set architecture documents:
// DS_BPERMUTE_B32, and a comparison's mask. A wave of 64 is two warps that may have parted: what one of them reads of the other is
// undefined.
#include "simt/block.hpp"
#include "simt/numbers.hpp"

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

}  // namespace ejk::simt
