// The warps of Hopper's forward attention that find tiles, copy what they need, and make dropout's bits. A part of forward.sm90.cu, whose constants it uses.
#pragma once

// A warp that makes tiles known, one ahead of their copies.
struct Finder {
  const Places& at;
  const ${by_blocks ? 'ChunkedTiles' : 'AttentionTiles'}& tiles;
  const Plain& plain;

  void run(Numbers numbers) const {
    Turn<TILES> place;
    bool waits = ${by_blocks ? 'true' : 'DYNAMIC'};  // until `taken` is zero or was set by a launch; what else is read was there before, but for lists
    for (int number = numbers.first(), parity = 0;; number = numbers.take()) {
      AttentionTile tile = AttentionTile::none();
      float reference = 0, sum = 0;
      if (number < tiles.count) {
        numbers.own(number);
$if by_blocks
        find_tile(tiles, plain, number, tile, waits);
        waits = false;
        if (tile.first >= tile.end) continue;
$else
        if (waits) wait_for_previous_launch();
        waits = false;
        if (!find_tile(tiles, plain, number, tile) || tile.first >= tile.end) continue;
$end
        if (lane() == 0) known[place.at] = tile;
$if by_blocks
        if (lane() == 0) first_number[place.at] = plain.rule.blocks.of(tile)[tile.first];
$end
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
$if by_blocks
  const TileSteps& blocks;
$end
$if latent
  const TensorMap &q_rope, &k_rope;
  int first_group_head;
$end
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
$if by_blocks
  bool asks_late(const AttentionTile& tile) const { return Q_STAGES == 1 || tile.batch * heads + tile.head >= first_late; }
$else
  bool asks_late(const AttentionTile& tile) const {
    return tile.end - tile.first > LATE && (Q_STAGES == 1 || tile.batch * heads + tile.head >= first_late);
  }
$end
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
$if latent
      const int head = first_group_head + tile.head, token = tile.first_row + part * 64;
#pragma unroll
      for (int i = 0; i < BOXES; ++i)
        copy_box(at.q(queries.at, part) + i * Q_BOX, i < NOPE_BOXES ? q : q_rope, full, i < NOPE_BOXES ? i : i - NOPE_BOXES, head, token, tile.batch);
$else
#pragma unroll
      for (int i = 0; i < BOXES; ++i)
        copy_box(at.q(queries.at, part) + i * Q_BOX, q, full, i, tile.head, tile.first_query + tile.first_row + part * 64, tile.batch);
$end
    }
    queries.next();
$if ends_evenly
    if (!tile.is_none() && !asks_late(tile)) barrier_arrive(at.wanted());
$else
    if (!tile.is_none()) barrier_arrive(at.wanted());
$end
  }
  void copy_keys(int head, int token, int batch${by_blocks ? (packed ? ', int number' : '') : ''}) {
    const uint32_t full = at.k_full(keys.at);
    barrier_wait(empty(full), keys.parity ^ 1);
$if by_blocks
    step_number[step_place(keys)] = ${packed ? 'number' : 'token / BLOCK_N'};
$end
    barrier_arrive_expect(full, K_BYTES);
$if latent
    copy_step<NOPE_BOXES>(at.k(keys.at), k, full, head, token, batch);
#pragma unroll
    for (int i = NOPE_BOXES; i < BOXES; ++i) load_tile(at.k(keys.at) + i * KEY_BOX, k_rope, full, {64 * (i - NOPE_BOXES), token, batch});
$else
    copy_step<BOXES>(at.k(keys.at), k, full, head, token, batch);
$end
    keys.next();
  }
  void copy_values(int head, int token, int batch) {
    const uint32_t full = at.v_full(values.at);
    barrier_wait(empty(full), values.parity ^ 1);
    barrier_arrive_expect(full, V_BYTES);
    copy_step<V_BOXES>(at.v(values.at), v, full, head, token, batch);
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
$if by_blocks
      int next_number = first_number[place.at];
$end
      place.next();
      if (tile.is_none()) {
        if (token >= 0) copy_values(head, token, batch);
        copy_queries(tile);
        return;
      }
      if (Q_STAGES > 1) copy_queries(tile);
      const int kv_head = tile.head / heads_a_kv_head, end = tile.end;
$if ends_evenly
      const int asking = asks_late(tile) ? ${by_blocks ? 'end - LATE < tile.first ? tile.first : ' : ''}end - LATE : -1;
$end
$if by_blocks
      const int32_t* const numbers = blocks.of(tile);
$end
#pragma unroll 1
      for (int step = tile.first; step < end; ++step) {
$if by_blocks
        const int first = ${packed ? 'tile.first_key + ' : ''}next_number * BLOCK_N;
$if packed
        const int number = next_number;
$end
        if (step + 1 < end) next_number = numbers[step + 1];  // it is waited for a step later
$else
        const int first = tile.first_key + step * BLOCK_N;
$end
        copy_keys(kv_head, first, tile.batch${by_blocks ? (packed ? ', number' : '') : ''});
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
// A warp that makes which weights are kept. Its lanes' stores are ordered before the readers' loads by sync_warp() and one lane's arrival, and the
// readers' loads before the next stores likewise; racecheck does not follow an order that goes through another lane.
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
static inline void finish_empty_tiles(const ${by_blocks ? 'ChunkedTiles' : 'AttentionTiles'}& tiles, const Plain& plain) {
  AttentionTile tile;
  for (int number = Turns::own(); number < tiles.count; number += Turns::takers()) {
    if (!find_tile(tiles, plain, number, tile) || tile.first < tile.end) continue;
    plain.finish_empty<DV>(tile);
  }
}
