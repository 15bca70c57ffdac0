// GPU vocabulary of decoding: how blocks share the keys of all sequences, whose lengths are known on the device alone. Whoever includes this has
// defined `Lengths<TILE>`: of how many sequences (`sequences`), and which keys each one's query sees (`tiles(n)`, `[n]`).
//
// A stream is what one pass over a sequence's keys of one kv head computes. Streams are numbered through, a sequence's together; each
// consists of tiles of TILE keys. Every block takes an equal part of all tiles in that order, where a stream counts for some more tiles
// than it has: for what it costs to begin and to end one. So a block has the end of a stream, whole ones, and the beginning of one.
// Where all streams are equally long and few blocks would be left over, each stream has as many blocks of its own.
#pragma once
#include "device/attention/visible_keys.h"
#include "device/attention/share_places.h"

// Every warp finds everything by itself: for few sequences that takes less time than a barrier. Weights of all streams are below 2^31.
template <int TILE, int SETUP> struct Shares {
  Lengths<TILE> lengths;
  int streams;  // a sequence
  int blocks;
  int own;            // tiles of sequence lane()
  int setup, weight;  // tiles that a stream counts for beside its own; of all streams
  int share, longer;  // of a block; that many blocks, the first ones, have one more
  int parts;          // blocks that each stream has of its own; 0: blocks go from stream to stream

  Shares(const Lengths<TILE>& all, int streams_a_sequence, int block_count, float inverse)
      : lengths(all), streams(streams_a_sequence), blocks(block_count), own(all.tiles(lane())) {
    const int count = lengths.sequences * streams, of_first = shuffle(own, 0);
    int tiles = own;
    bool differs = lane() < lengths.sequences && own != of_first;
#pragma unroll 1
    for (int n = lane() + WARP; n < lengths.sequences; n += WARP) {
      const int more = lengths.tiles(n);
      tiles += more;
      differs = differs || more != of_first;
    }
    parts = quotient(blocks, count);
    if (!any_in_warp(differs) && of_first > 0 && parts * count * 16 >= blocks * 15) {
      share = quotient(of_first + parts - 1, parts), longer = 0;
      setup = parts * share - of_first;
      weight = parts * share * count;
      return;
    }
    parts = 0;
    tiles = sum_in_warp(tiles);
    // Of a share at most half: a stream that many blocks have is set up by each of them.
    setup = smaller_of(static_cast<int>(static_cast<float>(tiles * streams) * inverse * 0.5f) + 1, SETUP);
    weight = (tiles + lengths.sequences * setup) * streams;
    share = quotient(weight, blocks);
    longer = weight - share * blocks;
  }

  // Of all tiles and set-ups, in their order, the first that a block has; and the block that has one.
  int begin_of(int block) const { return smaller_of(share * block + smaller_of(block, longer), weight); }
  int block_of(int place) const {
    const int in_longer = longer * (share + 1);
    return place < in_longer ? quotient(place, share + 1) : longer + quotient(place - in_longer, share);
  }
  // Of a stream of a sequence; 0 beyond the last one.
  int weight_of(int sequence, int tiles) const { return sequence < lengths.sequences ? tiles + setup : 0; }

  // Where the share of a block begins, and where it ends. All lanes call it, with the same block.
  void find(int block, Place& begin, Place& end) const {
    begin = end = {lengths.sequences, 0, 0, weight};
    if (parts > 0) {
      const int number = quotient(block, parts), inside = (block - number * parts) * share - setup, sequence = quotient(number, streams);
      if (sequence >= lengths.sequences) return;
      begin = end = {sequence, number - sequence * streams, larger_of(inside, 0), (number + 1) * parts * share};
      end.tile = larger_of(inside + share, 0);
      return;
    }
    int at[2] = {begin_of(block), begin_of(block + 1)}, before = 0;  // before: weight of the streams of one head
#pragma unroll 1
    for (int base = 0; base < lengths.sequences; base += WARP) {
      const int n = base + lane(), weight_of_n = weight_of(n, base == 0 ? own : lengths.tiles(n));
      int up_to = weight_of_n;
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
        const int weight_of_stream = shuffle(weight_of_n, index % WARP), start = (shuffle(up_to, index % WARP) - weight_of_stream) * streams;
        if (index == WARP || start > at[i]) continue;
        const int stream = quotient(at[i] - start, weight_of_stream);
        const int stream_end = start + (stream + 1) * weight_of_stream, inside = at[i] - (stream_end - weight_of_stream);
        (i == 0 ? begin : end) = {base + index, stream, inside > setup ? inside - setup : 0, stream_end};
      }
      before = shuffle(up_to, WARP - 1);
      if (before * streams > at[1]) break;
    }
  }

  // Stream `number` of all. All lanes call it, with the same number.
  Cut stream(int number) const {
    const int sequence = quotient(number, streams);
    int before = lane() < sequence ? own : 0;
#pragma unroll 1
    for (int n = lane() + WARP; n < sequence; n += WARP) before += lengths.tiles(n);
    const int tiles = lengths.tiles(sequence), in_sequence = number - sequence * streams;
    const int begin = (sum_in_warp(before) + sequence * setup) * streams + in_sequence * (tiles + setup) + setup;
    if (tiles == 0) return {sequence, in_sequence, 0, 0};
    return {sequence, in_sequence, block_of(begin), block_of(begin + tiles - 1)};
  }

  // The stream that a block begins and does not finish.
  Cut begun_by(int block) const {
    Place begin, end;
    find(block, begin, end);
    if (end.tile == 0 || (begin.sequence == end.sequence && begin.stream == end.stream && begin.tile > 0)) return {0, 0, 0, 0};
    return {end.sequence, end.stream, block, block_of(end.stream_end - 1)};
  }
};

// A walk through a share, stream by stream. All threads of a block walk alike.
template <int TILE> struct Walk {
  Lengths<TILE> lengths;
  int streams;   // a sequence
  int left;      // streams of the share, from this one on
  int last_end;  // where the share ends in the last of them
  int sequence, stream;
  VisibleKeys<TILE> keys;  // of the sequence
  int tile, end;           // of the stream, in this share; both 0 when the walk is over

  Walk(const Lengths<TILE>& all, int streams_a_sequence, const Place& begin, const Place& share_end)
      : lengths(all),
        streams(streams_a_sequence),
        left((share_end.sequence - begin.sequence) * streams_a_sequence + share_end.stream - begin.stream + (share_end.tile > 0 ? 1 : 0)),
        last_end(share_end.tile > 0 ? share_end.tile : 0x7fffffff),
        sequence(begin.sequence),
        stream(begin.stream),
        keys{0, 0},
        tile(0),
        end(0) {
    if (is_over()) return;
    keys = lengths[sequence];
    enter(begin.tile);
  }
  bool is_over() const { return left == 0; }
  void enter(int first_tile) {
    tile = first_tile;
    end = left == 1 ? smaller_of(last_end, keys.tiles()) : keys.tiles();
  }
  void next_stream() {
    tile = end = 0;
    if (--left == 0) return;
    if (++stream == streams) {
      stream = 0;
      keys = lengths[++sequence];
    }
    enter(0);
  }
};
