// flash_attention, forward, for few query rows a kv head (flash decoding), on matrix instructions of a warp (mma.sync). The keys of a kv
// head are cut into parts, one a block; where there are several, a second launch adds them up.
//
// A row is one query token of one of the query heads that share the kv head: row = token * heads_a_kv_head + head. Keys are the rows of the
// products, query rows their columns (device/attention/page_tile.h), so that few query rows waste little. In a block teams of TEAM_WARPS warps take
// every TEAMS-th tile of keys, each warp ROWS rows. Teams tell each other their weights, and each adds up its share of the features over
// all keys of the block, so that nothing is left to be added when the keys end. Scores are in units of log 2; a row's reference, the same
// in all teams, follows its largest score only where it is left behind by STALE.
#include "device/tile/launch_order.h"
#include "flash_attention/attention_parts.h"
#include "device/attention/attention_score.h"
#include "device/matrix/fragment.h"
#include "device/attention/page_tile_plain.h"
#include "device/tile/read_policy.h"
#include "device/tile/transpose.h"

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
constexpr int MY_SLICES = (OUT_SLICES + TEAMS - 1) / TEAMS;            // of 16 features, of a team
constexpr bool ALL_FEATURES = OUT_SLICES % TEAMS == 0 && DV % 16 == 0;
constexpr float STALE = 8;  // weights up to 2^8 are as exact

using KTile = PageTile<Element, TILE, D16>;
using VTile = PageTile<Element, TILE, DV16>;
constexpr int STAGE_BYTES = KTile::BYTES + VTile::BYTES;

typedef float Scores[TILES][ROW_TILES][4];
typedef uint32_t Weights[TILES][ROW_TILES][2];  // as products take them
typedef float Outputs[MY_SLICES][ROW_TILES][4];
typedef uint32_t Queries[SLICES][ROW_TILES][2];
typedef float PerRow[ROW_TILES][2];  // of rows lane % 4 * 2 and the one after it, as element i of a product belongs to row i % 2
typedef RowRange Ranges[ROW_TILES][2];
using Parts = RowParts<DV>;

// Shared memory: the teams' stages; the warps' weights of this step and the one before; what they say of their rows.
// The launch asks for so much more that no more CTAs than `blocks` fit an SM: where slots are left free, CTAs of the next
// launch, which may start early, fill them unevenly.
constexpr int WEIGHTS = TEAMS * STAGES * STAGE_BYTES, WEIGHTS_BYTES = TEAMS > 1 ? WARPS * TILE * ROWS * 2 : 0;
constexpr int SOFTMAXES = WEIGHTS + 2 * WEIGHTS_BYTES;
static_assert(SOFTMAXES + WARPS * ROWS * 8 == ${shared}, "the spec has another size");

// The rows of a block, and of this thread's warp in it.
struct MyRows {
  Rows rows;        // of the block
  int first;        // the warp's first among them
  RowRange all;     // keys that all rows of the warp see
  Ranges range;     // of this thread's rows

  int number(int tile, int i) const { return first + tile * 8 + lane() % 4 * 2 + i; }
};

// visible_keys() of device/attention/visibility.h, whose sums that may be large the spec has made: a token sees keys [token + from, token + to).
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
  uint64_t policy;

  Copies(const Element* head, int64_t token_stride, int first, int end, int thread, uint64_t how)
      : from(head + first * token_stride), stride(token_stride), left(end - first), policy(how) {
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
        copy_async_16(to.at(row, chunk), from + i * STEP * stride, i * STEP < left, policy);
      } else {
        const bool wanted = row < left && chunk * 8 < FILLED;
        if (number < TILE * Tile::CHUNKS) copy_async_16(to.at(row, chunk), from + row * stride + chunk * 8, wanted, policy);
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

// The rows' largest scores in the team's keys.
static inline void find_largest(PerRow& largest, const Scores& s) {
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i) largest[r][i] = largest_of_fragment_column(largest_of_row(s, r, i));
}

// The references of rows that are left behind become their largest scores; other rows must not change, or they would depend on keys that
// they do not see.
static inline void follow(const PerRow& largest, Outputs& o, PerRow& reference, PerRow& sum) {
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float now = largest[r][i] > reference[r][i] + STALE ? largest[r][i] : reference[r][i];
      const float factor = exp2_of(reference[r][i] - now);
      reference[r][i] = now;
      sum[r][i] *= factor;
      multiply_row(o, r, i, factor);
    }
}

// Takes scores to log 2; whether one leaves its row's reference behind.
static inline bool scale(Scores& s, const PerRow& reference, float unit) {
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
  return grows;
}

// Scores become weights; `sum`: of these.
static inline void weigh(Weights& p, PerRow& sum, const Scores& s, const PerRow& reference) {
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) sum[r][0] = sum[r][1] = 0;
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float x[2];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          x[k] = exp2_of(s[m][r][2 * i + k] - reference[r][k]);
          sum[r][k] += x[k];
        }
        p[m][r][i] = transpose_matrix(pack_pair<Element>(x[0], x[1]));
      }
}

static inline void add(PerRow& sum, const PerRow& more) {
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[r][i] += more[r][i];
}

// Scores of keys behind the part's last.
static inline void see_nothing(Scores& s) {
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][r][i] = -INFINITE;
}

// `use(f, m, a)` for the values of keys 16 m ... of a tile, of slice first + f.
template <class Use> static inline void each_value(const VTile& v, int first, Use use) {
#pragma unroll
  for (int f = 0; f < MY_SLICES; ++f) {
    if (OUT_SLICES % TEAMS != 0 && first + f >= OUT_SLICES) continue;
    const SharedPointer from = v.at(lane() % 8 + lane() / 16 * 8, (first + f) * 2 + lane() / 8 % 2);
#pragma unroll
    for (int m = 0; m < TILES; ++m) {
      uint32_t a[4];
      load_matrices_transposed(a, from + 16 * m * VTile::PITCH);
      use(f, m, a);
    }
  }
}

static inline void add_values(Outputs& o, const Weights& p, const VTile& v, int first) {
  each_value(v, first, [&](int f, int m, const uint32_t (&a)[4]) {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) mma_16x8x16<Element>(o[f][r], a, p[m][r][0], p[m][r][1]);
  });
}

// Whether the values are finite: 0 times others is NaN.
static inline bool are_finite(const VTile& v, int first) {
  float zero[4] = {};
  each_value(v, first, [&](int, int, const uint32_t (&a)[4]) { mma_16x8x16<Element>(zero, a, 0, 0); });
  return !any_in_warp(zero[0] != 0 || zero[1] != 0 || zero[2] != 0 || zero[3] != 0);
}

#include "flash_attention/split_exchange.h"

// The warp's features of its rows, in memory of the block's rows, one after another.
static inline void store_part(float* to, const Outputs& o, const MyRows& mine, int first_slice) {
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int f = 0; f < MY_SLICES; ++f)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int row = mine.number(r, i), feature = (first_slice + f) * 16 + VTile::output_feature(k);
          if (row < mine.rows.count && (ALL_FEATURES || feature < DV)) to[row * DV + feature] = o[f][r][2 * k + i];
        }
}

// The warp's features of 8 rows; `to`: of row lane / 4 of these, `exists`: whether there is one. Every lane calls it.
static inline void store_results(Element* to, const Outputs& o, int r, const float (&factor)[2], int first_slice, bool exists) {
#pragma unroll
  for (int f = 0; f < MY_SLICES; ++f)
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int feature = (first_slice + f) * 16 + k * 8 + lane() % 4 * 2;
      const uint32_t pair = transpose_matrix(pack_pair<Element>(o[f][r][2 * k] * factor[0], o[f][r][2 * k + 1] * factor[1]));
      if (exists && (ALL_FEATURES || feature < DV)) *reinterpret_cast<uint32_t*>(to + feature) = pair;
    }
}

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
  // Keys and values that are read once and fill the L2 cache leave it first: parts stay there, and are not written to memory.
  const uint64_t policy = cache_policy(read_once);
  Copies<KTile, D> key_copies(k + batch * k_batch + kv_head * k_head, k_token, key, end_key, thread, policy);
  Copies<VTile, DV> value_copies(v + batch * v_batch + kv_head * v_head, v_token, key, end_key, thread, policy);
  const SharedPointer stages = shared_pointer(memory) + team * STAGES * STAGE_BYTES;
  const auto copy_keys = [&](int stage) {
    key_copies.start({stages + stage * STAGE_BYTES}, thread);
    copy_async_commit();
  };
  const auto copy_values = [&](int stage) {
    value_copies.start({stages + stage * STAGE_BYTES + KTile::BYTES}, thread);
    copy_async_commit();
  };
  wait_for_previous_launch();
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) copy_keys(stage), copy_values(stage);

  Queries q_rows;
  load_queries(q_rows, q + batch * q_batch, q_token, q_head, mine);
  mine.all = {sight.of(mine.rows.place(mine.first + ROWS - 1).token).first, sight.of(mine.rows.place(mine.first).token).end};
  Outputs o;
  PerRow reference, sum;
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      reference[r][i] = LOWEST, sum[r][i] = 0;
      mine.range[r][i] = sight.of(mine.rows.place(mine.number(r, i)).token);
    }
  clear(o);
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         0, 0, kv_heads * heads};
  const float unit = ADJUSTED || CAPPED ? 1 : (softmax_scale > 0 ? softmax_scale : 1e-30f) * LOG2_E;

  const Exchange exchange{memory};
  const int first_slice = team * MY_SLICES;
  int stage = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int next = stage == 0 ? STAGES - 1 : stage - 1, step_tile = begin + step * TEAMS;
    copy_async_wait<2 * STAGES - (TEAMS == 1 ? 4 : 3)>();
    if (TEAM_WARPS == 1) sync_warp();
    else sync_block();
    copy_keys(next);
    if (TEAMS == 1) copy_values(next);

    const int tile = step_tile + team, first = tile * TILE;
    Scores s;
    Weights p = {};
    PerRow more = {};
    bool grows = false;
    if (tile < end) {
      KTile{stages + stage * STAGE_BYTES}.multiply<Element>(s, q_rows);
      const bool whole = !ADJUSTED && first >= mine.all.first && first + TILE <= mine.all.end;
      if (!whole || CAPPED) adjust(s, rules, mine, sequence, first);
      grows = scale(s, reference, unit);
      weigh(p, more, s, reference);
    } else {
      see_nothing(s);
    }
    if (TEAMS > 1) {
      exchange.put_weights(p, step);
      copy_async_wait<2 * STAGES - 3>();
    }
    if (TEAMS > 1 ? any_in_block(grows) : any_in_warp(grows)) {
      PerRow largest;
      find_largest(largest, s);
      if (TEAMS > 1) exchange.agree(largest);
      follow(largest, o, reference, sum);
      weigh(p, more, s, reference);
      if (TEAMS > 1) {
        exchange.put_weights(p, step);
        sync_block();
      }
    }
    if (TEAMS > 1) copy_values(next);
    add(sum, more);

    const int at = stage * STAGE_BYTES + KTile::BYTES, step_end = step_tile + TEAMS < end ? step_tile + TEAMS : end;
    const auto values = [&](int t) { return VTile{shared_pointer(memory) + t * STAGES * STAGE_BYTES + at}; };
    if (!ADJUSTED && step_tile * TILE >= mine.all.first && step_end * TILE <= mine.all.end) {
#pragma unroll
      for (int t = 0; t < TEAMS; ++t) {
        if (TEAMS > 1) exchange.get_weights(p, t, step);
        add_values(o, p, values(t), first_slice);
      }
    } else {
#pragma unroll 1
      for (int t = 0; t < step_end - step_tile; ++t) {
        if (TEAMS > 1) exchange.get_weights(p, t, step);
        if (are_finite(values(t), first_slice)) add_values(o, p, values(t), first_slice);
        else PlainPageTile<Element, TILE, DV16>{memory + t * STAGES * STAGE_BYTES + at}.add_values(o, p, first_slice);
      }
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
  }
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[r][i] = sum_of_fragment_column(sum[r][i]);
  exchange.put_softmax(reference, sum);
  copy_async_wait<0>();
  if (parts > 1) {
    const Parts all{partial, reinterpret_cast<Softmax*>(partial_softmax), parts, static_cast<int>(queries) * heads};
    const int64_t at = all.index(int64_t{batch} * kv_heads + kv_head, part, first_row);  // the rows of a part lie together
    store_part(all.outputs + at * DV, o, mine, first_slice);
    sync_block();
    if (thread_x() < mine.rows.count) all.softmaxes[at + thread_x()] = exchange.merged(thread_x());
    return;
  }
  sync_block();
#pragma unroll
  for (int r = 0; r < ROW_TILES; ++r) {
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = mine.number(r, i);
      const RowPlace at = mine.rows.place(row);
      const Softmax softmax = exchange.merged(row), with = with_sinks(softmax, softmax_aux_view, sinks_type, at.head, kv_heads * heads);
      factor[i] = scale_of(softmax, with);
      if (team == 0 && lane() < 4 && row < mine.rows.count) store_lse(lse_view, sequence, at, with.reference, with.sum);
    }
    const int row = mine.first + r * 8 + lane() / 4;
    const RowPlace at = mine.rows.place(row);
    store_results(out + batch * out_batch + at.token * out_token + at.head * out_head, o, r, factor, first_slice, row < mine.rows.count);
  }
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
