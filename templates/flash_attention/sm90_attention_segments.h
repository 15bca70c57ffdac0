// Hopper vocabulary of the attention kernels: segment ids. A launch before the kernel's looks at the keys' ids by steps; tiles then begin and end
// with steps that hold a visible pair, and steps of one segment need no look at single keys. Ids that lie in order hide little within steps.
#pragma once
#include "device/sm90/sm90_attention_tiles.h"
#include "device/sm90/sm90_segment_range.h"
#include "device/sm90/sm90_uniform.h"

// A call's ids. Keys' are copied, in whole steps of KEYS, in the order in which the lanes of a warpgroup's product want them: of 16 keys first those
// of lane 0 of four (0, 1, 8, 9), then of lane 1 (2, 3, 10, 11) and so on; with -1 for keys of no segment.
template <int KEYS> struct Segments {
  const View &queries, &keys;
  int32_t *copies, *ranges;  // of keys; by step: least, largest, padded, nothing
  int steps;                 // of a row of the batch

  int query(int batch, int token) const { return static_cast<const int32_t*>(queries.data)[batch * queries.strides[0] + token]; }
  int key(int batch, int token) const { return static_cast<const int32_t*>(keys.data)[batch * keys.strides[0] + token]; }

  // By a warp: a step of a row of the batch, `count` keys long.
  void look_at(int batch, int step, int count) const {
    SegmentRange range;
    const int64_t number = int64_t{batch} * steps + step;
#pragma unroll
    for (int i = lane(); i < KEYS; i += WARP) {
      const int token = step * KEYS + i, id = token < count ? key(batch, token) : -1;
      range.add(id);
      copies[number * KEYS + i / 16 * 16 + i % 8 / 2 * 4 + i % 16 / 8 * 2 + i % 2] = id < 0 ? -1 : id;
    }
    range = SegmentRange::of(range);
    if (lane() == 0) store_pack(ranges + number * 4, Pack<int32_t, 4>{{range.least, range.largest, range.padded, 0}});
  }

  // A tile's steps, by a warp: only those between which a pair is visible, and whole ones of one segment, the first of such in a row.
  void trim(AttentionTile& tile, int seeing) const {
    SegmentRange rows;
#pragma unroll 1
    for (int row = lane(); row < seeing; row += WARP) rows.add(query(tile.batch, tile.first_row + row));
    rows = SegmentRange::of(rows);
    int first = tile.end, end = tile.end, first_whole = 0, end_whole = 0;
    bool some = false, whole = false;
#pragma unroll 1
    for (int base = tile.first; base < tile.end; base += WARP) {
      SegmentRange range;
      if (base + lane() < tile.end) {
        const Pack<int32_t, 4> x = load_pack<4>(ranges + (int64_t{tile.batch} * steps + base + lane()) * 4);
        range.least = x.at[0], range.largest = x.at[1], range.padded = x.at[2] != 0;
      }
      const uint32_t met = lanes_where(range.meets(rows)), ones = lanes_where(rows.is_one() && range.is_one() && range.least == rows.least);
      if (met != 0) {
        if (!some) first = base + __ffs(met) - 1;
        some = true, end = base + 32 - __clz(met);
      }
      if (ones == 0 || (whole && end_whole != base)) continue;
      const int skipped = whole ? 0 : __ffs(ones) - 1, run = __ffs(~(ones >> skipped)) - 1;
      if (!whole) first_whole = base + skipped;
      whole = true, end_whole = base + skipped + (run < 0 ? WARP : run);
    }
    tile.first = first, tile.end = some ? end : first;
    tile.first_whole = first_whole > tile.first_whole ? first_whole : tile.first_whole;
    tile.end_whole = end_whole < tile.end_whole ? end_whole : tile.end_whole;
    tile.hides = true;
  }

  // Scores of keys of other segments than the rows' become -inf; row h of the lane is of segment own[h], below -1: none.
  void hide(float (&s)[KEYS / 2], const int (&own)[2], int batch, int step) const {
    const int32_t* const from = copies + (int64_t{batch} * steps + step) * KEYS + lane() % 4 * 4;
#pragma unroll
    for (int n = 0; n < KEYS / 16; ++n) {
      const Pack<int32_t, 4> ids = load_pack<4>(from + 16 * n);
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (ids.at[i / 4 * 2 + i % 2] != own[i / 2 % 2]) s[8 * n + i] = -INFINITE;
    }
  }
};
