// CPU vocabulary: the keys that a token sees of a branch, as groups of GROUP keys that lie together, and which keys of each. Part of a template,
// which has defined before: GROUP, at most 32, and GROUPS, the groups that are taken at once.
#pragma once
#include "native_sparse_attention/select_blocks_cpu.h"

constexpr int64_t BLOCK = GROUP * GROUPS;  // keys taken at once
constexpr uint32_t WHOLE = static_cast<uint32_t>((uint64_t{1} << GROUP) - 1);

struct Groups {
  int64_t index[GROUPS];
  uint32_t seen[GROUPS];  // a bit a key
  int64_t count;

  // The bits of keys [first, first + LANES) of group i.
  uint32_t lanes(int64_t i, int64_t first) const { return seen[i] >> first & static_cast<uint32_t>((uint64_t{1} << LANES) - 1); }
};

// The keys [run.first, end) that `blocks` leave, GROUPS groups at a time; all of them where blocks.bits is null. Key 0 is number `base` of those that lie
// together.
struct Runs {
  SelectedBlocks blocks;
  KeyRange run;
  int64_t end, base;

  Runs(const SelectedBlocks& selected, int64_t first, int64_t last, int64_t before)
      : blocks(selected), run(selected.bits ? selected.next(first, last) : KeyRange{first, last}), end(last), base(before) {}

  // False: there is none left.
  bool next(Groups& groups) {
    groups.count = 0;
    while (run.first < run.end) {
      const int64_t first = base + run.first, group = first / GROUP, from = first % GROUP;
      const int64_t left = base + run.end - group * GROUP, to = left < GROUP ? left : GROUP;
      const uint32_t seen = static_cast<uint32_t>((uint64_t{1} << to) - (uint64_t{1} << from));
      if (groups.count > 0 && groups.index[groups.count - 1] == group) {
        groups.seen[groups.count - 1] |= seen;
      } else {
        if (groups.count == GROUPS) return true;
        groups.index[groups.count] = group, groups.seen[groups.count++] = seen;
      }
      run.first = group * GROUP + to - base;
      if (run.first == run.end && blocks.bits) run = blocks.next(run.end, end);
    }
    return groups.count > 0;
  }
};
