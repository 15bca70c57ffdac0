// The first item of a block of ragged_page_attention on Hopper, found while the list is still being made. Part of attend.sm90.cu, whose constants it uses.
//
// Where enough work follows, the first streams are not cut, so that a queue's first items are its first streams: then the lengths alone say which one a block begins
// with, by the words by which the list is made. Found so is only what is certain; else the list is waited for.
#pragma once

// Lengths of a batch of few sequences, by a warp: of sequence lane() + WARP * k. They are asked for together, also past the last sequence, where they mean nothing.
struct FewLengths {
  static constexpr int PARTS = 4, MOST = PARTS * WARP;
  int first[PARTS], tokens[PARTS], keys[PARTS];

  // most: sequences that the tensors have room for.
  FewLengths(const RaggedPlan& plan, int most) {
#pragma unroll
    for (int k = 0; k < PARTS; ++k) {
      const int n = lane() + WARP * k, at = n < most ? n : 0;
      first[k] = plan.starts[at], tokens[k] = plan.starts[at + 1], keys[k] = plan.contexts[at];
    }
#pragma unroll
    for (int k = 0; k < PARTS; ++k) tokens[k] = lane() + WARP * k < plan.count ? tokens[k] - first[k] : 0;
  }
};

struct FoundItem {
  RaggedItem item;
  int number;          // its place in the list
  int there;           // see KnownItem, as the next one
  bool passes, known;
};

struct FirstItem {
  static constexpr int MOST = 1024;  // sequences that a warp looks at
  const RaggedPlan& plan;
  int blocks, slots, room, most;  // most: sequences that the tensors have room for
  const int32_t* tables;
  int64_t table_row;

  // By a warp. The item that this block begins with, if it is known.
  FoundItem find() const {
    FoundItem found{};
    if (plan.window < EVERY_KEY) return found;
    if (MERGED_UNITS > 0 && most > 0 && most <= FewLengths::MOST) {
      const FewLengths lengths(plan, most);
      const int likely = quotient(block_x(), plan.kv_heads);  // its sequence, where none is empty: the L2 cache asks for its first pages' numbers
      if (lane() == 0 && likely < most) asm volatile("prefetch.global.L2 [%0];" : : "l"(tables + likely * table_row) : "memory");
      const int state = find_narrow(lengths, likely, found);
      found.known = state > 0;
      if (state >= 0) return found;
    }
    found.known = find(found.item, found.number, found.passes);
    if (found.known) found.there = found.item.keys - plan.queries(found.item.sequence);
    return found;
  }

  // The same where no stream is wide and each is merged within its block, as of decodes: streams are sequences times heads, and a block begins with that of its own
  // number. 1: it is known; 0: it is not; negative: the batch is another.
  int find_narrow(const FewLengths& of, int wanted, FoundItem& found) const {
    constexpr int PARTS = FewLengths::PARTS;
    bool other = false;
    int sequences = 0, all_steps = 0, longest = 0, sequence = -1, first = 0, tokens = 0, keys = 0;
#pragma unroll
    for (int k = 0; k < PARTS; ++k) {
      const bool there = of.tokens[k] > 0;
      other |= of.tokens[k] > plan.group_tokens || (there && of.keys[k] < of.tokens[k]) || of.tokens[k] * plan.heads_a_kv_head > 16 * MERGED_UNITS;
      const int steps = there ? (of.keys[k] + BLOCK_N - 1) / BLOCK_N : 0;
      all_steps += there ? steps + SETUP : 0, longest = larger_of(longest, steps);
      const uint32_t lanes = lanes_where(there);
      if (there && sequences + __popc(lanes & ((1u << lane()) - 1)) == wanted) sequence = lane() + WARP * k, first = of.first[k], tokens = of.tokens[k], keys = of.keys[k];
      sequences += __popc(lanes);
    }
    if (any_in_warp(other)) return -1;
    const uint32_t owner = lanes_where(sequence >= 0);
    if (owner == 0) return 0;
    const Totals all{{0, sum_in_warp(all_steps) * plan.kv_heads}, {0, sequences * plan.kv_heads}, {0, largest_in_warp(longest)}, 0};
    const Division division(all, blocks, slots);
    if (division.most_steps(1, all.steps[1] - blocks * (all.longest[1] + SETUP) - all.longest[1] / 2) < all.longest[1]) return 0;
    const int from = __ffs(owner) - 1;
    sequence = shuffle(sequence, from), first = shuffle(first, from), tokens = shuffle(tokens, from), keys = shuffle(keys, from);
    const int end = (keys + BLOCK_N - 1) / BLOCK_N;
    found.item = {sequence, block_x() - wanted * plan.kv_heads, first, tokens, keys - tokens, keys, 0, end, -1, 1, 0, 0, end >= GROUPS, 0};
    found.number = room + block_x(), found.there = keys - tokens;
    return 1;
  }

  // The same of any batch.
  bool find(RaggedItem& item, int& number, bool& passes) const {
    if (plan.count > MOST) return false;
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
    return find_stream(item, kind, kind == 0 ? division.order().stream(in_queue) : in_queue, all.streams[0] == 0);
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
