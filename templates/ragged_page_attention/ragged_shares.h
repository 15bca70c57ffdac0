// GPU vocabulary of ragged_page_attention: how blocks share the keys of all query rows, whose numbers are known on the device alone.
//
// A stream is what one pass over keys computes: a chunk of up to 2^chunk_log new tokens of a sequence, times up to GROUP query heads of one kv head, through
// all the keys that some of them sees, in tiles of TILE. A sequence's streams lie together: by kv head and group, then by chunk. Every block
// takes an equal part of all tiles in that order, where a stream counts for some more tiles than it has: for what it costs to begin and to end
// one. So a block has the end of a stream, whole ones, and the beginning of one. How many tiles the chunks before one have is a closed form, since TILE is
// a multiple of a chunk's tokens.
#pragma once
#include "device/attention/share_places.h"
#include "device/attention/visible_keys.h"

// A sequence: its new tokens, from `first` on, and its keys, new ones included.
struct Ragged {
  int first, queries, keys;
  int old_keys() const { return keys - queries; }
};

// Tiles of keys that a chunk sees: from `first_tile` on; keys outside [first_key, end_key) nobody sees.
struct ChunkKeys {
  int first_key, end_key, first_tile, tiles;
};

// Before tile `tile` of a stream: of chunk `chunk` of pass `pass`, which is kv head * groups + group.
struct RaggedPlace {
  int sequence, pass, chunk, tile;
  int stream_end;  // of the weights of all streams, in their order, up to the end of this one
  bool same_stream(const RaggedPlace& x) const { return sequence == x.sequence && pass == x.pass && chunk == x.chunk; }
};

// A stream and the blocks that have parts of it: more than one of them, or there is nothing to add up.
struct RaggedCut {
  int sequence, pass, chunk, first_block, last_block;
};

template <int TILE, int SETUP> struct RaggedShares {
  static constexpr int TILE_LOG = TILE == 32 ? 5 : TILE == 64 ? 6 : 7;
  static_assert(1 << TILE_LOG == TILE);

  const int32_t *starts, *contexts;
  int sequences;
  int passes;             // a sequence: kv heads times groups of query heads
  int chunk_log, window;  // window: keys before a query that it sees at most
  bool tree;              // new tokens see each other by a mask
  int blocks;
  int setup, weight;      // tiles that a stream counts for beside its own; of all streams
  int share, longer;      // of a block; that many blocks, the first ones, have one more

  RaggedShares(const int32_t* query_starts, const int32_t* context_lens, int count, int all_passes, int tokens_log, int64_t window_left, bool by_tree,
               int block_count)
      : starts(query_starts), contexts(context_lens), sequences(count), passes(all_passes), chunk_log(tokens_log),
        window(window_left < 0 || window_left > 0x3fffffff ? 0x3fffffff : static_cast<int>(window_left)), tree(by_tree), blocks(block_count) {
    int tiles = 0, streams = 0;
#pragma unroll 1
    for (int n = lane(); n < sequences; n += WARP) {
      const Ragged one = (*this)[n];
      tiles += tiles_of(one);
      streams += chunks(one);
    }
    tiles = sum_in_warp(tiles) * passes, streams = sum_in_warp(streams) * passes;
    // Of a share at most half: a stream that many blocks have is set up by each of them.
    setup = smaller_of(quotient(tiles, 2 * blocks) + 1, SETUP);
    weight = tiles + streams * setup;
    share = quotient(weight, blocks);
    longer = weight - share * blocks;
  }

  Ragged operator[](int n) const {
    const int first = starts[n];
    return {first, starts[n + 1] - first, contexts[n]};
  }
  int chunks(const Ragged& one) const { return (one.queries + (1 << chunk_log) - 1) >> chunk_log; }

  ChunkKeys keys_of(const Ragged& one, int chunk) const {
    ChunkKeys keys{0, one.keys, 0, 0};
    if (!tree) {
      const int position = one.old_keys() + (chunk << chunk_log);
      keys.first_key = larger_of(position - window, 0);
      keys.end_key = larger_of(smaller_of(position + (1 << chunk_log), one.keys), 0);
    }
    keys.first_tile = keys.first_key >> TILE_LOG;
    if (keys.first_key < keys.end_key) keys.tiles = ((keys.end_key - 1) >> TILE_LOG) - keys.first_tile + 1;
    return keys;
  }

  // The sum of ceil(i / 2^log) for i from 1 to n; and that of floor(i / 2^log) for i from 0 to n. 0 for n below these. Differences are exact, as sums
  // wrap around.
  static unsigned sum_of_ceilings(int n, int log) {
    if (n <= 0) return 0;
    const unsigned whole = static_cast<unsigned>(n) >> log, rest = n & ((1 << log) - 1);
    return (whole * (whole + 1) / 2 << log) + rest * (whole + 1);
  }
  static unsigned sum_of_floors(int n, int log) {
    if (n < 0) return 0;
    const unsigned whole = static_cast<unsigned>(n + 1) >> log, rest = (n + 1) & ((1 << log) - 1);
    return (whole * (whole - 1) / 2 << log) + rest * whole;
  }
  // Of the first `count` chunks of a sequence, of which only the last may have fewer tokens: it must not be among them.
  int tiles_before(const Ragged& one, int count) const {
    if (tree) return count * keys_of(one, 0).tiles;
    const int log = TILE_LOG - chunk_log, end = (one.old_keys() + (1 << chunk_log) - 1) >> chunk_log, begin = (one.old_keys() - window) >> chunk_log;
    return static_cast<int>(sum_of_ceilings(end + count, log) - sum_of_ceilings(end, log) - sum_of_floors(begin + count - 1, log) +
                            sum_of_floors(begin - 1, log));
  }
  int tiles_of(const Ragged& one) const {
    const int count = chunks(one);
    return count == 0 ? 0 : tiles_before(one, count - 1) + keys_of(one, count - 1).tiles;
  }
  // Of a sequence, one pass; of all passes; and of the first `count` chunks of a pass.
  int weight_of_pass(const Ragged& one) const { return tiles_of(one) + chunks(one) * setup; }
  int weight_before(const Ragged& one, int count) const { return tiles_before(one, count) + count * setup; }

  // Of all tiles and set-ups, in their order, the first that a block has; and the block that has one.
  int begin_of(int block) const { return smaller_of(share * block + smaller_of(block, longer), weight); }
  int block_of(int place) const {
    const int in_longer = longer * (share + 1);
    return place < in_longer ? quotient(place, share + 1) : longer + quotient(place - in_longer, share);
  }

  // The place `inside` the weights of a sequence, which begin at `start`.
  RaggedPlace place_in(int sequence, int start, int inside) const {
    const Ragged one = (*this)[sequence];
    const int weight_of_one = weight_of_pass(one), pass = quotient(inside, weight_of_one), in_pass = inside - pass * weight_of_one;
    int low = 0, high = chunks(one) - 1;  // the last chunk that does not begin behind the place
#pragma unroll 1
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (weight_before(one, middle) <= in_pass) low = middle;
      else high = middle - 1;
    }
    const int before = weight_before(one, low), tiles = keys_of(one, low).tiles;
    return {sequence, pass, low, larger_of(in_pass - before - setup, 0), start + pass * weight_of_one + before + setup + tiles};
  }

  // Where the share of a block begins, and where it ends. All lanes call it, with the same block.
  void find(int block, RaggedPlace& begin, RaggedPlace& end) const {
    begin = end = {sequences, 0, 0, 0, weight};
    const int at[2] = {begin_of(block), begin_of(block + 1)};
    int before = 0;
#pragma unroll 1
    for (int base = 0; base < sequences; base += WARP) {
      const int n = base + lane(), own = n < sequences ? weight_of_pass((*this)[n]) * passes : 0;
      int up_to = own;
#pragma unroll
      for (int by = 1; by < WARP; by *= 2) {
        const int left = shuffle(up_to, lane() < by ? lane() : lane() - by);
        if (lane() >= by) up_to += left;
      }
      up_to += before;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int index = sum_in_warp(up_to <= at[i] ? 1 : 0);  // sequences of these that lie wholly before the place
        const int start = shuffle(up_to - own, index % WARP);
        if (index == WARP || base + index >= sequences || start > at[i]) continue;
        (i == 0 ? begin : end) = place_in(base + index, start, at[i] - start);
      }
      before = shuffle(up_to, WARP - 1);
      if (before > at[1]) break;
    }
  }

  // The stream that a block begins and does not finish.
  RaggedCut begun_by(int block) const {
    RaggedPlace begin, end;
    find(block, begin, end);
    if (end.tile == 0 || (begin.same_stream(end) && begin.tile > 0)) return {0, 0, 0, 0, 0};
    return {end.sequence, end.pass, end.chunk, block, block_of(end.stream_end - 1)};
  }
};

// A walk through a share, stream by stream. All threads of a block walk alike. What is known again from the place is not kept: there are two walks, and registers
// are few.
template <class Shares> struct RaggedWalk {
  const Shares& shares;
  int last_sequence, last_pass, last_chunk, last_tile;  // where the share ends
  int sequence, pass, chunk;
  int first_key, end_key, first_tile;  // of the chunk, as ChunkKeys has them
  int tile, end;                       // of the stream, in this share; both 0 when the walk is over
  bool over, ends;                     // ends: the share has the stream's end

  RaggedWalk(const Shares& all, const RaggedPlace& begin, const RaggedPlace& share_end)
      : shares(all), last_sequence(share_end.sequence), last_pass(share_end.pass), last_chunk(share_end.chunk), last_tile(share_end.tile),
        sequence(begin.sequence), pass(begin.pass), chunk(begin.chunk), first_key(0), end_key(0), first_tile(0), tile(0), end(0), over(false), ends(false) {
    enter(begin.tile);
  }
  bool in_last() const { return sequence == last_sequence && pass == last_pass && chunk == last_chunk; }
  void enter(int begin) {
    over = sequence >= shares.sequences || (in_last() && last_tile <= begin);
    tile = end = 0;
    if (over) return;
    const ChunkKeys keys = shares.keys_of(shares[sequence], chunk);
    first_key = keys.first_key, end_key = keys.end_key, first_tile = keys.first_tile;
    tile = begin;
    end = in_last() ? smaller_of(last_tile, keys.tiles) : keys.tiles;
    ends = end == keys.tiles;
  }
  void next_stream() {
    if (in_last()) {
      over = true, tile = end = 0;
      return;
    }
    if (++chunk >= shares.chunks(shares[sequence])) {
      chunk = 0;
      if (++pass == shares.passes) {
        pass = 0;
        do ++sequence;
        while (sequence < last_sequence && shares.chunks(shares[sequence]) == 0);
      }
    }
    enter(0);
  }
};
