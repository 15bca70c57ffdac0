// A warpgroup of ragged_page_attention on Hopper that multiplies: from scores to outputs, item after item. Part of attend.sm90.cu, whose constants it uses.
//
// The compiler keeps steps, places and descriptors in the warp's own registers only while it knows that the lanes are together: what some of them do alone ends in
// sync_warp(), or it forgets in all of the kernel, and each wait and each product needs more instructions.
#pragma once

// What a warpgroup has had: numbers of items whose streams' parts it is to add up in the end, the first ones here, others on a list whose last one is last_added;
// the last one on a list of those whose outputs it has stored; negative: none. And whether it has stored outputs that are not finite.
constexpr int AT_HAND = WARP;
__shared__ int added[GROUPS][AT_HAND], added_count[GROUPS], last_added[GROUPS], last_whole[GROUPS], broken_rows[GROUPS];

// What the second warpgroup has of the rows of a shared item.
__shared__ LaneRows merged_rows[MERGED_UNITS + 1][8];

struct Consumer {
  const Places& at;
  const RaggedQueue& list;
  const Parts& parts;
  const RowEnd& ends;
  const PlainRows& plain;
  const Units& units;
  int32_t* links;  // of items, by warpgroup: the one before it on a list
  int heads_a_kv_head, group_tokens;
  int part;  // which of the warpgroups that multiply
  int own_tokens = quotient(lane_row(), heads_a_kv_head) | quotient(lane_row() + 8, heads_a_kv_head) << 16;  // of this lane's two rows
  Turn<ITEMS> place = {};
  Turn<Q_STAGES> queries = {};
  Turn<STAGES> keys = {}, values = {};  // of the next step; of the step before, whose weights are there

  // Of this thread; what is made of it is not kept in registers between uses that are rare.
  static int lane_here() { return static_cast<int>(keep_here(thread_x()) % WARP); }
  static int thread_here() { return static_cast<int>(keep_here(thread_x()) % WARPGROUP); }
  static int warp_row() { return warp() % 4 * 16; }
  static int lane_row() { return warp_row() + lane() / 4; }

  // What this warpgroup has of an item: tokens from `token` on, rows. What decides branches is made uniform (device/sm90/sm90_uniform.h), here and below.
  int token_of(const RaggedItem& item) const { return uniform(item.wide) ? part * group_tokens : 0; }
  int rows_of(const RaggedItem& item) const {
    const int tokens = uniform(item.tokens), wide = uniform(item.wide), shared = uniform(item.shared);
    const int own = wide ? smaller_of(tokens - part * group_tokens, group_tokens) : part == 0 || shared ? tokens : 0;
    return larger_of(own, 0) * heads_a_kv_head;
  }
  bool has_rows(const RaggedItem& item) const { return any_in_warp(warp_row() < rows_of(item)); }
  static bool is_cut(const RaggedItem& item) { return uniform(item.slot) >= 0; }

  // The place of the next item, or -1.
  int next_item() {
    barrier_wait_all(at.q_full(queries.at, part), queries.parity);
    const int next = static_cast<int>(place.at);
    place.next();
    return uniform(known[next].number) < 0 ? -1 : next;
  }
  static void start(LaneRows& rows) { rows.reference[0] = rows.reference[1] = LOWEST, rows.sum[0] = rows.sum[1] = 0; }

  Steps steps_of(const KnownItem& of) const { return Steps(of, token_of(of.item)); }

  // The softmax of an item that is done with: to lse, or to where the part waits. Returns the factors of its outputs.
  // added: the sums are of all lanes already.
  void finish_sums(LaneRows& rows, const KnownItem& of, float (&factor)[2], bool added = false) const {
    if (!added) rows.add_up();
    if (is_cut(of.item)) {
      if (has_rows(of.item)) parts.store_softmax(own_unit(of.item), rows);
      return;
    }
    end_rows<true>(rows, of, warp_row(), factor);
  }
  // OWN: it is row h of this lane, whose token is known.
  template <bool OWN> Row place_of(int row, int h) const {
    const int token = OWN ? row == 0 ? 0 : h == 0 ? own_tokens & 0xffff : own_tokens >> 16 : quotient(row, heads_a_kv_head);
    return {token, row - token * heads_a_kv_head};
  }
  // first_row: of the 16 that the warp has. Returns the factors of this lane's rows.
  template <bool OWN> void end_rows(const LaneRows& rows, const KnownItem& of, int first_row, float (&factor)[2]) const {
    const int count = rows_of(of.item), first_token = of.item.token + token_of(of.item);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + lane_here() / 4 + 8 * h;
      const Row place = place_of<OWN>(row < count ? row : 0, h);
      const int head = of.item.kv_head * heads_a_kv_head + place.head;
      const Softmax keys_alone{rows.reference[h], rows.sum[h]}, end = with_sinks(ends, keys_alone, head);
      factor[h] = scale_of(keys_alone, end) * of.v_factor;
      float* const lse = static_cast<float*>(ends.lse.data);
      const float value = lse_of(end);
      if ((row < count) & (lane_here() % 4 == 0) & (lse != nullptr)) lse[ends.lse.at(first_token + place.token, head)] = value;
    }
    sync_warp();
  }

  // Parts of a stream: units of 16 rows a part, and this warp's.
  int units_of(const RaggedItem& item) const { return uniform(item.wide) ? 4 : (uniform(item.tokens) * heads_a_kv_head + 15) / 16; }
  int own_unit(const RaggedItem& item) const {
    const int piece = uniform(item.piece), number = uniform(item.wide + item.apart) ? piece * GROUPS + part : piece;
    return uniform(item.slot) + number * units_of(item) + warp() % 4;
  }

  // Features from `first` on.
  template <bool OWN, int N> void store_rows(const float (&o)[N], const float (&factor)[2], const KnownItem& of, int first_row, int first) const {
    const int count = rows_of(of.item), first_token = of.item.token + token_of(of.item);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + lane_here() / 4 + 8 * h;
      const Row place = place_of<OWN>(row < count ? row : 0, h);
      Element* const to = plain.out_row(first_token + place.token, of.item.kv_head * heads_a_kv_head + place.head);
      store_row(o, h, factor[h], to + first, row < count);
    }
    float zero[4] = {};  // more than one, so that none waits for all others
#pragma unroll
    for (int i = 0; i < N; ++i) zero[i % 4] += o[i] * 0;
    if (zero[0] + zero[1] + zero[2] + zero[3] != 0) broken_rows[part] = 1;
  }
  // By one thread of the warpgroup.
  void link(int number, int& last) const {
    links[number * GROUPS + part] = last;
    last = number;
  }
  void add_in_the_end(int number) const {
    if (added_count[part] < AT_HAND)
      added[part][added_count[part]++] = number;
    else
      link(number, last_added[part]);
  }

  // Its outputs, or a part of them.
  void finish(const float (&o)[D / 2], const float (&factor)[2], const KnownItem& of) const {
    const RaggedItem& item = of.item;
    const bool first_thread = thread_here() == 0;
    if (rows_of(item) == 0) return;
    if (!is_cut(item)) {
      store_rows<true>(o, factor, of, warp_row(), 0);
      if (first_thread) link(of.number, last_whole[part]);
      sync_warp();
      return;
    }
    if (has_rows(item)) parts.store(own_unit(item), o);
    wait_for_previous_launch();  // the list's, which has set what is counted here to 0: a first item may have been known before
    asm volatile("fence.acq_rel.gpu;" : : : "memory");
    sync_some(1 + part, WARPGROUP);
    if (first_thread && atomicAdd(parts.arrived + item.slot + (item.wide ? part : 0), 1) == item.pieces * (item.apart ? GROUPS : 1) - 1) add_in_the_end(of.number);
    sync_warp();
  }
  static int parts_of(const RaggedItem& item) { return uniform(item.pieces) * (uniform(item.apart) ? GROUPS : 1); }

  // Rows of a stream whose last part this warpgroup had: the sum of the parts, which all have arrived. Unit: 16 rows.
  void add_up(const KnownItem& of, int unit) const {
    const RaggedItem& item = of.item;
    const int wide = uniform(item.wide), units = units_of(item), step = wide ? GROUPS * units : units;
    const int first = uniform(item.slot) + (wide ? part * units : 0) + unit;
    const LaneRows rows = parts.softmax_of(first, step, parts_of(item));
    float x[32], factor[2];
    end_rows<false>(rows, of, 16 * unit, factor);
#pragma unroll 1
    for (int features = 0; features < D; features += 64) {
      parts.add_up(x, rows, features, first, step, parts_of(item));
      store_rows<false>(x, factor, of, 16 * unit, features);
    }
  }
  // Recomputes, by the definition, those of 16 rows that are not finite: a value that is not, behind a weight of 0, has made those of rows that do not see it NaN.
  void repair(const KnownItem& of, int unit) const {
    if (uniform(of.item.tokens) <= 1) return;
    const int end = smaller_of(16 * unit + 16, rows_of(of.item));
#pragma unroll 1
    for (int row = 16 * unit; row < end; ++row) {
      const int in_item = quotient(row, heads_a_kv_head), head = of.item.kv_head * heads_a_kv_head + row - in_item * heads_a_kv_head;
      const int token = of.item.token + token_of(of.item) + in_item;
      if (plain.is_broken(token, head)) plain.attend(of, token, head);
    }
  }
  // Units of 16 rows of items of warpgroup `part`, which is any here, by all warps that multiply, a warp each: of items at hand, which are all loaded at once, and then
  // of those on a list. Rows of wide items are the warpgroup's own.
  template <class Work> void each_unit(int at_hand, int last, const Work& work) const {
    const int own_turn = uniform(warp() - 4);
    const ItemWords own(list.item(lane() < at_hand ? added[part][lane()] : 0));
    int turn = 4 * part;
#pragma unroll 1
    for (int i = 0, next = uniform(last); i < at_hand || next >= 0; ++i) {
      ItemWords words = own;
      int number = next;
      if (i < at_hand) {
        number = uniform(added[part][i]);
#pragma unroll
        for (int k = 0; k < ITEM_WORDS; ++k) words.part[k / 4].at[k % 4] = shuffle(own.part[k / 4].at[k % 4], i);
      } else {
        words = ItemWords(list.item(number));
        next = uniform(links[number * GROUPS + part]);
      }
      KnownItem of{words.item()};
      of.number = number;
      units.fill(of);
      const int rows = rows_of(of.item);
#pragma unroll 1
      for (int unit = 0; 16 * unit < rows; ++unit, ++turn)
        if (turn % (4 * GROUPS) == own_turn) work(of, unit);
    }
  }
  void end() {
    wait_for_previous_launch();
    asm volatile("fence.acq_rel.gpu;" : : : "memory");
    sync_some(1 + GROUPS, GROUPS * WARPGROUP);
#pragma unroll 1
    for (part = 0; part < GROUPS; ++part)
      each_unit(uniform(added_count[part]), last_added[part], [&](const KnownItem& of, int unit) { this->add_up(of, unit); });
    sync_some(1 + GROUPS, GROUPS * WARPGROUP);
#pragma unroll 1
    for (part = 0; part < GROUPS; ++part) {
      if (uniform(broken_rows[part]) == 0) continue;
      const auto repair_unit = [&](const KnownItem& of, int unit) { this->repair(of, unit); };
      each_unit(uniform(added_count[part]), last_added[part], repair_unit);
      each_unit(0, last_whole[part], repair_unit);
    }
  }

  // Of the next product: made here.
  Operands next_operands() const { return {made_here(depth_major<128>(at.q(queries.at, part))), made_here(depth_major<128>(at.k(keys.at)))}; }
  // KEPT: by queries in registers.
  template <int KEPT> void multiply_keys(float (&s)[BLOCK_N / 2], const KeptQueries& q) const { multiply_keys<KEPT>(s, q, next_operands()); }
  template <int KEPT> void multiply_keys(float (&s)[BLOCK_N / 2], const KeptQueries& q, const Operands& operands) const {
    const uint64_t a = operands.queries, b = operands.keys;
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < SLICES; ++i) {
      const uint64_t key = onward(b, i / 4 * KEY_BOX + i % 4 * 32);
      if (i < KEPT) wgmma<Element, BLOCK_N>(s, q.slice[i], key, i > 0);
      else wgmma<Element, BLOCK_N>(s, onward(a, i / 4 * Q_BOX + i % 4 * 32), key, i > 0);
    }
    wgmma_commit();
  }
  void multiply_values(float (&o)[D / 2], const uint32_t (&p)[BLOCK_N / 16][4], bool adds) const {
    const uint64_t b = row_major<128>(keep_here(at.v(values.at)), BLOCK_N);
    keep_in_place(o);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < BLOCK_N / 16; ++slice) wgmma<Weight, D, true>(o, p[slice], onward(b, slice * 2048), adds || slice > 0);
    wgmma_commit();
  }

  // The queries of an item have been read, the keys or values of a step; this thread says so for its warpgroup.
  void release_queries(bool done) {
    if (done && thread_x() % WARPGROUP == 0) barrier_arrive(empty(at.q_full(queries.at, part)));
    queries.next(done);
  }
  // An item's queries to registers, where they are kept; others may take their place then.
  void load_queries(KeptQueries& q) {
    if (KEPT_SLICES > 0) q.load(at.q(queries.at, part), warp_row());
    if (!KEEPS_QUERIES) return;
    sync_some(1 + part, WARPGROUP);
    release_queries(true);
  }
  void release_keys() { release_keys(keys_released()); }
  void release_keys(uint32_t barrier) {
    if (thread_x() % WARPGROUP == 0) barrier_arrive(barrier);
    keys.next();
  }
  void release_values() { release_values(values_released()); }
  void release_values(uint32_t barrier) {
    if (thread_x() % WARPGROUP == 0) barrier_arrive(barrier);
    values.next();
  }
  // Which barrier that is: asked before products are awaited.
  uint32_t keys_released() const { return empty(at.k_full(keys.at)); }
  uint32_t values_released() const { return empty(at.v_full(values.at)); }
  void wait_keys() const { barrier_wait_all(at.k_full(keys.at), keys.parity); }
  void wait_values() const { barrier_wait_all(at.v_full(values.at), values.parity); }
  // Steps that other warpgroups have.
  void pass_keys(int count) {
#pragma unroll 1
    for (int i = count; i > 0; --i) wait_keys(), release_keys();
  }
  void pass_values(int count) {
#pragma unroll 1
    for (int i = count; i > 0; --i) wait_values(), release_values();
  }
  // Whether the keys and values of the next products are here already, where those of the last ones are not released yet.
  bool are_here() const {
    Turn<STAGES> next = values;
    next.next();
    return any_in_warp(barrier_test(at.k_full(keys.at), keys.parity) && barrier_test(at.v_full(next.at), next.parity));
  }

  // Values of a step outside of [first, end) become zeros: slots that no sequence has filled, or that nobody sees, may hold anything.
  void clear_values(int first, int end) const {
#pragma unroll 1
    for (int i = thread_here(); i < BLOCK_N * 8 * HALVES; i += WARPGROUP) {
      const int row = i / (8 * HALVES);
      if (row >= first && row < end) continue;
      const uint32_t to = at.v(values.at) + i % HALVES * KEY_BOX + row * 128 + i / HALVES % 8 * 16;
      asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" : : "r"(to), "r"(0) : "memory");
    }
    fence_async();
    sync_some(1 + part, WARPGROUP);
  }

  // Scores of a step become weights.
  bool weigh(float (&s)[BLOCK_N / 2], LaneRows& rows, const KnownItem& of, const Steps& steps, float (&factor)[2]) const {
    if constexpr (CAPPED && IS_HALF<Element>) {
      if (steps.is_whole() && rows.weigh_near(s, NearCap(of.cap_unit, of.unit))) return false;
    } else if constexpr (CAPPED) {
      if (steps.is_whole()) return rows.weigh_capped(s, of.cap_unit, of.unit, factor);
    }
    if constexpr (CAPPED) cap_scores<Element>(s, of.cap_unit);
    if (!steps.is_whole()) {
      if (!CAPPED && of.negative) {
#pragma unroll
        for (int j = 0; j < BLOCK_N / 2; ++j) s[j] = -s[j];
      }
      const RowRange range[2] = {steps.range(own_tokens & 0xffff, units.window), steps.range(own_tokens >> 16, units.window)};
      LaneRows::hide(s, range, steps.at * BLOCK_N + lane_here() % 4 * 2);
    }
    return rows.weigh(s, of.unit, factor);
  }

  // What both warpgroups have of a shared item becomes the first one's; true for that. It goes through the place of the second one's queries.
  bool merge(float (&o)[D / 2], LaneRows& rows, const RaggedItem& item) {
    const int unit = uniform(warp() % 4), all = GROUPS * WARPGROUP;
    const bool has = has_rows(item);
    const uint32_t place = at.q(queries.at, 1) + (unit * (D / 8) * WARP + lane()) * 16;
    LaneRows& theirs = merged_rows[unit % (MERGED_UNITS + 1)][lane() / 4];
    rows.add_up();
    if (part > 0) {
      sync_some(1 + part, WARPGROUP);  // all warps have read their queries
      if (has) {
        if (lane() % 4 == 0) theirs = rows;
        sync_warp();
#pragma unroll
        for (int i = 0; i < D / 8; ++i)
          asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                       : : "r"(place + i * 16 * WARP), "f"(o[4 * i]), "f"(o[4 * i + 1]), "f"(o[4 * i + 2]), "f"(o[4 * i + 3]) : "memory");
      }
      arrive_some(1 + GROUPS, all);
      queries.next();
      return false;
    }
    sync_some(1 + GROUPS, all);
    if (has) {
      float own_factor[2], factor[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float reference = larger_of(rows.reference[h], theirs.reference[h]);
        own_factor[h] = exp2_of(rows.reference[h] - reference), factor[h] = exp2_of(theirs.reference[h] - reference);
        rows.sum[h] = rows.sum[h] * own_factor[h] + theirs.sum[h] * factor[h];
        rows.reference[h] = reference;
      }
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        float x[4];
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(place + i * 16 * WARP) : "memory");
#pragma unroll
        for (int k = 0; k < 4; ++k) o[4 * i + k] = o[4 * i + k] * own_factor[k / 2] + x[k] * factor[k / 2];
      }
      fence_async();
    }
    sync_some(1 + part, WARPGROUP);
    if (thread_x() % WARPGROUP == 0) {
#pragma unroll
      for (int i = 0; i < GROUPS; ++i) barrier_arrive(empty(at.q_full(queries.at, i)));
    }
    sync_warp();
    queries.next();
    return true;
  }

  // An item whose steps the warpgroups take in turn: it waits for memory, so that nothing is held for the sake of products that run together.
  void run_shared(const KnownItem& of, float (&s)[BLOCK_N / 2], float (&o)[D / 2], uint32_t (&p)[BLOCK_N / 16][4]) {
    float factor[2];
    LaneRows rows;
    start(rows);
    Steps steps = steps_of(of);
    bool adds = false;
    int passed = part;  // steps that others have, before the next one
    pass_keys(passed);
    steps.at += part;
    for (;;) {
      const bool last = steps.at + GROUPS >= steps.end;
      wait_keys();
      multiply_keys<0>(s, {});
      pass_values(passed);  // by now they are there, or the other warpgroup waits for them too: their places are free the sooner
      wgmma_wait<0>();
      keep_in_place(s);
      release_keys();
      release_queries(last && uniform(of.item.apart));
      const bool follows = weigh(s, rows, of, steps, factor);
      pack_weights<Weight, BLOCK_N>(p, s);
      wait_values();
      const int filled = steps.keys - steps.at * BLOCK_N, unseen = steps.first_key - steps.at * BLOCK_N;
      if (filled < BLOCK_N || unseen > 0) clear_values(unseen, filled);
      if (follows && adds) scale_rows(o, factor);
      multiply_values(o, p, adds);
      wgmma_wait<0>();
      keep_in_place(o);
      release_values();
      adds = true;
      passed = last ? steps.end - 1 - steps.at : GROUPS - 1;
      pass_keys(passed);
      if (last) break;
      steps.at += GROUPS;
    }
    pass_values(passed);
    if constexpr (MERGED_UNITS == 0) {
      finish_sums(rows, of, factor);
      finish(o, factor, of);
    } else if (const bool here = uniform(of.item.apart) == 0; !here || merge(o, rows, of.item)) {
      finish_sums(rows, of, factor, here);
      finish(o, factor, of);
    }
  }
  static bool is_shared(int item) { return uniform(known[item].item.shared) != 0; }

  void run() {
    float s[BLOCK_N / 2], o[D / 2];
    uint32_t p[BLOCK_N / 16][4];
    int item = next_item();
    while (item >= 0) {
      if (is_shared(item)) {
        run_shared(known[item], s, o, p);
        item = next_item();
      } else {
        item = run_whole(item, s, o, p);
      }
    }
    end();
  }

  // An item, and those after it that are not shared. Returns the next one.
  int run_whole(int item, float (&s)[BLOCK_N / 2], float (&o)[D / 2], uint32_t (&p)[BLOCK_N / 16][4]) {
    float factor[2];
    LaneRows rows;
    start(rows);
    Steps steps = steps_of(known[item]);
    bool adds = false;  // outputs are there to add to
    bool here = false;  // what the next products need: asked while weights are made
    KeptQueries q;
    load_queries(q);
    wait_keys();
    multiply_keys<KEPT_SLICES>(s, q);
    wgmma_wait<0>();
    keep_in_place(s);
    release_keys();
    if (!KEEPS_QUERIES) release_queries(steps.is_last());
    weigh(s, rows, known[item], steps, factor);
    pack_weights<Weight, BLOCK_N>(p, s);
    // Asked before a step's products are awaited, so that the next ones start without delay.
    bool last = any_in_warp(steps.is_last()), clears = any_in_warp(steps.is_partly_unseen());
    Operands operands = next_operands();
    for (;;) {
      const int done = item, first = steps.at * BLOCK_N, filled = steps.keys - first, unseen = steps.first_key - first;
      float done_factor[2];
      ++steps.at;
      if (last) {
        finish_sums(rows, known[done], done_factor);
        item = next_item();
        if (item < 0 || is_shared(item)) {
          wait_values();
          if (clears) clear_values(unseen, filled);
          multiply_values(o, p, adds);
          wgmma_wait<0>();
          keep_in_place(o);
          release_values();
          finish(o, done_factor, known[done]);
          return item;
        }
        start(rows);
        steps = steps_of(known[item]);
        load_queries(q);
      }
      if (!here) {
        wait_keys();
        wait_values();
      }
      if (clears) clear_values(unseen, filled);
      multiply_keys<KEPT_SLICES>(s, q, operands);
      multiply_values(o, p, adds);
      adds = !last;
      const uint32_t read_keys = keep_here(keys_released());
      wgmma_wait<1>();
      keep_in_place(s);
      release_keys(read_keys);
      if (!KEEPS_QUERIES) release_queries(steps.is_last());
      const bool follows = weigh(s, rows, known[item], steps, factor);
      keep_in_place(s);
      here = are_here();
      const bool ended = last;
      last = any_in_warp(steps.is_last()), clears = any_in_warp(steps.is_partly_unseen());
      operands = next_operands();
      const uint32_t read_values = keep_here(values_released());
      rows.made();
      wgmma_wait<0>();
      keep_in_place(o);
      release_values(read_values);
      if (ended)
        finish(o, done_factor, known[done]);
      else if (follows)
        scale_rows(o, factor);
      pack_weights<Weight, BLOCK_N>(p, s);
    }
  }
};
