// GPU vocabulary of paged attention: how blocks share the keys of all sequences, whose lengths are known on the device alone.
//
// A stream is what one pass over a sequence's keys of one kv head computes. Streams are numbered through, a sequence's together; each
// consists of tiles of TILE keys. Every block takes an equal part of all tiles in that order, where a stream counts for some more tiles
// than it has: for what it costs to begin and to end one. So a block has the end of a stream, whole ones, and the beginning of one.
#pragma once
#include "device/gpu.h"

// The keys that the query of a sequence sees: [first, end).
template <int TILE> struct VisibleKeys {
  int first, end;
  int first_tile() const { return first / TILE; }
  int tiles() const { return first < end ? (end - 1) / TILE - first / TILE + 1 : 0; }
  bool has(int key) const { return key >= first && key < end; }
  bool has_all(int first_of_tile) const { return first_of_tile >= first && end - first_of_tile >= TILE; }
};

template <int TILE> struct Lengths {
  const int32_t* context_lens;
  int sequences;
  int64_t window_left;  // -1: unbounded. The query is the last token: a window never ends before it

  VisibleKeys<TILE> operator[](int sequence) const {
    const int length = context_lens[sequence];
    if (length <= 0) return {0, 0};
    return {window_left >= 0 && window_left < length - 1 ? length - 1 - static_cast<int>(window_left) : 0, length};
  }
};

// x / y for x >= 0, y > 0: where both are below 2^32, as nearly always, in a fraction of the time.
static inline __attribute__((noinline)) int64_t long_quotient(int64_t x, int64_t y) { return x / y; }
static inline int64_t quotient(int64_t x, int64_t y) {
  if ((x | y) >> 32 == 0) return static_cast<uint32_t>(x) / static_cast<uint32_t>(y);
  return long_quotient(x, y);
}

// A tile of a stream. Tile 0: before all of them.
struct Place {
  int sequence, stream, tile;
  int last_block;  // that has a part of the stream
};

template <int THREADS, int TILE, int SETUP> struct Shares {
  Lengths<TILE> lengths;
  int streams;  // a sequence
  int* sums;    // shared memory: THREADS / WARP

  int tiles(int sequence) const { return sequence < lengths.sequences ? lengths[sequence].tiles() : 0; }

  struct Sum {
    int before, all;  // of the threads before this one, of all
  };
  // Every thread of the block must call it.
  Sum sum(int x) const {
    int up_to = x;
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const int before = shuffle(up_to, lane() < by ? lane() : lane() - by);
      if (lane() >= by) up_to += before;
    }
    if (lane() == WARP - 1) sums[warp()] = up_to;
    sync_block();
    Sum result{up_to - x, 0};
#pragma unroll
    for (int w = 0; w < THREADS / WARP; ++w) {
      if (w < warp()) result.before += sums[w];
      result.all += sums[w];
    }
    sync_block();
    return result;
  }

  // Where the share of a block begins and where it ends, in shared memory. Every thread must call it; ends with a barrier.
  void find(int block, int blocks, Place* begin_and_end) const {
    const Sum first = sum(tiles(thread_x()));
    int64_t all = first.all;
#pragma unroll 1
    for (int n = THREADS; n < lengths.sequences; n += THREADS) all += sum(tiles(n + thread_x())).all;
    // At most SETUP, and of a share half: a stream that many blocks have is set up by each of them.
    const int64_t half = quotient(all * streams, 2 * blocks);
    const int setup = half < 1 ? 1 : half < SETUP ? static_cast<int>(half) : SETUP;
    if (thread_x() == 0) begin_and_end[0] = begin_and_end[1] = {lengths.sequences, 0, 0, 0};
    sync_block();
    all += int64_t{lengths.sequences} * setup;
    int before = 0;
#pragma unroll 1
    for (int base = 0; base < lengths.sequences; base += THREADS) {
      const int n = base + thread_x();
      const Sum here = base == 0 ? first : sum(tiles(n));
      if (n < lengths.sequences) find_among(n, before + here.before + n * setup, setup, all * streams, block, blocks, begin_and_end);
      before += here.all;
    }
    sync_block();
  }

  // The ends that lie in streams of this sequence; `before`: weight of the streams of one head before it.
  void find_among(int sequence, int before, int setup, int64_t all, int block, int blocks, Place* begin_and_end) const {
    const int own = tiles(sequence) + setup;
    const int64_t start = int64_t{before} * streams;
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      const int64_t at = quotient(all * (block + i), blocks) - start;
      if (at < 0 || at >= int64_t{own} * streams) continue;
      const int stream = static_cast<int>(quotient(at, own)), inside = static_cast<int>(at - int64_t{own} * stream);
      const int64_t end = start + int64_t{own} * (stream + 1);
      begin_and_end[i] = {sequence, stream, inside > setup ? inside - setup : 0, static_cast<int>(quotient(end * blocks - 1, all))};
    }
  }
};

// A walk through a share, stream by stream. All threads of a block walk alike.
template <int TILE> struct Walk {
  Lengths<TILE> lengths;
  int streams;
  Place last;  // where the share ends
  int sequence, stream;
  VisibleKeys<TILE> keys;  // of the sequence
  int tile, end;           // of the stream, in this share

  Walk(const Lengths<TILE>& all, int streams_a_sequence, const Place& begin, const Place& share_end)
      : lengths(all), streams(streams_a_sequence), last(share_end), sequence(begin.sequence), stream(begin.stream), keys{0, 0}, tile(0), end(0) {
    if (is_over()) return;
    keys = lengths[sequence];
    enter(begin.tile);
  }
  bool is_over() const {
    if (sequence != last.sequence) return sequence > last.sequence;
    return stream > last.stream || (stream == last.stream && last.tile == 0);
  }
  bool is_in_last() const { return sequence == last.sequence && stream == last.stream; }
  void enter(int first_tile) {
    tile = first_tile;
    end = is_in_last() ? last.tile : keys.tiles();
  }
  void next_stream() {
    if (++stream == streams) {
      stream = 0;
      ++sequence;
    }
    if (is_over()) return;
    if (stream == 0) keys = lengths[sequence];
    enter(0);
  }
};
