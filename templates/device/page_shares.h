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

// Where a share begins or ends: before a tile of a stream.
struct Place {
  int sequence, stream, tile;
  int stream_end;  // of the weights of all streams, in their order, up to the end of this one
};

static inline int sum_in_warp(int x) {
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}
static inline int smaller_of(int a, int b) { return a < b ? a : b; }

// Every warp finds everything by itself: for few sequences that takes less time than a barrier. Weights of all streams are below 2^31.
template <int TILE, int SETUP> struct Shares {
  Lengths<TILE> lengths;
  int streams;         // a sequence
  int blocks;
  float blocks_inverse;
  int setup, weight, share;  // tiles that a stream counts for beside its own; of all streams; of a block, but for the last blocks

  Shares(const Lengths<TILE>& all, int streams_a_sequence, int block_count, float inverse)
      : lengths(all), streams(streams_a_sequence), blocks(block_count), blocks_inverse(inverse) {
    int tiles = 0;
#pragma unroll 1
    for (int n = lane(); n < lengths.sequences; n += WARP) tiles += lengths[n].tiles();
    tiles = sum_in_warp(tiles);
    // Of a share at most half: a stream that many blocks have is set up by each of them.
    setup = smaller_of(static_cast<int>(static_cast<float>(tiles * streams) * blocks_inverse * 0.5f) + 1, SETUP);
    weight = (tiles + lengths.sequences * setup) * streams;
    share = static_cast<int>(static_cast<float>(weight) * blocks_inverse * 1.000001f) + 1;  // rounded up, or more
  }

  int begin_of(int block) const {
    const int64_t at = int64_t{share} * block;
    return block < blocks && at < weight ? static_cast<int>(at) : weight;
  }

  // Where the share of a block begins, and where it ends. All lanes call it, with the same block.
  void find(int block, Place& begin, Place& end) const {
    int at[2] = {begin_of(block), begin_of(block + 1)}, before = 0;  // before: weight of the streams of one head
    begin = end = {lengths.sequences, 0, 0, weight};
#pragma unroll 1
    for (int base = 0; base < lengths.sequences; base += WARP) {
      const int n = base + lane(), own = n < lengths.sequences ? lengths[n].tiles() + setup : 0;
      int up_to = own;
#pragma unroll
      for (int by = 1; by < WARP; by *= 2) {
        const int left = shuffle(up_to, lane() < by ? lane() : lane() - by);
        if (lane() >= by) up_to += left;
      }
      up_to += before;
      const bool is_past[2] = {up_to * streams <= at[0], up_to * streams <= at[1]};
      const int past = sum_in_warp((is_past[0] ? 1 : 0) + (is_past[1] ? 64 : 0));  // sequences of these that lie wholly before each
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int index = i == 0 ? past % 64 : past / 64;
        const int weight_of_stream = shuffle(own, index % WARP), start = (shuffle(up_to, index % WARP) - weight_of_stream) * streams;
        if (index == WARP || start > at[i]) continue;
        const int stream = static_cast<int>(static_cast<unsigned>(at[i] - start) / static_cast<unsigned>(weight_of_stream));
        const int stream_end = start + (stream + 1) * weight_of_stream, inside = at[i] - (stream_end - weight_of_stream);
        (i == 0 ? begin : end) = {base + index, stream, inside > setup ? inside - setup : 0, stream_end};
      }
      before = shuffle(up_to, WARP - 1);
      if (before * streams > at[1]) break;
    }
  }

  // The last block that has a part of a stream that ends there.
  int last_block(int stream_end) const { return (stream_end - 1) / share; }
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
      : lengths(all),
        streams(streams_a_sequence),
        last(share_end),
        sequence(begin.sequence),
        stream(begin.stream),
        keys{0, 0},
        tile(0),
        end(0) {
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
