// GPU vocabulary of the attention kernels: rows whose keys several blocks share, each of which computes a part; and their sum.
#pragma once
#include "device/attention/attention_rows.h"
#include "device/attention/row_scale.h"
#include "device/tile/part_sum.h"

// What the sinks of a row add to its softmax.
static __attribute__((noinline)) Softmax sinks_of(const View& aux, int64_t type, int head, int64_t heads) {
  const Sinks sinks(aux, type, head, heads);
  Softmax all{LOWEST, 0};
#pragma unroll 1
  for (int64_t i = 0; i < sinks.count; ++i) all.reference = larger_of(all.reference, sinks[i] * LOG2_E);
#pragma unroll 1
  for (int64_t i = 0; i < sinks.count; ++i) all.sum += exp2_of(sinks[i] * LOG2_E - all.reference);
  return all;
}
static inline Softmax with_sinks(const Softmax& row, const View& aux, int64_t type, int head, int64_t heads) {
  if (!is_given(aux)) return row;
  const Softmax sinks = sinks_of(aux, type, head, heads);
  const float reference = larger_of(row.reference, sinks.reference);
  return {reference, row.sum * factor_of(row, reference) + sinks.sum * factor_of(sinks, reference)};
}

// Where the parts wait: `parts` of each of the `rows` rows of a stream. FEATURES % 4 == 0.
template <int FEATURES> struct RowParts {
  float* outputs;      // [streams][parts][rows][FEATURES], relative to the references of
  Softmax* softmaxes;  // [streams][parts][rows]
  int parts, rows;

  int64_t index(int64_t stream, int part, int row) const { return (stream * parts + part) * rows + row; }

  static constexpr int PACKS = (FEATURES / 4 + WARP - 1) / WARP;  // of 4 features, a lane
  static constexpr int AT_ONCE = PACKS == 1 ? 9 : 4;              // parts on their way together
  using Sum = PartSum<PACKS>;

  // Of every `step`-th part of a row, from number `first` on; by a warp.
  Sum sum(int64_t stream, int row, int first, int step) const {
    Sum all{{LOWEST, 0}, {}};
#pragma unroll 1
    for (int part = first; part < parts; part += step * AT_ONCE) {
      Softmax one[AT_ONCE];
      Pack<float, 4> x[AT_ONCE][PACKS];
#pragma unroll
      for (int u = 0; u < AT_ONCE; ++u) {
        const bool exists = part + u * step < parts;
        const int64_t at = index(stream, part + u * step, row);
        one[u] = exists ? softmaxes[at] : Softmax{LOWEST, 0};
#pragma unroll
        for (int i = 0; i < PACKS; ++i) {
          const int feature = (lane() + WARP * i) * 4;
          x[u][i] = exists && feature < FEATURES ? load_pack<4>(outputs + at * FEATURES + feature) : Pack<float, 4>{};
        }
      }
      all.add(one, x);
    }
    return all;
  }

  // What the warps of a block have summed.
  template <int WARPS> struct Shared {
    Softmax softmax[WARPS];
    float sums[WARPS][PACKS * WARP * 4];
  };

  // All parts of rows, by a block of WARPS warps, of which ROW_WARPS share a row: block number x has the WARPS / ROW_WARPS rows from x
  // times that on. `finish(row, softmax, feature, values)` is called by one thread for every 2 features. Every thread must call this.
  template <int ROW_WARPS, int WARPS, class Finish> void add_up(Shared<WARPS>& shared, int64_t stream, int block, Finish finish) const {
    const int number = warp() % ROW_WARPS, first = warp() - number, row = block * (WARPS / ROW_WARPS) + warp() / ROW_WARPS;
    if (row < rows) {
      const Sum mine = sum(stream, row, number, ROW_WARPS);
      if (lane() == 0) shared.softmax[warp()] = mine.softmax;
#pragma unroll
      for (int i = 0; i < PACKS; ++i)
        store_pack(&shared.sums[warp()][(lane() + WARP * i) * 4],
                   Pack<float, 4>{{mine.x[i][0], mine.x[i][1], mine.x[i][2], mine.x[i][3]}});
    }
    sync_block();
    if (row >= rows) return;
    Softmax all{LOWEST, 0};
    float factor[ROW_WARPS];
#pragma unroll
    for (int w = 0; w < ROW_WARPS; ++w) all.reference = larger_of(all.reference, shared.softmax[first + w].reference);
#pragma unroll
    for (int w = 0; w < ROW_WARPS; ++w) {
      factor[w] = factor_of(shared.softmax[first + w], all.reference);
      all.sum += shared.softmax[first + w].sum * factor[w];
    }
#pragma unroll 1
    for (int feature = (number * WARP + lane()) * 2; feature < FEATURES; feature += ROW_WARPS * WARP * 2) {
      float pair[2] = {};
#pragma unroll
      for (int w = 0; w < ROW_WARPS; ++w)
#pragma unroll
        for (int k = 0; k < 2; ++k) pair[k] += shared.sums[first + w][feature + k] * factor[w];
      finish(row, all, feature, pair);
    }
  }
};
