// The warp of ragged_page_attention on Hopper that copies: a lane a box. Part of attend.sm90.cu, whose constants it uses.
#pragma once

struct Producer {
  static constexpr int RUNS = BLOCK_N / BOX, BOXES = RUNS * HALVES;  // of a step
  static constexpr uint32_t BOX_BYTES = BOX * 128;
  static_assert(BOXES <= WARP);
  const Places& at;
  const TensorMap &q, &kv;
  const int32_t* tables;
  int64_t table_stride;
  int heads_a_kv_head, group_tokens;
  Turn<ITEMS> place;
  Turn<Q_STAGES> queries;
  Turn<STAGES> keys, values;

  static int run_of_lane() { return lane() / HALVES; }

  // The rows of a step that this warp copies: of a sequence of `keys`, those from its page `page` on that lane's box has.
  struct Step {
    int first, keys, kv_head, page;  // first: key
    int first_seen;                  // boxes before that key are not copied: their pages may be no pages
    Keep keep;
    bool has_box() const { return lane() < BOXES && own_key() < keys && own_key() + BOX > first_seen; }
    int own_key() const { return first + run_of_lane() * BOX; }
    uint32_t bytes() const {
      const int runs = (keys - first + BOX - 1) / BOX, before = larger_of(first_seen - first, 0) / BOX;
      return ((runs < RUNS ? runs : RUNS) - before) * HALVES * BOX_BYTES;
    }
  };
  void look_up(Step& step, const int32_t* table) const {
    step.page = step.has_box() ? table[step.own_key() / PAGE] : 0;
  }

  void copy(uint32_t to, uint32_t full, uint32_t parity, const Step& step, int row) const {
    barrier_wait_all(empty(full), parity ^ 1);
    if (lane() == 0) barrier_arrive_expect(full, step.bytes());
    sync_warp();
    if (step.has_box())
      load_tile(to + lane() % HALVES * KEY_BOX + run_of_lane() * BOX_BYTES, kv, full, {64 * (lane() % HALVES), row, step.own_key() % PAGE, step.page}, step.keep);
  }
  void copy_keys(const Step& step) {
    copy(at.k(keys.at), at.k_full(keys.at), keys.parity, step, 2 * step.kv_head);
    keys.next();
  }
  void copy_values(const Step& step) {
    copy(at.v(values.at), at.v_full(values.at), values.parity, step, 2 * step.kv_head + 1);
    values.next();
  }

  void copy_queries(const KnownItem& known_item) {
    const RaggedItem& item = known_item.item;
    const bool exists = known_item.number >= 0;
#pragma unroll 1
    for (int part = 0; part < GROUPS; ++part) {
      const uint32_t full = at.q_full(queries.at, part);
      barrier_wait_all(empty(full), queries.parity ^ 1);
      if (lane() != 0) continue;
      if (!exists) {
        barrier_arrive(full);
        continue;
      }
      barrier_arrive_expect(full, HALVES * static_cast<uint32_t>(heads_a_kv_head * group_tokens) * 128);
#pragma unroll
      for (int i = 0; i < HALVES; ++i)
        load_tile(at.q(queries.at, part) + i * Q_BOX, q, full, {64 * i, item.kv_head * heads_a_kv_head, item.token + (item.wide ? part * group_tokens : 0)});
    }
    queries.next();
    if (exists && lane() == 0) barrier_arrive(at.wanted());
  }

  // In the order in which they are needed: the values of a step after the keys of the next one. Queries that take the place of those of the item before wait
  // for its last product of keys: what that item still needs is copied before them.
  void run() {
    Step due{};  // its values are to be copied
    bool is_due = false;
    for (int parity = 0;; parity ^= 1) {
      barrier_wait_all(at.found(), parity);
      const KnownItem& now = known[place.at];
      place.next();
      if (now.number < 0) {
        if (is_due) copy_values(due);
        copy_queries(now);
        return;
      }
      if (Q_STAGES > 1) copy_queries(now);
      const RaggedItem& item = now.item;
      const int first = item.first, end = item.end;
      const int32_t* const table = tables + item.sequence * table_stride;
      Step step{first * BLOCK_N, item.keys, item.kv_head, 0, now.first_key, item.wide ? Keep::normal : Keep::shortly};
      look_up(step, table);
#pragma unroll 1
      for (int i = first; i < end; ++i) {
        Step next = step;
        next.first += BLOCK_N;
        if (i + 1 < end) look_up(next, table);
        copy_keys(step);
        if (is_due) copy_values(due);
        if (Q_STAGES == 1 && i == first) copy_queries(now);
        due = step, is_due = true;
        step = next;
      }
    }
  }
};
