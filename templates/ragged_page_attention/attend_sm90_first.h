// The first item of a block of ragged_page_attention on Hopper, found while the list is still being made. Part of attend.sm90.cu, whose constants it uses.
//
// A block begins with the list's item of its own number (Finder). Where enough work follows, the first streams are not cut, and where all are wide, or none, they are
// the first items: then the lengths alone say which one it is, with the same words as in the list. Found so is only what is certain; else the list is waited for.
#pragma once

struct FirstItem {
  static constexpr int MOST = 1024;  // sequences that a warp looks at
  const RaggedPlan& plan;
  int blocks, slots;

  // By a warp. Whether the list's item number block_x() of its only queue is known; then `item` is that.
  bool find(RaggedItem& item) const {
    const int number = block_x();
    if (plan.count > MOST || plan.window < EVERY_KEY) return false;
    int all = 0, longest = 0, streams = 0, needed = 0;  // all: no more than the steps of all streams; needed: slots
    int sequence = -1, before = 0, slot = 0;            // the stream's
    bool wide = false, other = false, empty = false;
#pragma unroll 1
    for (int base = 0; base < plan.count; base += WARP) {
      const int n = base + lane(), tokens = n < plan.count ? plan.queries(n) : 0, keys = tokens > 0 ? plan.contexts[n] : 0;
      const int steps = (keys + BLOCK_N - 1) / BLOCK_N, own = tokens > 0 ? plan.chunks(tokens) * plan.kv_heads : 0;
      const bool is_wide = plan.is_wide(tokens);
      empty |= keys < tokens, wide |= is_wide, other |= own > 0 && !is_wide;
      longest = larger_of(longest, steps);
      all += sum_in_warp(own * ((is_wide ? (keys - tokens / 2) / BLOCK_N : steps) + SETUP));
      const int own_needed = !is_wide && steps >= GROUPS && plan.units(tokens) > MERGED_UNITS ? own * plan.units(tokens) * GROUPS : 0;
      const int own_before = streams + sum_before_lane(own), needed_before = needed + sum_before_lane(own_needed);
      const bool is_here = own_before <= number && number < own_before + own;
      if (any_in_warp(is_here)) {
        sequence = sum_in_warp(is_here ? n : 0), before = sum_in_warp(is_here ? own_before : 0), slot = sum_in_warp(is_here ? needed_before : 0);
      }
      streams += sum_in_warp(own), needed += sum_in_warp(own_needed);
    }
    wide = any_in_warp(wide), other = any_in_warp(other), empty = any_in_warp(empty), longest = __reduce_max_sync(0xffffffff, longest);
    const int left = all - blocks * (longest + SETUP) - longest / 2;
    int most = most_steps(left, all, blocks), ignored = blocks;
    if (wide && are_few(streams, blocks)) most = are_alike(streams, longest, all) ? steps_by_rounds(streams, longest, slots, ignored) : 0;
    if (sequence < 0 || wide == other || empty || most < longest) return false;
    item = plan.item(sequence, number - before);
    item.shared = !item.wide && item.end - item.first >= GROUPS, item.apart = item.shared && plan.units(item) > MERGED_UNITS;
    const int own_needed = plan.slots(item, 1), own_slot = slot + (number - before) * own_needed;
    if (own_needed > 0) item.slot = own_slot;
    return own_slot + own_needed <= slots;
  }

  int old_keys(const RaggedItem& item) const { return item.keys - plan.queries(item.sequence); }

  // Of the lanes before this one.
  static int sum_before_lane(int x) {
    int all = x;
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const int left = shuffle(all, lane() < by ? lane() : lane() - by);
      if (lane() >= by) all += left;
    }
    return all - x;
  }
};
