// GPU vocabulary of ragged_page_attention on Hopper: how the work of a batch is divided, by its lengths: streams in their order, which blocks begin with what, and how
// long items are. The launch that makes the list and blocks that look for their first item divide alike. Part of a template: see sm90_items.h.
//
// Streams lie by sequence, its last rows first, for all kv heads before the rows before them; of sequences whose keys and values the L2 cache cannot hold by kv head
// first. Wide streams and others have queues of their own, since the former wait for products and the latter for memory: blocks begin with either in such numbers that
// both last equally long. A stream is cut where little is left for each block after it, so that blocks end together, and few are cut. Few wide streams, as of some
// hundred new tokens behind a long context, are the work of one or two rounds of all blocks: these are cut alike, in so many pieces that rounds are full.
// Wide streams of about the same length that are not cut would have blocks end up to a stream apart: two rounds of all blocks have streams of all lengths, which are
// taken last, the longest first, by the blocks that end first (StreamOrder).
#pragma once
#include "ragged_page_attention/sm90_items.h"

constexpr int SETUP = 1;          // what an item costs beside its steps, in steps
constexpr int LEAST = 64;         // steps of an item that is a piece, where there is work enough: pieces cost more than blocks that end before others
constexpr int LEAST_BESIDE = 32;  // of one of others, where there are wide streams: others end last, and blocks that are done with wide ones take them
constexpr int CUT = 4;            // what it costs to cut a stream, in steps
constexpr int LEAST_OF_FEW = 16, MOST_PIECES = 8;  // of few wide streams: steps of pieces, at least; pieces of a stream, at most
constexpr int KEYS_IN_CACHE = (32 << 20) / (2 * D * static_cast<int>(sizeof(Cached)));
constexpr int MORE_ITEMS = 48;  // a block, than streams: `room` has place for three times as many, since a sequence's steps are not known exactly

struct RaggedPlan {
  const int32_t *starts, *contexts;
  int count, kv_heads;
  int group_tokens;           // new tokens of a warpgroup's rows
  int heads_a_kv_head;
  int window;                 // keys before a query that it sees at most
  const int* streams_before;  // of each sequence

  int queries(int n) const { return starts[n + 1] - starts[n]; }
  bool is_wide(int tokens) const { return tokens > group_tokens; }
  int chunk_tokens(int tokens) const { return is_wide(tokens) ? GROUPS * group_tokens : group_tokens; }
  int chunks(int tokens) const { return quotient(tokens + chunk_tokens(tokens) - 1, chunk_tokens(tokens)); }

  // Of `tokens` new tokens, the first one at a position.
  int steps(int position, int tokens) const { return (larger_of(position + tokens, 0) + BLOCK_N - 1) / BLOCK_N - larger_of(position - window, 0) / BLOCK_N; }

  // Stream `number` as one item.
  RaggedItem stream(int number) const {
    int low = 0, high = count - 1;  // the last sequence whose streams do not begin behind it
#pragma unroll 1
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (streams_before[middle] <= number) low = middle;
      else high = middle - 1;
    }
    return item(low, number - streams_before[low]);
  }
  RaggedItem item(int sequence, int in_sequence) const {
    const int all = queries(sequence), many = chunks(all);
    const bool by_rows = int64_t{contexts[sequence]} * kv_heads <= KEYS_IN_CACHE;
    const int slow = quotient(in_sequence, by_rows ? kv_heads : many), fast = in_sequence - slow * (by_rows ? kv_heads : many), head = by_rows ? fast : slow;
    const int first = (many - 1 - (by_rows ? slow : fast)) * chunk_tokens(all), tokens = smaller_of(all - first, chunk_tokens(all));
    RaggedItem item{sequence, head, starts[sequence] + first, tokens, contexts[sequence] - all + first, contexts[sequence], 0, 0, -1, 1, 0, is_wide(all), 0, 0};
    item.first = larger_of(item.position - window, 0) / BLOCK_N, item.end = (larger_of(item.position + tokens, 0) + BLOCK_N - 1) / BLOCK_N;
    return item;
  }
  // Sums of 16 rows that a warpgroup has of an item.
  int units(const RaggedItem& item) const { return item.wide ? 4 : units(item.tokens); }
  int units(int tokens) const { return (tokens * heads_a_kv_head + 15) / 16; }
  // Slots of a stream that is cut in `pieces`, or in which warpgroups have parts for themselves.
  int slots(const RaggedItem& item, int pieces) const {
    return pieces > 1 || item.apart ? pieces * units(item) * (item.wide || item.apart ? GROUPS : 1) : 0;
  }
};

// Of wide streams (0) and others (1): about how many steps they have, with what items cost beside; how many there are; the steps of the longest one. And of wide
// streams how many steps all have fewer than 1 << 20, at most.
struct Totals {
  int steps[2], streams[2], longest[2], below;

  // Sequence n: its last rows see most keys, without a window.
  void add(const RaggedPlan& plan, int n) {
    const int tokens = plan.queries(n), many = plan.chunks(tokens), kind = plan.is_wide(tokens) ? 0 : 1;
    if (many == 0) return;
    const int position = plan.contexts[n] - tokens, last = (many - 1) * plan.chunk_tokens(tokens);
    const int of_first = plan.steps(position, smaller_of(tokens, plan.chunk_tokens(tokens))), of_last = plan.steps(position + last, tokens - last);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (k != kind) continue;
      streams[k] += many * plan.kv_heads, longest[k] = larger_of(longest[k], larger_of(of_first, of_last));
      steps[k] += many * plan.kv_heads * ((of_first + of_last + 1) / 2 + SETUP);
      if (k == 0) below = larger_of(below, (1 << 20) - smaller_of(of_first, of_last));
    }
  }
  // Of all lanes.
  Totals of_warp() const {
    Totals all;
#pragma unroll
    for (int k = 0; k < 2; ++k) all.steps[k] = sum_in_warp(steps[k]), all.streams[k] = sum_in_warp(streams[k]), all.longest[k] = largest_in_warp(longest[k]);
    all.below = largest_in_warp(below);
    return all;
  }
  // Of all threads. Every thread calls it.
  Totals of_block(Totals* places) const {
    const Totals own = of_warp();
    if (lane() == 0) places[warp()] = own;
    sync_block();
    return places[lane()].of_warp();
  }
};

// The order of wide streams. As they lie, but for two of each of `blocks` groups, which make the rounds in the end.
struct StreamOrder {
  static constexpr int ROUNDS = 2, MOST_BLOCKS = 256;
  int streams, blocks, rounds;  // rounds: ROUNDS, or 0

  int rest() const { return streams - group() * blocks; }  // before the groups
  int group() const { return quotient(streams, blocks); }
  int before_rounds() const { return streams - rounds * blocks; }
  // The stream at a place before the rounds.
  int stream(int place) const {
    if (rounds == 0 || place < rest()) return place;
    const int many = group() - rounds, in_groups = place - rest(), turn = quotient(in_groups, many);
    return rest() + turn * group() + in_groups - turn * many;
  }
  int of_round(int round, int turn) const { return rest() + (turn + 1) * group() - rounds + round; }
};

// How work is divided: which blocks begin with wide streams, and how long items are.
struct Division {
  const Totals& all;
  int blocks, first, most;  // first: so many blocks begin with wide streams; most: steps of items of these, where they are few; else 0

  Division(const Totals& totals, int block_count, int slots) : all(totals), blocks(block_count), first(first_blocks()), most(0) {
    if (all.streams[0] == 0 || all.streams[0] > 4 * first) return;
    // So few that those which blocks take last are much of all work.
    if (all.streams[1] > 0) first = smaller_of(first + first / 8, blocks - 1);
    const bool alike = all.steps[0] >= 0.85f * all.streams[0] * all.longest[0];
    most = alike ? steps_by_rounds(slots) : larger_of(all.steps[0] / (2 * first), LEAST_OF_FEW);
    if (all.streams[1] == 0) first = blocks;
  }

  StreamOrder order() const {
    const int shortest = (1 << 20) - all.below;
    const bool alike = all.streams[1] == 0 && most == 0 && all.longest[0] <= LEAST && 2 * shortest >= all.longest[0];
    const bool fits = all.streams[0] > 2 * StreamOrder::ROUNDS * blocks && blocks <= StreamOrder::MOST_BLOCKS;
    return {all.streams[0], blocks, alike && fits ? StreamOrder::ROUNDS : 0};
  }

  // How many steps an item may have where `left` are left for all blocks. At least 1 / (MORE_ITEMS * blocks) of all.
  int most_steps(int kind, int left) const {
    if (kind == 0 && most > 0) return most;
    const int steps = kind == 0 ? all.steps[0] : all.steps[1], share = (steps + blocks - 1) / blocks, least = kind == 0 || all.streams[0] == 0 ? LEAST : LEAST_BESIDE;
    return larger_of(larger_of(share < 2 ? 2 : share < least ? share : least, left / blocks), steps / (MORE_ITEMS * blocks) + 1);
  }

  // The queue that a block begins with, and which of its items it has. Blocks that begin with wide streams are evenly among all.
  int start_of(int block, int& number) const { return start_of(block, blocks, first, number); }
  static int start_of(int block, int blocks, int first, int& number) {
    const int wide_before = quotient(block * first, blocks), kind = quotient((block + 1) * first, blocks) > wide_before ? 0 : 1;
    number = kind == 0 ? wide_before : block - wide_before;
    return kind;
  }

 private:
  // By what steps take, in us where these have 128 keys and heads 128 features: 0.76 the products of 64 rows, a fifth more where memory is what all wait for; of
  // other streams 1.04, or as long as their bytes take where all blocks read.
  int first_blocks() const {
    if (all.streams[0] == 0 || all.streams[1] == 0) return all.streams[0] == 0 ? 0 : blocks;
    const float bytes = all.steps[1] * (BYTES ? 1.03f : 2.06f), least = all.steps[1] * 1.04f, alone = all.steps[0] * (GROUPS * 0.76f);
    const bool is_full = bytes > alone + least;
    const int own = static_cast<int>((is_full ? 1.2f * alone / larger_of(bytes, 1.2f * alone + least) : alone / (alone + least)) * blocks + 0.5f);
    return own < 1 ? 1 : own > blocks - 1 ? blocks - 1 : own;
  }
  // Few streams that are as long as each other are cut in so many pieces that rounds of all blocks are full; `first` becomes those that have one in each round. By a
  // warp: a lane a number of pieces.
  int steps_by_rounds(int slots) {
    const int count = all.streams[0], longest = all.longest[0];
    const int pieces = lane() % MOST_PIECES + 1, rounds = quotient(count * pieces + first - 1, first), steps = quotient(longest + pieces - 1, pieces);
    const bool may = pieces == 1 || (steps >= LEAST_OF_FEW && count * pieces * 4 * GROUPS <= slots / 2);
    const int time = may ? smaller_of(rounds * (steps + (pieces > 1 ? CUT : 0)), 1 << 26) : 1 << 27;
    const int best = smallest_in_warp(time * MOST_PIECES + pieces - 1) % MOST_PIECES;
    first = shuffle(quotient(count * pieces + rounds - 1, rounds), best);
    return shuffle(steps, best);
  }
};
