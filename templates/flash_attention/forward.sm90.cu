// flash_attention, forward, on Hopper. A block goes from tile to tile (BLOCK_M query rows of one head): of warpgroup 0, one warp finds the
// tiles and a thread of another copies queries, keys and values; the other warpgroups have 64 rows each, scores and outputs in registers.
//
// A warpgroup starts the product of the next step's keys (perhaps of the next tile's) beside that of this step's weights and values, and
// weighs the new scores while the latter runs. With PING_PONG warpgroups start their products in turn, so that one weighs while another's
// products run.
// Weights are 2^(score - reference): a row's reference follows its largest score when that is 2^HEADROOM times ahead. Under a soft cap that is
// small enough (NARROW) no score is far from 0: the reference is 0, and outputs that overflow are computed once more.
// With segment ids a launch before looks at those of the keys by steps. With BITS_APART, dropout, a last warpgroup makes which weights
// are kept, some steps ahead of them.
#include "device/gpu.h"
#include "device/sm90_attention_tiles.h"
#include "device/sm90_attention_outputs.h"
#include "device/sm90_attention_rows.h"
#include "device/sm90_attention_plain.h"
#include "device/sm90_attention_adjust.h"
#include "device/sm90_uniform.h"
$if segmented
#include "device/sm90_attention_segments.h"
$end
$if dropped
#include "device/sm90_attention_dropout.h"
$end

$require D % 8 == 0 and Dv % 8 == 0 and block_n % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                   // head dim of q and k; of v and out
constexpr bool PACKED = ${packed}, CAPPED = ${capped};  // sequences end to end; soft cap
constexpr bool NARROW = ${narrow};                     // no weight of a capped score leaves the floats
constexpr bool BOUNDED = ${bounded}, SEGMENTED = ${segmented}, DROPPED = ${dropped};  // lengths; segment ids; dropout
constexpr int GROUPS = ${groups};                     // warpgroups that multiply
constexpr int BLOCK_M = GROUPS * 64;                  // query rows of a tile
constexpr int BLOCK_N = ${block_n};                   // keys of a step
constexpr uint32_t STAGES = ${stages};                // steps of keys, and of values, in shared memory
constexpr uint32_t Q_STAGES = ${q_stages};            // tiles' queries in shared memory
constexpr bool PING_PONG = ${ping_pong};
constexpr bool DYNAMIC = ${dynamic};                   // a block takes the next tile when it needs one, not in turn
constexpr bool STAGED = ${staged};                     // outputs leave through shared memory
$if biased == 'none'
using Bias = NoBias;
$else
using Bias = ${ctype(biased)};
$end
using ScoreTile = Adjustments<Bias, ${masked}, BLOCK_M, BLOCK_N, SEGMENTED || DROPPED>;  // what is given for the scores of a step
constexpr bool ADJUSTED = ScoreTile::BYTES > 0;
constexpr uint32_t ADJUST_STAGES = ${adjust_stages};   // steps of it in shared memory
constexpr bool WIDE = D > 192 || DV > 128;
// Options that leave no registers for what depends on tensors' ranks.
constexpr bool CROWDED = ADJUSTED ? BOUNDED || SEGMENTED || DROPPED : WIDE && (DROPPED ? PACKED || BOUNDED || SEGMENTED : SEGMENTED && CAPPED);
constexpr bool ASKED = GROUPS == 2 || D <= 64 || D > 128;  // whether what a step needs is here, ahead of it: with other heads no gain
constexpr bool BITS_APART = ${bits_apart};             // a warpgroup makes dropout's bits
constexpr int THREADS = (GROUPS + 1 + BITS_APART) * WARPGROUP;
constexpr bool SEARCHES = PACKED || SEGMENTED || (BOUNDED && (DROPPED || (NARROW && DV <= 64)));  // to find a tile needs more registers
constexpr int PRODUCER_REGISTERS = SEARCHES ? 56 : GROUPS == 3 || BITS_APART ? 32 : 40;
constexpr int BITS_REGISTERS = SEARCHES ? 56 : 64;
constexpr int CONSUMER_REGISTERS = GROUPS == 3 ? SEARCHES ? 152 : 160 : BITS_APART ? SEARCHES ? 200 : 208 : SEARCHES ? 224 : 232;
$if bits_apart
constexpr uint32_t BITS_STAGES = ${bits_stages};       // steps of bits in shared memory
static_assert(GROUPS == 2);
$end

constexpr int BOXES = (D + 63) / 64, V_BOXES = (DV + 63) / 64;  // of 64 features
constexpr uint32_t Q_BOX = 64 * 128, KEY_BOX = BLOCK_N * 128;
constexpr uint32_t Q_BYTES = BOXES * Q_BOX, K_BYTES = BOXES * KEY_BOX, V_BYTES = V_BOXES * KEY_BOX;

// Barriers come in pairs: full, then empty. Each warpgroup has its own queries of a tile.
struct Places {  // in shared memory
  static constexpr uint32_t QUERIES = Q_STAGES * GROUPS, KEYS_AND_VALUES = QUERIES + 2 * STAGES, BARRIERS = KEYS_AND_VALUES + ADJUST_STAGES;
  static constexpr uint32_t K_AT = QUERIES * Q_BYTES, V_AT = K_AT + STAGES * K_BYTES, ADJUST_AT = V_AT + STAGES * V_BYTES;
  static constexpr uint32_t OUT_AT = ADJUST_AT + ADJUST_STAGES * ScoreTile::BYTES;
  static constexpr uint32_t BARRIERS_AT = OUT_AT + (STAGED ? GROUPS * 4 * SENT_BYTES : 0);
  uint32_t base;
  uint32_t q(uint32_t i, int part) const { return base + (i * GROUPS + part) * Q_BYTES; }
  uint32_t k(uint32_t i) const { return base + K_AT + i * K_BYTES; }
  uint32_t v(uint32_t i) const { return base + V_AT + i * V_BYTES; }
  uint32_t adjust(uint32_t i) const { return base + ADJUST_AT + i * ScoreTile::BYTES; }
  uint32_t out(int part) const { return base + OUT_AT + (part * 4 + warp() % 4) * SENT_BYTES; }  // of this warp
  uint32_t barrier(uint32_t i) const { return base + BARRIERS_AT + 16 * i; }
  uint32_t q_full(uint32_t i, int part) const { return barrier(i * GROUPS + part); }
  uint32_t k_full(uint32_t i) const { return barrier(QUERIES + i); }
  uint32_t v_full(uint32_t i) const { return barrier(QUERIES + STAGES + i); }
  uint32_t adjust_full(uint32_t i) const { return barrier(KEYS_AND_VALUES + i); }
  uint32_t found() const { return barrier(BARRIERS); }  // a tile is known
  uint32_t wanted() const { return found() + 8; }       // the one before it is being copied (and its bits made)
$if bits_apart
  // A warp that makes bits has 32 rows of a tile, those of two warps of consumers.
  static constexpr uint32_t BITS_BYTES = 32 * 16, BITS_AT = BARRIERS_AT + 16 * (BARRIERS + 1 + 4 * BITS_STAGES);
  uint32_t bits_full(uint32_t i, int maker) const { return barrier(BARRIERS + 1 + 4 * i + maker); }
  uint32_t bits(uint32_t i, int row) const { return base + BITS_AT + 4 * BITS_BYTES * i + 16 * row; }
  uint32_t chunks(int maker) const { return base + BITS_AT + 4 * BITS_STAGES * BITS_BYTES + maker * RowBits<BLOCK_N>::CHUNK_BYTES; }
$end
};
// Tiles are known Q_STAGES + 1 ahead, and to consumers until their outputs are stored.
constexpr uint32_t TILES = Q_STAGES + 3;
__shared__ AttentionTile known[TILES];
static inline uint32_t empty(uint32_t full) { return full + 8; }

// Box i of 64 features, `token` of the sequence's row of the batch.
static inline void copy_box(uint32_t to, const TensorMap& map, uint32_t full, int i, int head, int token, int batch) {
  if constexpr (PACKED)
    load_tile(to, map, full, {64 * i, head, token});
  else
    load_tile(to, map, full, {64 * i, head, token, batch});
}

$if segmented
using CallSegments = Segments<BLOCK_N>;
$else
struct CallSegments {};
$end
$if dropped
using CallDropout = Dropout;
$else
struct CallDropout {};
$end

// Of a tile's batch and query head, for dropout.
static inline uint32_t row_number(const AttentionTile& tile, int heads) { return static_cast<uint32_t>(tile.batch * heads + tile.head); }

// What a row asks of a key in its range.
struct KeyRule {
  const CallSegments& segments;
  const CallDropout& dropout;
  float kept;  // what a weight counts that is kept
  int heads;   // query heads

  uint32_t number(const AttentionTile& tile) const { return row_number(tile, heads); }
  bool sees(const AttentionTile& tile, int row, int key) const {
$if segmented
    const int id = segments.key(tile.batch, key);
    return id >= 0 && id == segments.query(tile.batch, tile.first_row + row);
$else
    return true;
$end
  }
  bool keeps(const AttentionTile& tile, int row, int key) const {
$if dropped
    return dropout.keeps(key, tile.first_row + row, number(tile));
$else
    return true;
$end
  }
  float factor() const { return kept; }
};
using Plain = PlainAttention<Element, KeyRule>;

// Tile `number` of the call; a whole warp calls it. False: there is no such tile (packed).
static inline bool find_tile(const AttentionTiles& tiles, const Plain& plain, int number, AttentionTile& tile) {
  const bool found = tiles.find<BLOCK_M, BLOCK_N>(number, tile);
$if segmented
  plain.rule.segments.trim(tile, BOUNDED ? tile.seeing : tile.rows);
$end
  return found;
}

// A warp that makes tiles known, one ahead of their copies.
struct Finder {
  const Places& at;
  const AttentionTiles& tiles;
  const Plain& plain;

  void run(TileNumbers<DYNAMIC> numbers) const {
    Turn<TILES> place;
    bool waits = DYNAMIC;  // for the launch that resets `taken`; what else is read was there before it
    for (int number = numbers.first(), parity = 0;; number = numbers.take()) {
      AttentionTile tile = AttentionTile::none();
      float reference = 0, sum = 0;
      if (number < tiles.count) {
        numbers.own(number);
        if (waits) wait_for_previous_launch();
        waits = false;
        if (!find_tile(tiles, plain, number, tile) || tile.first >= tile.end) continue;
        if (lane() == 0) known[place.at] = tile;
        plain.start(tile, reference, sum);  // here and not by those who multiply: it waits for memory
      }
      if (lane() == 0) {
        if (tile.is_none()) known[place.at].rows = 0;
        known[place.at].reference = reference, known[place.at].sum = sum;
        barrier_arrive(at.found());
      }
      if (tile.is_none()) return;
      place.next();
      barrier_wait(at.wanted(), parity);
      parity ^= 1;
    }
  }
};

// A thread that copies.
struct Producer {
  const Places& at;
  const TensorMap &q, &k, &v;
  const ScoreTile& given;
  int heads_a_kv_head;
$if ends_evenly
  int heads, first_late;  // query heads; the first one of the last group, where rows of the batch follow one another
$end
  Turn<TILES> place;
  Turn<Q_STAGES> queries;
  Turn<STAGES> keys, values;
  Turn<ADJUST_STAGES> adjusts;

$if ends_evenly
  // The next tile is looked for two steps before this one's end, not at its start: who is behind then takes fewer of the last ones. Before
  // the last group, only where there is one place for queries: with two, heads of 128 lose 1%.
  static constexpr int LATE = 2;
  bool asks_late(const AttentionTile& tile) const {
    return tile.end - tile.first > LATE && (Q_STAGES == 1 || tile.batch * heads + tile.head >= first_late);
  }
$end

  void copy_queries(const AttentionTile& tile) {
#pragma unroll 1
    for (int part = 0; part < GROUPS; ++part) {
      const uint32_t full = at.q_full(queries.at, part);
      barrier_wait(empty(full), queries.parity ^ 1);
      if (tile.is_none()) {
        barrier_arrive(full);
        continue;
      }
      barrier_arrive_expect(full, Q_BYTES);
#pragma unroll
      for (int i = 0; i < BOXES; ++i)
        copy_box(at.q(queries.at, part) + i * Q_BOX, q, full, i, tile.head, tile.first_query + tile.first_row + part * 64, tile.batch);
    }
    queries.next();
$if ends_evenly
    if (!tile.is_none() && !asks_late(tile)) barrier_arrive(at.wanted());
$else
    if (!tile.is_none()) barrier_arrive(at.wanted());
$end
  }
  void copy_keys(int head, int token, int batch) {
    const uint32_t full = at.k_full(keys.at);
    barrier_wait(empty(full), keys.parity ^ 1);
    barrier_arrive_expect(full, K_BYTES);
#pragma unroll
    for (int i = 0; i < BOXES; ++i) copy_box(at.k(keys.at) + i * KEY_BOX, k, full, i, head, token, batch);
    keys.next();
  }
  void copy_values(int head, int token, int batch) {
    const uint32_t full = at.v_full(values.at);
    barrier_wait(empty(full), values.parity ^ 1);
    barrier_arrive_expect(full, V_BYTES);
#pragma unroll
    for (int i = 0; i < V_BOXES; ++i) copy_box(at.v(values.at) + i * KEY_BOX, v, full, i, head, token, batch);
    values.next();
  }

  void copy_adjustments(const AttentionTile& tile, int key) {
    const uint32_t full = at.adjust_full(adjusts.at);
    barrier_wait(empty(full), adjusts.parity ^ 1);
    barrier_arrive_expect(full, ScoreTile::BYTES);
    given.copy(at.adjust(adjusts.at), full, tile, key);
    adjusts.next();
  }

  // In the order in which they are needed: the values of a step after the keys of the next one. Queries that take the place of those of the
  // tile before wait for its last product of keys: what that tile still needs is copied before them.
  void run() {
    int head = 0, token = -1, batch = 0;  // of the values that are due
    for (int parity = 0;; parity ^= 1) {
      barrier_wait(at.found(), parity);
      const AttentionTile& tile = known[place.at];
      place.next();
      if (tile.is_none()) {
        if (token >= 0) copy_values(head, token, batch);
        copy_queries(tile);
        return;
      }
      if (Q_STAGES > 1) copy_queries(tile);
      const int kv_head = tile.head / heads_a_kv_head, end = tile.end;
$if ends_evenly
      const int asking = asks_late(tile) ? end - LATE : -1;
$end
#pragma unroll 1
      for (int step = tile.first; step < end; ++step) {
        const int first = tile.first_key + step * BLOCK_N;
        copy_keys(kv_head, first, tile.batch);
        if (token >= 0) copy_values(head, token, batch);
        head = kv_head, token = first, batch = tile.batch;
        if (Q_STAGES == 1 && step == tile.first) copy_queries(tile);
        if (ADJUSTED) copy_adjustments(tile, first);
$if ends_evenly
        if (step == asking) barrier_arrive(at.wanted());
$end
      }
    }
  }
};

$if bits_apart
// A warp that makes which weights are kept.
struct BitMaker {
  const Places& at;
  const CallDropout& dropout;
  int heads;  // query heads
  int maker;  // which of four

  void run() const {
    Turn<TILES> place;
    Turn<BITS_STAGES> bits;
    for (int parity = 0;; parity ^= 1) {
      barrier_wait_all(at.found(), parity);
      const AttentionTile& tile = known[place.at];
      if (uniform(tile.rows) == 0) return;
      const int first = uniform(tile.first), end = uniform(tile.end);
      const RowBits<BLOCK_N> rows(dropout, at.chunks(maker), tile.first_row + maker * 32 + lane(), row_number(tile, heads));
      place.next();
      sync_warp();
      if (lane() == 0) barrier_arrive(at.wanted());
#pragma unroll 1
      for (int step = first; step < end; ++step) {
        uint32_t kept[4];
        rows.make(kept, step * BLOCK_N);
        const uint32_t full = at.bits_full(bits.at, maker);
        barrier_wait_all(empty(full), bits.parity ^ 1);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                     : : "r"(at.bits(bits.at, maker * 32 + lane())), "r"(kept[0]), "r"(kept[1]), "r"(kept[2]), "r"(kept[3]) : "memory");
        sync_warp();
        if (lane() == 0) barrier_arrive(full);
        bits.next();
      }
    }
  }
};
$end

// The tiles that have no step, by a warp that does nothing else.
static inline void finish_empty_tiles(const AttentionTiles& tiles, const Plain& plain) {
  AttentionTile tile;
  for (int number = block_x(); number < tiles.count; number += grid_x()) {
    if (!find_tile(tiles, plain, number, tile) || tile.first < tile.end) continue;
    plain.finish_empty<DV>(tile);
  }
}

// Rows that a warp of a consumer has stored, and whose outputs are not finite, once more by the definition. (Where a number says that a
// tile is this block's, and that is from an earlier call, another block writes the same outputs.)
static inline void repair_tiles(const AttentionTiles& tiles, const Plain& plain, const ScoreTile& given, TileNumbers<DYNAMIC> numbers,
                                int first_row) {
  sync_warp();
  AttentionTile tile;
  for (int number = DYNAMIC ? 0 : numbers.first(); number < tiles.count; number = DYNAMIC ? number + 1 : numbers.take()) {
    if (DYNAMIC && !numbers.owns(number)) continue;
    if (!find_tile(tiles, plain, number, tile) || !(NARROW || ADJUSTED || tile.hides) || tile.first >= tile.end) continue;
#pragma unroll 1
    for (int row = first_row; row < first_row + 16 && row < tile.rows; ++row)
      if (plain.is_broken<DV>(tile, row)) plain.attend<DV>(tile, row, tiles.range(tile, row), given.row(tile, row));
  }
}

struct Consumer {
  const Places& at;
  const AttentionTiles& tiles;
  const Plain& plain;
  const ScoreTile& given;
  const TensorMap& out;
  int32_t* taken;
  float unit, cap_unit, bias_unit;  // take scores to log 2; to what tanh is of; a bias to scores
  int part;  // which of the warpgroups that multiply
  bool broken;  // outputs that are not finite, where keys are hidden
  Turn<TILES> place;
  Turn<Q_STAGES> queries;
  Turn<STAGES> keys;  // of the next step; values have the places of the step before
  Turn<ADJUST_STAGES> adjusts;

  int warp_row() const { return part * 64 + warp() % 4 * 16; }
  static int own_lane() { return BITS_APART ? static_cast<int>(keep_here(thread_x()) % WARP) : lane(); }  // (keep_here: registers are few)
  int lane_row() const { return warp_row() + own_lane() / 4; }

  // The place of the next tile, or -1.
  int next_tile() {
    barrier_wait_all(at.q_full(queries.at, part), queries.parity);
    const int next = static_cast<int>(place.at);
    place.next();
    return uniform(known[next].rows) == 0 ? -1 : next;
  }

  void start(LaneRows& rows, const AttentionTile& tile) const {
    rows.reference[0] = rows.reference[1] = NARROW ? 0 : tile.reference;
    rows.sum[0] = rows.sum[1] = !NARROW && own_lane() % 4 == 0 ? tile.sum : 0;
  }

  // The softmax of a tile that is done with: to lse. Returns the factors of its outputs.
  void finish_sums(LaneRows& rows, const AttentionTile& tile, float (&factor)[2]) const {
    rows.add_up();
    float unit = 1;  // of outputs, in the row's reference
    if (NARROW) unit = rows.join(tile.reference, tile.sum);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane_row() + 8 * h;
      if (row < tile.rows && own_lane() % 4 == 0) store_lse(plain.lse, tile.sequence(), tile.place(row), rows.reference[h], rows.sum[h]);
      factor[h] = rows.sum[h] == 0 ? 0 : reciprocal(rows.sum[h]);
      if (NARROW) factor[h] *= unit;
      if (DROPPED) factor[h] *= plain.rule.kept;
    }
  }

  // Its outputs. A value that is not finite, behind a weight of 0, has made those of rows that do not see it NaN; large weights of large
  // values may have overflowed: then the definition decides, in the end.
  void finish(const float (&o)[DV / 2], const float (&factor)[2], const AttentionTile& tile) {
    if constexpr (STAGED) {
      send_rows<Element>(out, at.out(part), o, factor, tile.head, tile.first_row + warp_row(), tile.batch);
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = lane_row() + 8 * h;
        store_row(o, h, factor[h], plain.out_row(tile, row < tile.rows ? row : 0), row < tile.rows);
      }
    }
    float zero = 0;
#pragma unroll
    for (int i = 0; i < DV / 2; ++i) zero += o[i] * 0;
    broken = broken || (zero != 0 && (NARROW || ADJUSTED || tile.hides));
  }

  void multiply_keys(float (&s)[BLOCK_N / 2]) const {
    const uint64_t a = depth_major<128>(keep_here(at.q(queries.at, part))), b = depth_major<128>(keep_here(at.k(keys.at)));
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < (D + 15) / 16; ++slice)
      wgmma<Element, BLOCK_N>(s, moved(a, slice / 4 * Q_BOX + slice % 4 * 32), moved(b, slice / 4 * KEY_BOX + slice % 4 * 32), slice > 0);
    wgmma_commit();
  }

  void multiply_values(float (&o)[DV / 2], const uint32_t (&p)[BLOCK_N / 16][4], bool adds, const Turn<STAGES>& values) const {
    const uint64_t b = row_major<128>(keep_here(at.v(values.at)), BLOCK_N);
    keep_in_place(o);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < BLOCK_N / 16; ++slice) wgmma<Element, DV, true>(o, p[slice], moved(b, slice * 2048), adds || slice > 0);
    wgmma_commit();
  }

  // The queries of a tile have been read, the keys of a step; this thread says so for its warpgroup.
  void release_queries(bool done) {
    if (done && thread_x() % WARPGROUP == 0) barrier_arrive(empty(at.q_full(queries.at, part)));
    queries.next(done);
  }
  void release_keys() {
    if (thread_x() % WARPGROUP == 0) barrier_arrive(empty(at.k_full(keys.at)));
    keys.next();
  }
  void wait_values(const Turn<STAGES>& values) const { barrier_wait_all(at.v_full(values.at), values.parity); }
  void release_values(const Turn<STAGES>& values) const {
    if (thread_x() % WARPGROUP == 0) barrier_arrive(empty(at.v_full(values.at)));
  }

  // Whether the keys and values of the next products are here already.
  bool are_here() const {
    const Turn<STAGES> values = keys.last();
    return any_in_warp(barrier_test(at.k_full(keys.at), keys.parity) && barrier_test(at.v_full(values.at), values.parity));
  }

  // Whose turn it is to start products: named barrier 1 + part.
  void wait_for_turn() const {
    if (PING_PONG) sync_some(1 + part, 2 * WARPGROUP);
  }
  void pass_turn() const {
    if (PING_PONG) arrive_some(1 + (part + 1 == GROUPS ? 0 : part + 1), 2 * WARPGROUP);
  }

  // A tile's steps.
  struct Steps {
    int at, end, first_whole, end_whole;
    explicit Steps(const AttentionTile& tile)
        : at(uniform(tile.first)), end(uniform(tile.end)), first_whole(uniform(tile.first_whole)),
          end_whole(uniform(tile.end_whole)) {}
    bool is_last() const { return at + 1 == end; }
    bool is_whole() const { return at >= first_whole && at < end_whole; }  // every row sees every key of it
  };

  // What is given for the scores of the next step: while its products run.
  void read_adjustments(ScoreTile::Step& step) {
    if constexpr (ADJUSTED) {
      barrier_wait_all(at.adjust_full(adjusts.at), adjusts.parity);
      step.read(at.adjust(adjusts.at), warp_row());
      if (!ScoreTile::Step::STAYS) release_adjustments();
    }
  }
  void adjust(float (&s)[BLOCK_N / 2], const ScoreTile::Step& step) {
    if constexpr (ADJUSTED) {
      step.apply(s, bias_unit);
      if (ScoreTile::Step::STAYS) release_adjustments();
    }
  }
  void release_adjustments() {
    sync_warp();
    if (lane() == 0) barrier_arrive(empty(at.adjust_full(adjusts.at)));
    adjusts.next();
  }

  // Scores of a step become weights.
  bool weigh(float (&s)[BLOCK_N / 2], LaneRows& rows, const AttentionTile& tile, const Steps& steps, const ScoreTile::Step& given_here, float (&factor)[2]) {
    if constexpr (CAPPED && !ADJUSTED && IS_HALF<Element>)
      if (steps.is_whole() && rows.weigh_near(s, NearCap(cap_unit, unit))) return false;
    if constexpr (NARROW) {
      if (steps.is_whole()) return rows.weigh_narrow(s, cap_unit, unit), false;
    } else if constexpr (CAPPED && !ADJUSTED && !IS_HALF<Element>) {
      if (steps.is_whole()) return rows.weigh_capped(s, cap_unit, unit, factor);
    }
    if constexpr (CAPPED) cap_scores<Element>(s, NARROW ? made_here(cap_unit) : cap_unit);
    adjust(s, given_here);
    if (!steps.is_whole()) {
      const int me = NARROW ? keep_here(lane()) : lane(), row = warp_row() + me / 4, last = tile.rows - 1;
      const RowRange range[2] = {tiles.range(tile, row < last ? row : last), tiles.range(tile, row + 8 < last ? row + 8 : last)};
      LaneRows::hide(s, range, steps.at * BLOCK_N + me % 4 * 2);
$if segmented
      hide_segments(s, tile, steps.at, row, last);
$end
    }
    if constexpr (NARROW) return rows.weigh_hidden(s, unit), false;
    return rows.weigh(s, unit, factor);
  }
$if segmented

  void hide_segments(float (&s)[BLOCK_N / 2], const AttentionTile& tile, int step, int row, int last) const {
    const CallSegments& segments = plain.rule.segments;
    int own[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      own[h] = segments.query(tile.batch, tile.first_row + (row + 8 * h < last ? row + 8 * h : last));
      if (own[h] < 0) own[h] = -2;
    }
    segments.hide(s, own, tile.batch, step);
  }
$end
$if dropped

  // Which weights of a step are kept; it needs no scores.
$if bits_apart
  uint32_t bits_turn = 0;
  void find_kept(KeptWeights<BLOCK_N>& kept, const AttentionTile&, const Steps&) {
    const uint32_t thread = keep_here(thread_x() - WARPGROUP), stage = bits_turn % BITS_STAGES, full = at.bits_full(stage, thread / 64);
    barrier_wait_all(full, bits_turn / BITS_STAGES % 2);
    kept.read(at.bits(stage, thread / 32 * 16) + thread % 32 * 4);
    sync_warp();
    if (elect_one()) barrier_arrive(empty(full));
    ++bits_turn;
  }
$else
  void find_kept(KeptWeights<BLOCK_N>& kept, const AttentionTile& tile, const Steps& steps) const {
    kept.find(plain.rule.dropout, steps.at * BLOCK_N, tile.first_row + lane_row(), plain.rule.number(tile));
  }
$end
$end

  void run() {
    if (PING_PONG && part == GROUPS - 1) pass_turn();
    int tile = next_tile();
    if (tile < 0) return;
    float s[BLOCK_N / 2], o[DV / 2], factor[2];
    uint32_t p[BLOCK_N / 16][4];
    LaneRows rows;
    start(rows, known[tile]);
    Steps steps(known[tile]);
    bool adds = false;  // outputs are there to add to
    bool here = false;  // what the next products need: asked while weights are made
    barrier_wait_all(at.k_full(keys.at), keys.parity);
    multiply_keys(s);
$if dropped
    KeptWeights<BLOCK_N> kept;
    find_kept(kept, known[tile], steps);
$end
    ScoreTile::Step given_here;
    read_adjustments(given_here);
    wgmma_wait<0>();
    keep_in_place(s);
    release_keys();
    release_queries(steps.is_last());
    weigh(s, rows, known[tile], steps, given_here, factor);
$if dropped
    kept.drop(s);
$end
    pack_weights<Element, BLOCK_N>(p, s);
    for (;;) {
      const bool last = steps.is_last();
      const int done = tile;
      const Turn<STAGES> values = keys.last();
      float done_factor[2];
      ++steps.at;
      if (last) {
        finish_sums(rows, known[done], done_factor);
        tile = next_tile();
        if (tile < 0) {
          wait_values(values);
          wait_for_turn();
          multiply_values(o, p, adds, values);
          pass_turn();
          wgmma_wait<0>();
          keep_in_place(o);
          finish(o, done_factor, known[done]);
          break;
        }
        start(rows, known[tile]);
        steps = Steps(known[tile]);
      }
      if (!here) {
        barrier_wait_all(at.k_full(keys.at), keys.parity);
        wait_values(values);
      }
      wait_for_turn();
      multiply_keys(s);
$if dropped and not bits_apart
      find_kept(kept, known[tile], steps);  // here: the product with values is not started before this one has ended
$end
      multiply_values(o, p, adds, values);
      pass_turn();
$if bits_apart
      find_kept(kept, known[tile], steps);
$end
      adds = !last;
      read_adjustments(given_here);
      wgmma_wait<1>();
      keep_in_place(s);
      release_keys();
      release_queries(steps.is_last());
      const bool follows = weigh(s, rows, known[tile], steps, given_here, factor);
$if dropped
      kept.drop(s);
$end
      keep_in_place(s);
      here = ASKED && are_here();
      rows.made();
      wgmma_wait<0>();
      keep_in_place(o);
      release_values(values);
      if (last)
        finish(o, done_factor, known[done]);
      else if (follows)
        scale_rows(o, factor);
      pack_weights<Element, BLOCK_N>(p, s);
    }
    if (STAGED && lane() == 0) store_wait<0>();
    if (any_in_warp(broken)) repair_tiles(tiles, plain, given, TileNumbers<DYNAMIC>{taken, {}}, warp_row());
  }
};

KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    prefetch_tensor_map(q_map);
    prefetch_tensor_map(k_map);
    prefetch_tensor_map(v_map);
    for (uint32_t i = 0; i < Places::BARRIERS; ++i) {
      barrier_init(at.barrier(i), 1);
      barrier_init(empty(at.barrier(i)), i < Places::QUERIES ? 1 : i < Places::KEYS_AND_VALUES ? GROUPS : GROUPS * 4);
    }
    barrier_init(at.found(), 1);
    barrier_init(at.wanted(), 1 + 4 * BITS_APART);
$if bits_apart
    for (uint32_t i = 0; i < 4 * BITS_STAGES; ++i) {
      barrier_init(at.bits_full(0, i), 1);
      barrier_init(empty(at.bits_full(0, i)), 2);
    }
$end
    fence_barrier_init();
  }
  if (!DYNAMIC || SEGMENTED) wait_for_previous_launch();
  sync_block();
  if constexpr (CROWDED)
    for (const View* view : {&q_view, &k_view, &v_view, &out_view}) __builtin_assume(view->rank == (PACKED ? 3 : 4));
  const int q_heads = static_cast<int>(q_view.shape[q_view.rank - 2]), kv_heads = static_cast<int>(k_view.shape[k_view.rank - 2]);
$if ends_evenly
  const int last_heads = static_cast<int>(last_together);
$else
  constexpr int last_heads = 0;
$end
  const AttentionTiles tiles{{PACKED ? cum_seqlens_q : nullptr, PACKED ? cum_seqlens_k : nullptr, sequence_count, q_view.shape[q_view.rank - 3],
                              k_view.shape[k_view.rank - 3], offset_given, offset,
                              BOUNDED ? query_seq_lengths : nullptr, BOUNDED ? key_value_seq_lengths : nullptr},
                             causal, window_left, window_right, q_heads, static_cast<int>(row_blocks), static_cast<int>(heads_together),
                             static_cast<int>(tile_count), PACKED && DROPPED, last_heads};
$if segmented
  const CallSegments segments{q_segment_ids_view, kv_segment_ids_view, key_ids, key_ranges, static_cast<int>(key_steps)};
$else
  const CallSegments segments{};
$end
$if dropped
  const CallDropout dropout(drop_threshold, dropout_seed);
$else
  const CallDropout dropout{};
$end
  const Plain plain{Heads<const Element>(q_view), Heads<const Element>(k_view), Heads<const Element>(v_view), Heads<Element>(out_view),
                    softmax_aux_view, lse_view, sinks_type, D, softmax_scale, CAPPED ? logits_soft_cap : 0,
                    {segments, dropout, DROPPED && drop_threshold < 65536 ? 65536 / (65536 - drop_threshold) : DROPPED ? 0.0f : 1.0f, q_heads}};
$if adjust_stages > 0
  const ScoreTile given{bias_map, attention_mask_map, bias_view, attention_mask_view};
$else
  const ScoreTile given;
$end
  const int group = uniform(warpgroup());
  if (group == 0) {
    give_registers<PRODUCER_REGISTERS>();
$if ends_evenly
    const int first_late = q_heads * static_cast<int>(sequence_count) - last_heads;
    if (warp() == 0 && lane() == 0) Producer{at, q_map, k_map, v_map, given, q_heads / kv_heads, q_heads, first_late}.run();
$else
    if (warp() == 0 && lane() == 0) Producer{at, q_map, k_map, v_map, given, q_heads / kv_heads}.run();
$end
    if (warp() == 1) Finder{at, tiles, plain}.run({taken, {}});
    if (warp() == 2) finish_empty_tiles(tiles, plain);
$if bits_apart
  } else if (group == GROUPS + 1) {
    give_registers<BITS_REGISTERS>();
    BitMaker{at, dropout, q_heads, uniform(warp() % 4)}.run();
$end
  } else {
    take_registers<CONSUMER_REGISTERS>();
    constexpr float LEAST = ScoreTile::BIASED ? 1e-25f : 0;  // scores times it are as good as 0, a bias over it is finite
    const float to_natural = CAPPED ? logits_soft_cap : softmax_scale > LEAST ? softmax_scale : ScoreTile::BIASED ? LEAST : 1e-30f;
    const float cap_unit = CAPPED ? softmax_scale / logits_soft_cap : 0, bias_unit = ScoreTile::BIASED ? reciprocal(to_natural) : 0;
    Consumer{at, tiles, plain, given, out_map, taken, to_natural * LOG2_E, cap_unit, bias_unit, group - 1, false}.run();
  }
}
$if segmented

// A warp a step of a row of the batch. key_steps: of a row.
KERNEL(128, 1) look_at_keys(${parameters('look_at_keys')}) {
  let_next_launch_go();
  if (block_x() == 0 && thread_x() == 0) *taken = 0;
  const int number = block_x() * 4 + warp(), steps = static_cast<int>(key_steps), batch = number / steps;
  if (batch >= sequence_count) return;
  int64_t keys = kv_segment_ids_view.shape[1];
  if (BOUNDED && key_value_seq_lengths) keys = Sequences::limited(key_value_seq_lengths[batch], keys);
  CallSegments{q_segment_ids_view, kv_segment_ids_view, key_ids, key_ranges, steps}.look_at(batch, number - batch * steps, static_cast<int>(keys));
}
$elif dynamic

KERNEL(32, 1) reset(${parameters('reset')}) {
  let_next_launch_go();
  if (thread_x() == 0) *taken = 0;
}
$end
