// The warps of ragged_page_attention on Hopper that copy, one queries, one keys, one values: a lane a box. Part of attend.sm90.cu, whose constants it uses.
#pragma once

struct Producer {
  static constexpr int WIDTH = BYTES ? D : 64, PARTS = D / WIDTH;    // features of a box, boxes of a key
  static constexpr int RUNS = BLOCK_N / BOX, BOXES = RUNS * PARTS;   // of a step
  static constexpr uint32_t BOX_BYTES = BOX * WIDTH * sizeof(Cached), PART_BYTES = KEY_BOX;
  static constexpr uint32_t COPIED_STAGES = BYTES ? RAW_STAGES : STAGES;
  static constexpr int ASKED = AHEAD;                                // steps of an item that the L2 cache is asked for
  static_assert(BOXES <= WARP);
  const Places& at;
  const TensorMap &q, &kv;
  const int32_t* tables;
  int64_t table_stride;
  int heads_a_kv_head, group_tokens;

  static int run_of_lane() { return lane() / PARTS; }

  // What a warp needs of an item, the same in all lanes.
  struct Steps {
    int first, end, keys, first_seen;  // first, end: steps; boxes before key first_seen are not copied: their pages may be no pages
    int there;                         // keys from here on may be there when the launch before this one has ended
    int row;                           // of a slot: kv head's key
    const int32_t* table;
    Keep keep;
    bool has_box(int key) const { return lane() < BOXES && key < keys && key + BOX > first_seen; }
    uint32_t bytes(int key) const {
      const int runs = (keys - key + BOX - 1) / BOX, before = larger_of(first_seen - key, 0) / BOX;
      return ((runs < RUNS ? runs : RUNS) - before) * PARTS * BOX_BYTES;
    }
    int page(int key) const { return has_box(key) ? table[key / PAGE] : 0; }
  };
  Steps steps_of(const KnownItem& of) const {
    const RaggedItem& item = of.item;
    return {uniform(item.first),       uniform(item.end),
            uniform(item.keys),        uniform(of.first_key),
            uniform(of.there),         2 * uniform(item.kv_head), tables + uniform(item.sequence) * table_stride,
            uniform(of.passes) ? Keep::shortly : Keep::normal};
  }

  // Boxes of a step to `to`, when what was there has been read. step_key: its first.
  void copy(uint32_t to, uint32_t full, uint32_t parity, const Steps& steps, int step_key, int row, int page) const {
    if (WRITES && step_key + BLOCK_N > steps.there) wait_for_previous_launch();
    barrier_wait_all(empty(full), parity ^ 1);
    if (lane() == 0) barrier_arrive_expect(full, steps.bytes(step_key));
    sync_warp();
    const int key = step_key + run_of_lane() * BOX;
    if (steps.has_box(key))
      load_tile(to + lane() % PARTS * PART_BYTES + run_of_lane() * BOX_BYTES, kv, full, {WIDTH * (lane() % PARTS), row, key % PAGE, page}, steps.keep);
  }

  // Brings an item's first keys and values to the L2 cache. (cp.async.bulk.prefetch.tensor)
  void ask_for(const RaggedItem& item, int window) const {
    const int first = uniform(item.first), end = smaller_of(uniform(item.end), first + ASKED), first_seen = larger_of(uniform(item.position) - window, 0);
    const int32_t* const table = tables + uniform(item.sequence) * table_stride;
#pragma unroll 1
    for (int box = lane(); box < (end - first) * BOXES; box += WARP) {
      const int key = first * BLOCK_N + box / PARTS * BOX;
      if (key >= item.keys || key + BOX <= first_seen) continue;
      const int page = table[key / PAGE];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];"
                     : : "l"(&kv), "r"(WIDTH * (box % PARTS)), "r"(2 * item.kv_head + i), "r"(key % PAGE), "r"(page) : "memory");
    }
    sync_warp();
  }

  void copy_queries(const KnownItem& known_item, Turn<Q_STAGES>& queries) {
    const RaggedItem& item = known_item.item;
    const bool exists = uniform(known_item.number) >= 0;
    const int first_head = uniform(item.kv_head) * heads_a_kv_head, token = uniform(item.token), wide = uniform(item.wide);
#pragma unroll 1
    for (int part = 0; part < GROUPS; ++part) {
      const uint32_t full = at.q_full(queries.at, part);
      barrier_wait_all(empty(full), queries.parity ^ 1);
      if (!exists) {
        if (lane() == 0) barrier_arrive(full);
      } else if (lane() == 0) {
        barrier_arrive_expect(full, HALVES * static_cast<uint32_t>(heads_a_kv_head * group_tokens) * 128);
#pragma unroll
        for (int i = 0; i < HALVES; ++i)
          load_tile(at.q(queries.at, part) + i * Q_BOX, q, full, {64 * i, first_head, token + (wide ? part * group_tokens : 0)});
      }
      sync_warp();
    }
    queries.next();
  }

  void run_queries() {
    Turn<ITEMS> place;
    Turn<Q_STAGES> queries;
    for (int parity = 0;; parity ^= 1) {
      barrier_wait_all(at.found(), parity);
      const KnownItem& now = known[place.at];
      place.next();
      copy_queries(now, queries);
      if (uniform(now.number) < 0) return;
      if (lane() == 0) barrier_arrive(at.wanted());
      sync_warp();
    }
  }
  // Keys of a step after the other.
  void run_keys() {
    Turn<ITEMS> place;
    Turn<COPIED_STAGES> keys;
    for (int parity = 0;; parity ^= 1) {
      barrier_wait_all(at.found(), parity);
      const KnownItem& now = known[place.at];
      place.next();
      if (uniform(now.number) < 0) return;
      const Steps steps = steps_of(now);
      sync_warp();
      const int asks = larger_of(steps.end - AHEAD, steps.first);
      int key = steps.first * BLOCK_N, page = steps.page(key + run_of_lane() * BOX);
#pragma unroll 1
      for (int i = steps.first; i < steps.end; ++i) {
        if (i == asks && lane() == 0) barrier_arrive(at.wanted());
        sync_warp();
        const int next = key + BLOCK_N, next_page = i + 1 < steps.end ? steps.page(next + run_of_lane() * BOX) : 0;
        copy(BYTES ? at.raw_k(keys.at) : at.k(keys.at), BYTES ? at.raw_k_full(keys.at) : at.k_full(keys.at), keys.parity, steps, key, steps.row, page);
        keys.next();
        key = next, page = next_page;
      }
    }
  }
  void run_values() {
    Turn<ITEMS> place;
    Turn<COPIED_STAGES> values;
    for (int parity = 0;; parity ^= 1) {
      barrier_wait_all(at.found(), parity);
      const KnownItem& now = known[place.at];
      place.next();
      if (uniform(now.number) < 0) return;
      const Steps steps = steps_of(now);
      sync_warp();
      if (lane() == 0) barrier_arrive(at.wanted());
      int key = steps.first * BLOCK_N, page = steps.page(key + run_of_lane() * BOX);
#pragma unroll 1
      for (int i = steps.first; i < steps.end; ++i) {
        const int next = key + BLOCK_N, next_page = i + 1 < steps.end ? steps.page(next + run_of_lane() * BOX) : 0;
        copy(BYTES ? at.raw_v(values.at) : at.v(values.at), BYTES ? at.raw_v_full(values.at) : at.v_full(values.at), values.parity, steps, key, steps.row + 1, page);
        values.next();
        key = next, page = next_page;
      }
    }
  }
};
