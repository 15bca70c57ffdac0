// Hopper vocabulary of the attention kernels: the segments of some tokens, by which whole steps are passed over or need no look at pairs.
#pragma once
#include "device/sm90/sm90_uniform.h"

// Ids from the least to the largest; padded: some tokens are of no segment (their id is negative), see nothing and are not seen.
struct SegmentRange {
  static constexpr int NONE = 0x7fffffff;
  int least = NONE, largest = -1;
  bool padded = false;

  void add(int id) {
    if (id < 0) {
      padded = true;
      return;
    }
    least = id < least ? id : least, largest = id > largest ? id : largest;
  }
  // Of what all lanes of a warp have.
  static SegmentRange of(const SegmentRange& mine) {
    return {smallest_in_warp(mine.least), largest_in_warp(mine.largest), any_in_warp(mine.padded)};
  }
  bool meets(const SegmentRange& other) const { return least <= other.largest && other.least <= largest; }
  bool is_one() const { return !padded && least == largest; }
};
