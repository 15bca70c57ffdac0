// GPU vocabulary of ragged_page_attention: what a block's warps have of a stream becomes one, and goes to `out`, or waits for other blocks' parts. Part of a
// template: see stream_rows.h.
#pragma once

using Parts = PageParts<D, BLOCK_ROWS>;

// Shared memory: stages, sums of outputs, softmaxes.
constexpr int PITCH = COLUMNS + 4;
constexpr int SUMS = STAGES * STAGE_BYTES, SOFTMAXES = SUMS + WARPS * ROWS * PITCH * 4;
static_assert(GUARDED_PITCH == PITCH && SUB <= 32, "the warps' sums lend their place");
static_assert(SOFTMAXES + WARPS * ROWS * 8 == ${shared}, "the spec has another size");

struct Merge {
  char* memory;
  const RowEnd& ends;
  const Parts& parts;

  Softmax* softmax(int w) const { return reinterpret_cast<Softmax*>(memory + SOFTMAXES) + w * ROWS; }
  float* sums(int w) const { return reinterpret_cast<float*>(memory + SUMS) + w * ROWS * PITCH; }

  void put_softmax(const PerRow& reference, const PerRow& sum) const {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float all = sum_of_fragment_column(sum[r][i]);
        if (lane() < 4) softmax(warp())[r * 8 + lane() * 2 + i] = {reference[r][i], all};
      }
  }
  void put_outputs(const Outputs& o, int first) const {
#pragma unroll
    for (int f = 0; f < SLICES; ++f)
#pragma unroll
      for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (f * 16 >= first && f * 16 < first + COLUMNS)
            sums(warp())[(r * 8 + lane() % 4 * 2 + i % 2) * PITCH + f * 16 - first + CachedTile::output_feature(i / 2)] = o[f][r][i];
  }

  // Features [first, first + COLUMNS) of all rows of the stream; to `slot`, or if that is negative to out.
  void store(int first, const StreamPlace& place, int key_warps, int slot, float v_scale) const {
    constexpr int PACKS = COLUMNS / 4;
    const int row_warps = quotient(WARPS, key_warps);
#pragma unroll 1
    for (int i = thread_x(); i < place.count * PACKS; i += THREADS) {
      const int row = i / PACKS, column = i % PACKS * 4;
      if (first + column >= D) continue;
      Softmax all{LOWEST, 0};
      float x[4] = {};
#pragma unroll 1
      for (int w = row / ROWS; w < WARPS; w += row_warps) all.reference = larger_of(all.reference, softmax(w)[row % ROWS].reference);
#pragma unroll 1
      for (int w = row / ROWS; w < WARPS; w += row_warps) {
        const Softmax one = softmax(w)[row % ROWS];
        const float factor = factor_of(one, all.reference);
        const Pack<float, 4> part = load_pack<4>(sums(w) + row % ROWS * PITCH + column);
        all.sum += one.sum * factor;
#pragma unroll
        for (int k = 0; k < 4; ++k) x[k] += part.at[k] * factor;
      }
      if (slot >= 0) {
        store_pack(parts.row(slot, row) + first + column, Pack<float, 4>{{x[0], x[1], x[2], x[3]}});
        if (first + column == 0) parts.softmax(slot, row) = all;
        continue;
      }
      const int token = place.token_of(row), head = place.head_of(row);
      const Softmax end = ends.with_sinks(all, head);
      ends.store<Element>(token, head, first + column, x, scale_of(all, end) * v_scale);
      if (first + column == 0) ends.store_lse(token, head, end);
    }
  }

  // Every thread must call it.
  void run(const Outputs& o, const PerRow& reference, const PerRow& sum, const StreamPlace& place, int key_warps, int slot, float v_scale) const {
    put_softmax(reference, sum);
#pragma unroll
    for (int first = 0; first < D16; first += COLUMNS) {
      put_outputs(o, first);
      sync_block();
      store(first, place, key_warps, slot, v_scale);
      sync_block();
    }
  }
};

// A row whose parts a warp has added up.
static inline void finish_row(const Parts::Sum& all, const StreamPlace& place, int row, const RowEnd& ends, float v_factor) {
  const int token = place.token_of(row), head = place.head_of(row);
  const Softmax end = ends.with_sinks(all.softmax, head);
  const float factor = scale_of(all.softmax, end) * v_factor;
#pragma unroll
  for (int i = 0; i < Parts::PACKS; ++i) {
    const int feature = (lane() + WARP * i) * 4;
    if (feature < D) ends.store<Element>(token, head, feature, all.x[i], factor);
  }
  if (lane() == 0) ends.store_lse(token, head, end);
}

// What the warps of a block have of a row, by a warp.
template <int COUNT> static inline Parts::Sum sum_of_warps(const Softmax (&softmaxes)[COUNT], const float (&sums)[COUNT][Parts::PACKS * WARP * 4]) {
  Parts::Sum all{{LOWEST, 0}, {}};
#pragma unroll 1
  for (int w = 0; w < COUNT; ++w) {
    const Softmax one[1] = {softmaxes[w]};
    Pack<float, 4> x[1][Parts::PACKS];
#pragma unroll
    for (int i = 0; i < Parts::PACKS; ++i) x[0][i] = load_pack<4>(&sums[w][(lane() + WARP * i) * 4]);
    all.add(one, x);
  }
  return all;
}

// Tokens [first, tokens) are of no sequence: out is 0, lse -inf. By all blocks of a launch.
template <int ALL_THREADS> static inline void zero_rest(const RowEnd& ends, int first, int tokens) {
  const int warps = grid_x() * (ALL_THREADS / WARP);
#pragma unroll 1
  for (int64_t row = int64_t{first} * ends.heads + block_x() * (ALL_THREADS / WARP) + warp(); row < int64_t{tokens} * ends.heads; row += warps) {
    const int token = static_cast<int>(row / ends.heads), head = static_cast<int>(row % ends.heads);
    const float zeros[4] = {};
#pragma unroll 1
    for (int feature = lane() * 4; feature < D; feature += WARP * 4) ends.store<Element>(token, head, feature, zeros, 0);
    if (lane() == 0) ends.store_lse(token, head, Softmax{LOWEST, 0});
  }
}
