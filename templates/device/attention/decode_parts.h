// GPU vocabulary of decoding: parts of rows that several blocks computed, and their sum.
#pragma once
#include "device/attention/row_end.h"
#include "device/tile/part_sum.h"

// Where parts of the ROWS rows of streams wait. A block has at most two: of a stream that an earlier one began, and of one that it begins
// itself and a later one goes on with.
template <int D, int ROWS> struct PageParts {
  float* outputs;      // [2 blocks][ROWS][D], relative to the references of
  Softmax* softmaxes;  // [2 blocks][ROWS]

  static int slot(int block, bool begins) { return 2 * block + begins; }
  float* row(int slot, int row) const { return outputs + (int64_t{slot} * ROWS + row) * D; }
  Softmax& softmax(int slot, int row) const { return softmaxes[slot * ROWS + row]; }

  static constexpr int PACKS = (D / 4 + WARP - 1) / WARP;  // of 4 features, a lane
  static constexpr int AT_ONCE = 4;                        // parts on their way together
  using Sum = PartSum<PACKS>;

  // Of every `step`-th part of a row from number `first` on; blocks [begins, last] have parts.
  Sum sum(int row_number, int first, int step, int begins, int last) const {
    Sum all{{LOWEST, 0}, {}};
#pragma unroll 1
    for (int part = first; begins + part <= last; part += step * AT_ONCE) {
      Softmax one[AT_ONCE];
      Pack<float, 4> x[AT_ONCE][PACKS];
#pragma unroll
      for (int u = 0; u < AT_ONCE; ++u) {
        const int block = begins + part + u * step, from = slot(block, block == begins);
        one[u] = block <= last ? softmax(from, row_number) : Softmax{LOWEST, 0};
#pragma unroll
        for (int i = 0; i < PACKS; ++i) {
          const int feature = (lane() + WARP * i) * 4;
          x[u][i] = block <= last && feature < D ? load_pack<4>(row(from, row_number) + feature) : Pack<float, 4>{};
        }
      }
      all.add(one, x);
    }
    return all;
  }

  // By block `block` of those of WARPS warps for the stream: rows, of those below `rows`, to the outputs; row 0 is query head `head`.
  // 2^row_warps_log warps share a row's parts, or if there are few one has them all. Every thread must call it.
  template <class Element, int WARPS>
  void add_up(const RowEnd& row_end, int block, int row_warps_log, int rows, const Cut& cut, int head, float v_factor) const {
    __shared__ Softmax softmaxes_of_warps[WARPS];
    __shared__ float sums[WARPS][PACKS * WARP * 4];
    const bool few = PACKS == 1 && cut.last_block - cut.first_block < AT_ONCE;
    const int row_warps = 1 << row_warps_log, number = warp() & (row_warps - 1), first_warp = warp() - number;
    const int row_number = (block * WARPS + warp()) >> row_warps_log, feature = (number * WARP + lane()) * 4;
    Sum all{{LOWEST, 0}, {}};
    if (row_number < rows && (!few || number == 0)) all = sum(row_number, number, few ? 1 : row_warps, cut.first_block, cut.last_block);
    if (!few) {
      if (lane() == 0) softmaxes_of_warps[warp()] = all.softmax;
#pragma unroll
      for (int i = 0; i < PACKS; ++i)
        store_pack(&sums[warp()][(lane() + WARP * i) * 4], Pack<float, 4>{{all.x[i][0], all.x[i][1], all.x[i][2], all.x[i][3]}});
      sync_block();
    }
    if (row_number >= rows || number * WARP * 4 >= D) return;
    if (!few) {
      all = {{LOWEST, 0}, {}};
#pragma unroll 2
      for (int w = first_warp; w < first_warp + row_warps; ++w) add(all, softmaxes_of_warps[w], load_pack<4>(&sums[w][feature]));
    }
    const Softmax end = row_end.with_sinks(all.softmax, head + row_number);
    const float factor = scale_of(all.softmax, end) * v_factor;
    if (feature < D) row_end.store<Element>(cut.sequence, head + row_number, feature, all.x[0], factor);
    if (feature == 0) row_end.store_lse(cut.sequence, head + row_number, end);
  }

 private:
  // Adds a part to the first pack.
  static void add(Sum& all, const Softmax& part, const Pack<float, 4>& x) {
    const float reference = larger_of(all.softmax.reference, part.reference);
    const float kept = factor_of(all.softmax, reference), factor = factor_of(part, reference);
    all.softmax = {reference, all.softmax.sum * kept + part.sum * factor};
#pragma unroll
    for (int k = 0; k < 4; ++k) all.x[0][k] = all.x[0][k] * kept + x.at[k] * factor;
  }
};
