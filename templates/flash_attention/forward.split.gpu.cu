// flash_attention, forward, for few query rows a kv head (flash decoding), on matrix instructions of a warp (mma.sync). The keys of a kv
// head are cut into parts, one a block; where there are several, a second launch adds them up.
//
// A row is one query token of one of the query heads that share the kv head: row = token * heads_a_kv_head + head. Keys are the rows of the
// products, query rows their columns (device/page_tile.h), so that few query rows waste little. In a block teams of TEAM_WARPS warps take
// every TEAMS-th tile of keys, each with copies, softmax and outputs of its own, and without waiting for the others; each warp of a team
// has ROWS rows. Scores are in units of log 2; a row's reference follows its largest score only where it is left behind by STALE.
#include "device/launch_order.h"
#include "device/attention_parts.h"
#include "device/attention_score.h"
#include "device/fragment.h"
#include "device/page_tile_plain.h"
#include "device/transpose.h"

$require D % 8 == 0 and Dv % 8 == 0 and tile % 16 == 0 and warps % team_warps == 0
$require warps * 32 >= team_warps * rows
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                                    // head dim of q and k; of v and out
constexpr int D16 = ${align(D, 16)}, DV16 = ${align(Dv, 16)}, SLICES = D16 / 16, OUT_SLICES = DV16 / 16;
constexpr bool ADJUSTED = ${adjusted}, CAPPED = ${capped};             // any of bias, mask, segments may be given; soft cap
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int TEAM_WARPS = ${team_warps}, TEAMS = WARPS / TEAM_WARPS;  // warps that share tiles of keys, each with rows of its own
constexpr int ROWS = ${rows}, ROW_TILES = ROWS / 8;                    // query rows a warp; products of 8
constexpr int TEAM_ROWS = TEAM_WARPS * ROWS;                           // of a block
constexpr int TILE = ${tile}, TILES = TILE / 16;                       // keys; products of 16
constexpr int STAGES = ${stages};                                      // tiles of a team in shared memory
constexpr float STALE = 8;  // weights up to 2^8 are as exact

using KTile = PageTile<Element, TILE, D16>;
using VTile = PageTile<Element, TILE, DV16>;
constexpr int STAGE_BYTES = KTile::BYTES + VTile::BYTES;

typedef float Scores[TILES][ROW_TILES][4];
typedef float Outputs[OUT_SLICES][ROW_TILES][4];
typedef uint32_t Queries[SLICES][ROW_TILES][2];
typedef float PerRow[ROW_TILES][2];  // of rows lane % 4 * 2 and the one after it, as element i of a product belongs to row i % 2
typedef RowRange Ranges[ROW_TILES][2];
using Parts = RowParts<DV>;

// Shared memory: the teams' stages; when they are done, the warps' sums in their place; the warps' softmaxes.
constexpr int PITCH = DV16 + 4, STAGES_BYTES = TEAMS * STAGES * STAGE_BYTES, SUMS_BYTES = WARPS * ROWS * PITCH * 4;
constexpr int SOFTMAXES = STAGES_BYTES > SUMS_BYTES ? STAGES_BYTES : SUMS_BYTES;
static_assert(SOFTMAXES + WARPS * ROWS * 8 == ${shared}, "the spec has another size");

// The rows of a block, and of this thread's warp in it.
struct MyRows {
  Rows rows;        // of the block
  int first;        // the warp's first among them
  RowRange all;     // keys that all rows of the warp see
  Ranges range;     // of this thread's rows

  int number(int tile, int i) const { return first + tile * 8 + lane() % 4 * 2 + i; }
};

// visible_keys() of device/visibility.h, whose sums that may be large the spec has made: a token sees keys [token + from, token + to).
struct Sight {
  int from, to, keys;

  RowRange of(int token) const {
    const int end = token + to < 0 ? 0 : token + to < keys ? token + to : keys, first = token + from < 0 ? 0 : token + from;
    return {first < end ? first : end, end};
  }
};

// Tiles of keys, or values, on their way to shared memory: each call the team's next one.
template <class Tile, int FILLED> struct Copies {
  static constexpr int TEAM_THREADS = TEAM_WARPS * WARP, COPIES = (TILE * Tile::CHUNKS + TEAM_THREADS - 1) / TEAM_THREADS;
  // A thread stays in its column.
  static constexpr bool STAYS = TEAM_THREADS % Tile::CHUNKS == 0 && TILE * Tile::CHUNKS % TEAM_THREADS == 0;
  const Element* from;  // of the next tile: its first key; STAYS: this thread's first chunk
  int64_t stride;
  int left;             // keys from there on

  Copies(const Element* head, int64_t token_stride, int first, int end, int thread)
      : from(head + first * token_stride), stride(token_stride), left(end - first) {
    if constexpr (STAYS) {
      const int row = thread / Tile::CHUNKS, chunk = thread % Tile::CHUNKS;
      from += row * stride + chunk * 8;
      left = chunk * 8 < FILLED ? left - row : 0;
    }
  }
  void start(const Tile& to, int thread) {
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const int number = thread + i * TEAM_THREADS, row = number / Tile::CHUNKS, chunk = number % Tile::CHUNKS;
      if constexpr (STAYS) {
        constexpr int STEP = TEAM_THREADS / Tile::CHUNKS;
        copy_async_16(to.at(row, chunk), from + i * STEP * stride, i * STEP < left);
      } else {
        const bool wanted = row < left && chunk * 8 < FILLED;
        if (number < TILE * Tile::CHUNKS) copy_async_16(to.at(row, chunk), from + row * stride + chunk * 8, wanted);
      }
    }
    from += TEAMS * TILE * stride;
    left -= TEAMS * TILE;
  }
};

static inline void load_queries(Queries& q, const Element* query, int64_t token_stride, int64_t head_stride, const MyRows& mine) {
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) {
    const int row = mine.first + 8 * r + lane() / 4;
    const RowPlace at = mine.rows.place(row);
    const Element* from = query + at.token * token_stride + at.head * head_stride;
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int feature = slice * 16 + KTile::query_feature(i);
        q[slice][r][i] = 0;
        if (row < mine.rows.count && (D % 16 == 0 || feature < D)) q[slice][r][i] = *reinterpret_cast<const uint32_t*>(from + feature);
      }
  }
}

// Scores of keys that a row does not see become -inf; cap and bias are applied. `first`: the tile's first key.
static inline void adjust(Scores& s, const ScoreRules& rules, const MyRows& mine, const Sequence& sequence, int first) {
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const RowPlace place = ADJUSTED ? mine.rows.place(mine.number(r, i)) : RowPlace{0, 0};
      const RowRules row = rules_of<ADJUSTED>(rules, sequence, mine.range[r][i], place);
#pragma unroll
      for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          s[m][r][2 * h + i] = score_of<ADJUSTED, CAPPED>(s[m][r][2 * h + i], rules, row, first + 16 * m + 8 * h + lane() / 4);
    }
}

// The references of rows that are left behind become their largest scores; other rows must not change, or they would depend on keys that
// they do not see.
static inline void follow(const Scores& s, Outputs& o, PerRow& reference, PerRow& sum) {
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float largest = -INFINITE;
#pragma unroll
      for (int m = 0; m < TILES; ++m) largest = larger_of(largest, larger_of(s[m][r][i], s[m][r][i + 2]));
      largest = largest_of_fragment_column(largest);
      const float now = largest > reference[r][i] + STALE ? largest : reference[r][i], factor = exp2_of(reference[r][i] - now);
      reference[r][i] = now;
      sum[r][i] *= factor;
#pragma unroll
      for (int f = 0; f < OUT_SLICES; ++f) o[f][r][i] *= factor, o[f][r][i + 2] *= factor;
    }
}

// Scores become weights. `unit` takes scores to log 2.
static inline void weigh(Scores& s, Outputs& o, PerRow& reference, PerRow& sum, float unit) {
  bool grows = false;
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[m][r][i] *= unit;
        grows = grows || s[m][r][i] > reference[r][i % 2] + STALE;
      }
  if (any_in_warp(grows)) follow(s, o, reference, sum);
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[m][r][i] = exp2_of(s[m][r][i] - reference[r][i % 2]);
        sum[r][i % 2] += s[m][r][i];
      }
}

static inline void multiply(Scores& s, const Queries& q, const KTile& k) {
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][r][i] = 0;
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) k.multiply_keys<Element>(s, q[slice], slice);
}

static inline void add_values(Outputs& o, const Scores& s, const VTile& v) {
  uint32_t p[TILES][ROW_TILES][2];
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) p[m][r][i] = transpose_matrix(pack_pair<Element>(s[m][r][2 * i], s[m][r][2 * i + 1]));
  v.add_values<Element>(o, p);
}

// The warps' sums of a block become the rows' results.
struct Merge {
  char* memory;

  Softmax* softmax(int w) const { return reinterpret_cast<Softmax*>(memory + SOFTMAXES) + w * ROWS; }
  float* sums(int w) const { return reinterpret_cast<float*>(memory) + w * ROWS * PITCH; }

  void put_softmax(const PerRow& reference, const PerRow& sum) const {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float all = sum_of_fragment_column(sum[r][i]);
        if (lane() < 4) softmax(warp())[r * 8 + lane() * 2 + i] = {reference[r][i], all};
      }
  }

  // Of the teams' softmaxes of a row of the block.
  Softmax merged(int row) const {
    Softmax all{LOWEST, 0};
#pragma unroll
    for (int t = 0; t < TEAMS; ++t) all.reference = larger_of(all.reference, softmax(t * TEAM_WARPS + row / ROWS)[row % ROWS].reference);
#pragma unroll
    for (int t = 0; t < TEAMS; ++t) {
      const Softmax& one = softmax(t * TEAM_WARPS + row / ROWS)[row % ROWS];
      all.sum += one.sum * factor_of(one, all.reference);
    }
    return all;
  }

  // Relative to what the teams' softmaxes have in common.
  void put_outputs(const Outputs& o, const PerRow& reference) const {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = r * 8 + lane() % 4 * 2 + i;
        float common = reference[r][i];
#pragma unroll
        for (int t = 0; t < TEAMS; ++t) common = larger_of(common, softmax(t * TEAM_WARPS + warp() % TEAM_WARPS)[row].reference);
        const float factor = TEAMS == 1 ? 1 : exp2_of(reference[r][i] - common);
#pragma unroll
        for (int f = 0; f < OUT_SLICES; ++f)
#pragma unroll
          for (int k = 0; k < 2; ++k) sums(warp())[row * PITCH + f * 16 + VTile::output_feature(k)] = o[f][r][2 * k + i] * factor;
      }
  }

  // `store(i, values)` for the i-th 4 features, counted through all rows below `count`.
  template <int AT_ONCE, class Store> void each(int count, Store store) const {
#pragma unroll AT_ONCE
    for (int i = thread_x(); i < count * (DV / 4); i += THREADS) {
      const int row = i / (DV / 4), feature = i % (DV / 4) * 4;
      Pack<float, 4> x = load_pack<4>(sums(row / ROWS) + row % ROWS * PITCH + feature);
#pragma unroll
      for (int t = 1; t < TEAMS; ++t) {
        const Pack<float, 4> part = load_pack<4>(sums(t * TEAM_WARPS + row / ROWS) + row % ROWS * PITCH + feature);
#pragma unroll
        for (int k = 0; k < 4; ++k) x.at[k] += part.at[k];
      }
      store(i, x);
    }
  }
};

// Block (x, y, z): part x of the keys of group y % groups of the rows of kv head y / groups of row z of the batch.
KERNEL(THREADS, ${blocks}) attend(${parameters('attend')}) {
  let_next_launch_go();
  char* memory = dynamic_shared();
  const int groups = static_cast<int>(row_groups), heads = static_cast<int>(heads_a_kv_head);
  const int kv_head = block_y() / groups, batch = block_z(), first_row = (block_y() - kv_head * groups) * TEAM_ROWS;
  const int kv_heads = grid_y() / groups, rows_left = static_cast<int>(queries) * heads - first_row;
  const Sequence sequence{batch, batch, 0, 0, queries, keys, 0, false};
  const Sight sight{static_cast<int>(sees_from), static_cast<int>(sees_to), static_cast<int>(keys)};
  const int team = warp() / TEAM_WARPS, thread = thread_x() % (TEAM_WARPS * WARP);
  const Rows block_rows{nullptr, first_row, rows_left < TEAM_ROWS ? rows_left : TEAM_ROWS, kv_head * heads, heads};
  MyRows mine{block_rows, warp() % TEAM_WARPS * ROWS, {}, {}};

  // The part's tiles: those that some row of the block sees, cut evenly.
  const RowRange first_range = sight.of(mine.rows.place(0).token), last_range = sight.of(mine.rows.place(TEAM_ROWS - 1).token);
  const int first_tile = first_range.first / TILE;
  const int end_tile = first_range.first < last_range.end ? (last_range.end - 1) / TILE + 1 : first_tile;
  const int parts = grid_x(), part = block_x(), tiles = end_tile - first_tile;
  const int share = static_cast<unsigned>(tiles) / static_cast<unsigned>(parts), longer = tiles - share * parts;  // so many have one more
  const int begin = first_tile + part * share + (part < longer ? part : longer), end = begin + share + (part < longer ? 1 : 0);
  const int steps = (end - begin + TEAMS - 1) / TEAMS, key = (begin + team) * TILE;
  const int end_key = end < (static_cast<int>(keys) + TILE - 1) / TILE ? end * TILE : static_cast<int>(keys);
  Copies<KTile, D> key_copies(k + batch * k_batch + kv_head * k_head, k_token, key, end_key, thread);
  Copies<VTile, DV> value_copies(v + batch * v_batch + kv_head * v_head, v_token, key, end_key, thread);
  const SharedPointer stages = shared_pointer(memory) + team * STAGES * STAGE_BYTES;
  const auto copy = [&](int stage) {
    key_copies.start({stages + stage * STAGE_BYTES}, thread);
    value_copies.start({stages + stage * STAGE_BYTES + KTile::BYTES}, thread);
    copy_async_commit();
  };
  wait_for_previous_launch();
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) copy(stage);

  Queries q_rows;
  load_queries(q_rows, q + batch * q_batch, q_token, q_head, mine);
  mine.all = {sight.of(mine.rows.place(mine.first + ROWS - 1).token).first, sight.of(mine.rows.place(mine.first).token).end};
  Outputs o;
  PerRow reference, sum;
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      reference[r][i] = LOWEST, sum[r][i] = 0;
      mine.range[r][i] = sight.of(mine.rows.place(mine.number(r, i)).token);
    }
#pragma unroll
    for (int f = 0; f < OUT_SLICES; ++f)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[f][r][i] = 0;
  }
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         0, 0, kv_heads * heads};
  const float unit = ADJUSTED || CAPPED ? 1 : (softmax_scale > 0 ? softmax_scale : 1e-30f) * LOG2_E;

  int stage = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    copy_async_wait<STAGES - 2>();
    if (TEAM_WARPS == 1) sync_warp();
    else sync_block();
    copy(stage == 0 ? STAGES - 1 : stage - 1);
    const int tile = begin + step * TEAMS + team, first = tile * TILE;
    if (tile < end) {
      Scores s;
      multiply(s, q_rows, {stages + stage * STAGE_BYTES});
      const bool whole = !ADJUSTED && first >= mine.all.first && first + TILE <= mine.all.end;
      if (!whole || CAPPED) adjust(s, rules, mine, sequence, first);
      weigh(s, o, reference, sum, unit);
      const int at = stage * STAGE_BYTES + KTile::BYTES;
      const PlainPageTile<Element, TILE, DV16> values{memory + team * STAGES * STAGE_BYTES + at};
      if (whole || values.finite()) add_values(o, s, {stages + at});
      else values.add_values(o, s);
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
  }
  const Merge merge{memory};
  merge.put_softmax(reference, sum);
  copy_async_wait<0>();
  sync_block();
  merge.put_outputs(o, reference);
  sync_block();
  if (parts > 1) {
    const Parts all{partial, reinterpret_cast<Softmax*>(partial_softmax), parts, static_cast<int>(queries) * heads};
    const int64_t at = all.index(int64_t{batch} * kv_heads + kv_head, part, first_row);  // the rows of a part lie together
    float* const to = all.outputs + at * DV;
    merge.each<4>(mine.rows.count, [&](int i, const Pack<float, 4>& x) { store_pack(to + 4 * i, x); });
    if (thread_x() < mine.rows.count) all.softmaxes[at + thread_x()] = merge.merged(thread_x());
    return;
  }
  merge.each<1>(mine.rows.count, [&](int i, const Pack<float, 4>& x) {
    const int row = i / (DV / 4), feature = i % (DV / 4) * 4;
    const RowPlace at = mine.rows.place(row);
    const Softmax softmax = merge.merged(row), with = with_sinks(softmax, softmax_aux_view, sinks_type, at.head, kv_heads * heads);
    const float factor = scale_of(softmax, with);
    Pack<Element, 4> result;
#pragma unroll
    for (int k = 0; k < 4; ++k) result.at[k] = from_float<Element>(x.at[k] * factor);
    store_pack(out + batch * out_batch + at.token * out_token + at.head * out_head + feature, result);
    if (feature == 0) store_lse(lse_view, sequence, at, with.reference, with.sum);
  });
}

constexpr int COMBINE_WARPS = 4, FEW_WARPS = 2;  // of a block; that share a row if it has few parts

// Block (x, y, z): rows of kv head y of row z of the batch, as many from x times that on as a block has.
KERNEL(COMBINE_WARPS * WARP, 5) combine(${parameters('combine')}) {
  let_next_launch_go();
  const int heads = static_cast<int>(heads_a_kv_head), kv_heads = grid_y(), batch = block_z(), count = static_cast<int>(row_count);
  const Parts all{const_cast<float*>(partial), reinterpret_cast<Softmax*>(const_cast<float*>(partial_softmax)), static_cast<int>(splits),
                  count};
  const Rows rows{nullptr, 0, count, block_y() * heads, heads};
  const Sequence sequence{batch, batch, 0, 0, 0, 0, 0, false};
  const int64_t stream = int64_t{batch} * kv_heads + block_y();
  const auto finish = [&](int row, const Softmax& softmax, int feature, const float (&x)[2]) {
    const RowPlace at = rows.place(row);
    const Softmax with = with_sinks(softmax, softmax_aux_view, sinks_type, at.head, kv_heads * heads);
    const float factor = scale_of(softmax, with);
    store_pack(out + batch * out_batch + at.token * out_token + at.head * out_head + feature,
               Pack<Element, 2>{{from_float<Element>(x[0] * factor), from_float<Element>(x[1] * factor)}});
    if (feature == 0) store_lse(lse_view, sequence, at, with.reference, with.sum);
  };
  __shared__ Parts::Shared<COMBINE_WARPS> shared;
  wait_for_previous_launch();
  if (few_parts) all.add_up<FEW_WARPS>(shared, stream, block_x(), finish);
  else all.add_up<COMBINE_WARPS>(shared, stream, block_x(), finish);
}
