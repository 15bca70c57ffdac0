// Steps of an item of ragged_page_attention on Hopper, as a warpgroup that multiplies goes through them, and what its products take. Part of attend.sm90.cu, whose
// constants it uses.
#pragma once

// An item's steps, all or every GROUPS-th one.
struct Steps {
  int at, end, first_whole, end_whole, first_key, keys, position;  // position: of the warpgroup's first token
  Steps(const KnownItem& of, int token)
      : at(uniform(of.item.first)), end(uniform(of.item.end)), first_whole(uniform(of.first_whole)), end_whole(uniform(of.end_whole)),
        first_key(uniform(of.first_key)), keys(uniform(of.item.keys)), position(uniform(of.item.position) + token) {}
  bool is_last() const { return at + 1 == end; }
  bool is_whole() const { return at >= first_whole && at < end_whole; }  // every row sees every key of it
  // Whether it has keys that are not there, or that no row sees.
  bool is_partly_unseen() const {
    const int first = at * BLOCK_N;
    return keys - first < BLOCK_N || first_key > first;
  }
  // The keys that a row sees. token: the row's, of this warpgroup.
  RowRange range(int token, int window) const {
    return {larger_of(position + token - window, 0), larger_of(smaller_of(position + token + 1, keys), 0)};
  }
};

// A row's token and query head, among the item's tokens and the kv head's.
struct Row {
  int token, head;
};

// A product's queries and keys, as it takes them.
struct Operands {
  uint64_t queries, keys;
};
// A matrix so many bytes on. No carry leaves the address, so that the upper word stays where it is.
static inline uint64_t onward(uint64_t matrix, uint32_t bytes) {
  return (matrix & ~uint64_t{0xffffffff}) | static_cast<uint32_t>(static_cast<uint32_t>(matrix) + (bytes >> 4));
}
// The same matrix, made here.
static inline uint64_t made_here(uint64_t matrix) { return (matrix & ~uint64_t{0xffffffff}) | keep_here(static_cast<uint32_t>(matrix)); }
