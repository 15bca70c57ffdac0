// The first item of a block of ragged_page_attention on Hopper, found while the list is still being made. Part of attend.sm90.cu, whose constants it uses.
//
// Where enough work follows, the first streams are not cut, so that a queue's first items are its first streams: then the lengths alone say which one a block begins
// with, by the words by which the list is made. Found so is only what is certain; else the list is waited for.
#pragma once

struct FirstItem {
  static constexpr int MOST = 1024;  // sequences that a warp looks at
  const RaggedPlan& plan;
  int blocks, slots, room;

  // By a warp. Whether the item is known that this block begins with; `number`: its place in the list, passes: see KnownItem.
  bool find(RaggedItem& item, int& number, bool& passes) const {
    if (plan.count > MOST || plan.window < EVERY_KEY) return false;
    Totals own{};
    bool empty = false;
#pragma unroll 1
    for (int n = lane(); n < plan.count; n += WARP) {
      own.add(plan, n);
      empty |= plan.contexts[n] < plan.queries(n);
    }
    const Totals all = own.of_warp();
    const Division division(all, blocks, slots);
    int in_queue = 0;
    const int kind = division.start_of(block_x(), in_queue), longest = kind == 0 ? all.longest[0] : all.longest[1];
    const int begin = kind == 0 ? division.first : blocks - division.first;  // with this queue
    const int left = (kind == 0 ? all.steps[0] : all.steps[1]) - begin * (longest + SETUP) - longest / 2;
    if (any_in_warp(empty) || division.most_steps(kind, left) < longest) return false;
    passes = kind == 1 && all.streams[0] > 0, number = kind * room + in_queue;
    return find_stream(item, kind, in_queue, all.streams[0] == 0);
  }
  // Stream `number` of a kind. alone: there are no others, whose slots would come before its own.
  bool find_stream(RaggedItem& item, int kind, int number, bool alone) const {
    int streams = 0, slot = 0;
#pragma unroll 1
    for (int base = 0; base < plan.count; base += WARP) {
      const int n = base + lane(), tokens = n < plan.count ? plan.queries(n) : 0, of_kind = plan.is_wide(tokens) == (kind == 0) ? plan.chunks(tokens) * plan.kv_heads : 0;
      const int needed = kind == 1 && of_kind > 0 && plan.units(tokens) > MERGED_UNITS && plan.contexts[n] > (GROUPS - 1) * BLOCK_N ? plan.units(tokens) * GROUPS : 0;
      const int before = streams + sum_before_lane(of_kind), slots_before = slot + sum_before_lane(of_kind * needed);
      const bool is_here = before <= number && number < before + of_kind;
      if (any_in_warp(is_here)) {
        const int in_sequence = sum_in_warp(is_here ? number - before : 0), own_needed = sum_in_warp(is_here ? needed : 0);
        item = plan.item(sum_in_warp(is_here ? n : 0), in_sequence);
        item.shared = kind == 1 && item.end - item.first >= GROUPS, item.apart = own_needed > 0;
        if (own_needed == 0) return true;
        item.slot = sum_in_warp(is_here ? slots_before : 0) + in_sequence * own_needed;
        return alone && item.slot + own_needed <= slots;
      }
      streams += sum_in_warp(of_kind), slot += sum_in_warp(of_kind * needed);
    }
    return false;
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
