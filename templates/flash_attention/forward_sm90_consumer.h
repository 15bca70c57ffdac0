// A warpgroup of Hopper's forward attention that multiplies: from scores to outputs, tile after tile. A part of forward.sm90.cu, whose constants it uses.
#pragma once

// Recomputes, by the plain definition, the rows of this warp whose stored outputs are not finite. A tile number left over from an earlier call may
// make two blocks recompute the same tile; both write the same values.
static inline void repair_tiles(const ${by_blocks ? 'ChunkedTiles' : 'AttentionTiles'}& tiles, const Plain& plain, const ScoreTile& given, Numbers numbers, int first_row) {
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
  const ${by_blocks ? 'ChunkedTiles' : 'AttentionTiles'}& tiles;
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
$if slides
      // Rows that are not the tile's go where there are none. (A branch here spills.)
      const int row = warp_row() < tile.rows ? tile.first_row + warp_row() : 1 << 30;
$end
      send_rows<Element>(out, at.out(part), o, factor, tile.head${latent ? ' + plain.rule.first_group_head' : ''}, ${slides ? 'row' : 'tile.first_row + warp_row()'}, tile.batch);
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
    if (thread_x() % WARPGROUP == 0) release_to_all(at.k_full(keys.at));
    keys.next();
  }
  void wait_values(const Turn<STAGES>& values) const { barrier_wait_all(at.v_full(values.at), values.parity); }
  void release_values(const Turn<STAGES>& values) const {
    if (thread_x() % WARPGROUP == 0) release_to_all(at.v_full(values.at));
  }

$if by_blocks
  // Of the step whose keys are here.
  int number_here() const { return uniform(*static_cast<volatile const int*>(step_number + step_place(keys))); }
$end
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
$if by_blocks
    int number = 0;  // of the step among those of all keys
    bool is_whole() const { return number >= first_whole && number < end_whole; }
$else
    bool is_whole() const { return at >= first_whole && at < end_whole; }  // every row sees every key of it
$end
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
      LaneRows::hide(s, range, steps.${by_blocks ? 'number' : 'at'} * BLOCK_N + me % 4 * 2);
$if segmented
      hide_segments(s, tile, steps.${by_blocks ? 'number' : 'at'}, row, last);
$end
    }
    if constexpr (NARROW) return rows.weigh_hidden(s, unit), false;
$if biased != 'none'
    return weigh_biased(s, rows, factor);
  }
  // As LaneRows::weigh(), but a product is rounded before the reference is taken off, as the reference's was: where all of a row's biases are the least one, their last
  // bits in units of log 2 are thousands, and a fused product less its rounded self is no longer 0.
  bool weigh_biased(float (&s)[BLOCK_N / 2], LaneRows& rows, float (&factor)[2]) const {
    float largest[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      largest[h] = s[2 * h];
#pragma unroll
      for (int j = 2 * h; j < BLOCK_N / 2; j += 4) largest[h] = larger_of(largest[h], larger_of(s[j], s[j + 1]));
    }
    const bool follows = any_in_warp(largest[0] * unit > rows.reference[0] + HEADROOM || largest[1] * unit > rows.reference[1] + HEADROOM);
    if (follows) rows.follow(largest, unit, factor);
    rows.add_weights(s, [&](float x, float from) { return __fmul_rn(x, unit) - from; });
    return follows;
  }
$else
    return rows.weigh(s, unit, factor);
  }
$end
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
    kept.find(plain.rule.dropout, steps.${by_blocks ? 'number' : 'at'} * BLOCK_N, tile.first_row + lane_row(), plain.rule.number(tile));
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
$if by_blocks
    steps.number = number_here();
$end
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
$if by_blocks and not dropped
      if (SWITCHES && last) {
        if (!here) wait_values(values);
        multiply_values(o, p, adds, values);
        finish_sums(rows, known[done], done_factor);
        tile = next_tile();
        if (tile < 0) {
          wgmma_wait<0>();
          keep_in_place(o);
          finish(o, done_factor, known[done]);
          break;
        }
        start(rows, known[tile]);
        steps = Steps(known[tile]);
        if (!here) barrier_wait_all(at.k_full(keys.at), keys.parity);
        wgmma_wait<0>();
        keep_in_place(o);
        multiply_keys(s);
        release_values(values);
        steps.number = number_here();
        adds = false;
        finish(o, done_factor, known[done]);
        wgmma_wait<0>();
        keep_in_place(s);
        release_keys();
        release_queries(steps.is_last());
        weigh(s, rows, known[tile], steps, given_here, factor);
        here = ASKED && are_here();
        pack_weights<Element, BLOCK_N>(p, s);
        continue;
      }
$end
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
$if by_blocks and dropped
      steps.number = number_here();
$end
      wait_for_turn();
      multiply_keys(s);
$if dropped and not bits_apart
      find_kept(kept, known[tile], steps);  // here: the product with values is not started before this one has ended
$end
      multiply_values(o, p, adds, values);
      pass_turn();
$if by_blocks and not dropped
      steps.number = number_here();  // while products run
$end
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
    if (any_in_warp(broken)) repair_tiles(tiles, plain, given, Numbers{taken}, warp_row());
  }
};
