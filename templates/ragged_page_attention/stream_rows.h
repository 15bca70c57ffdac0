// GPU vocabulary of ragged_page_attention: the query rows of a stream, and their products with a part of a tile. Part of a template, which has defined
// before: Element, Cached, D, SLICES, WARPS, ROWS, ROW_TILES, TILES, CachedTile, Copies and Shares, and the types of device/attention/query_types.h.
#pragma once

// Rows of a chunk of tokens: row = token * heads + head.
struct StreamPlace {
  int token, first_head, heads;  // the first token of all; query heads of the stream from first_head on
  int kv_head, count;            // count: rows

  StreamPlace(const Ragged& one, int pass, int chunk, int groups, int heads_a_kv_head, int chunk_log) {
    kv_head = quotient(pass, groups);
    const int in_group = (pass - kv_head * groups) * BLOCK_ROWS, first = chunk << chunk_log;
    heads = smaller_of(heads_a_kv_head - in_group, BLOCK_ROWS);
    first_head = kv_head * heads_a_kv_head + in_group;
    token = one.first + first;
    count = smaller_of(one.queries - first, 1 << chunk_log) * heads;
  }
  int token_of(int row) const { return token + quotient(row, heads); }
  int head_of(int row) const { return first_head + row - quotient(row, heads) * heads; }
};

// What this thread's warp has of them.
struct StreamRows {
  int key_warp, key_warps;               // the warp's part of each tile's keys, of how many
  int first_row, count;                  // the warp's rows
  int first_key, end_key;                // keys that some of its rows sees
  int every_first, every_end;            // keys that all of them see
  int position[ROW_TILES][2];            // of this lane's rows, among the keys
  int old_keys, tree_shift;              // a row of the tree's mask is its position and the latter

  void enter(const RaggedWalk<Shares>& walk, const StreamPlace& place) {
    const Ragged one = walk.shares[walk.sequence];
    old_keys = one.old_keys(), tree_shift = one.first - old_keys;
    int row_warps = 1;
    while (row_warps * ROWS < place.count) row_warps *= 2;
    key_warps = quotient(WARPS, row_warps), key_warp = quotient(warp(), row_warps);
    first_row = (warp() - key_warp * row_warps) * ROWS;
    count = smaller_of(larger_of(place.count - first_row, 0), ROWS);
    first_key = every_first = 0, end_key = every_end = 0;
    if (count > 0) {  // keys move forwards with the rows
      const Seen of_first = seen_by(walk, place.token_of(first_row) - tree_shift);
      const Seen of_last = seen_by(walk, place.token_of(first_row + count - 1) - tree_shift);
      first_key = of_first.first, every_first = of_last.first, end_key = of_last.end;
      every_end = walk.shares.tree ? larger_of(old_keys, 0) : of_first.end;
    }
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        position[r][i] = place.token_of(larger_of(smaller_of(first_row + r * 8 + lane() % 4 * 2 + i, first_row + count - 1), 0)) - tree_shift;
  }

  struct Seen {
    int first, end;
  };
  static Seen seen_by(const RaggedWalk<Shares>& walk, int position) {
    if (walk.shares.tree) return {0, walk.end_key};
    return {larger_of(position - walk.shares.window, 0), larger_of(position + 1, 0)};
  }
  bool sees(const RaggedWalk<Shares>& walk, const View& tree_mask, int r, int i, int key) const {
    const Seen seen = seen_by(walk, position[r][i]);
    if (key < seen.first || key >= seen.end) return false;
    const int fresh = key - old_keys;
    if (!walk.shares.tree || fresh < 0) return true;
    const bool* const row = static_cast<const bool*>(tree_mask.data) + (position[r][i] + tree_shift) * tree_mask.strides[0];
    return fresh < tree_mask.shape[1] && row[fresh];
  }

  void load_queries(Queries& q, const StreamPlace& place, const Element* queries, int64_t token_stride, int64_t head_stride) const {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) {
      const int row = first_row + 8 * r + lane() / 4;
      const bool exists = 8 * r + lane() / 4 < count;
      const Element* const at = queries + (exists ? place.token_of(row) * token_stride + place.head_of(row) * head_stride : 0);
#pragma unroll
      for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int feature = slice * 16 + CachedTile::query_feature(i);
          q[slice][r][i] = 0;
          if (exists && (D % 16 == 0 || feature < D)) q[slice][r][i] = *reinterpret_cast<const uint32_t*>(at + feature);
        }
    }
  }
};
$if v3

// Queries become what the cache would store of them divided by the scale, in Elements, exactly; the scale joins `unit`.
static inline void round_queries(Queries& q, PerRow& unit, float scale) {
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float low = to_float(cached<Cached>(to_float(first_of(q[slice][r][i])) / scale)), high = to_float(cached<Cached>(to_float(second_of(q[slice][r][i])) / scale));
        q[slice][r][i] = pack_pair<Element>(low, high);
      }
#pragma unroll
    for (int i = 0; i < 2; ++i) unit[r][i] *= scale;
  }
}
$end

// Dot products to scores in units of log 2; keys that a row does not see to -inf. `first`: the first key.
static inline void adjust(Scores& s, const PerRow& unit, float soft_cap, const StreamRows& rows, const RaggedWalk<Shares>& walk, const View& tree_mask, int first,
                          bool whole) {
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float x = s[m][r][i] * unit[r][i % 2];
        if (CAPPED) x = soft_cap * LOG2_E * tanh_of(x);
        s[m][r][i] = x;
      }
  if (whole) return;
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!rows.sees(walk, tree_mask, r, i % 2, first + 16 * m + lane() / 4 + i / 2 * 8)) s[m][r][i] = -INFINITE;
}

// Of tiles: SUB keys from row 16 * begin on, the first of which is key `first`. weights: see add_guarded().
static inline void attend_keys(const Queries& q, const CachedTile& k, const CachedTile& v, const TileBytes& bytes, Outputs& o, PerRow& reference, PerRow& sum,
                               const PerRow& unit, float soft_cap, const StreamRows& rows, const RaggedWalk<Shares>& walk, const View& tree_mask, int begin, int first, float* weights) {
  using Part = PageTile<Cached, SUB, D16>;
  const SharedPointer down = 16 * begin * Part::PITCH;
  Scores s;
  const Part part_of_keys{k.base + down}, part_of_values{v.base + down};
  part_of_keys.template multiply<Product>(s, q);
  const bool whole = first >= rows.every_first && first + SUB <= rows.every_end;
  adjust(s, unit, soft_cap, rows, walk, tree_mask, first, whole);
  weigh(s, o, reference, sum);
  if (!whole && !are_finite(v, bytes, begin)) return add_guarded(o, s, v, bytes, begin, weights);
  uint32_t p[TILES][ROW_TILES][2];
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) p[m][r][i] = transpose_matrix(pack_pair<Product>(s[m][r][2 * i], s[m][r][2 * i + 1]));
  part_of_values.template add_values<Product>(o, p);
}
