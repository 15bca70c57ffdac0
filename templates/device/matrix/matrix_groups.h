// CPU vocabulary: groups of rows of any size laid end to end, cut into blocks of rows.
#pragma once

struct RowBlock {
  int64_t begin, end;  // rows
  int64_t group;       // its number; the number of groups for rows past the last
};

// Groups whose sizes lie in memory: their sum may be less than `rows` (rows of no group) or more (they are cut). A size below 0 counts as
// 0.
struct RowGroups {
  const int32_t* sizes;
  int64_t count, rows;

  // Rows of a group; group == count: those of no group.
  RowBlock operator[](int64_t group) const {
    int64_t begin = 0;
    for (int64_t before = 0; before < group; ++before) begin += size(before);
    return cut(begin, group);
  }

  // Block number `index` of all, in order, each of `unit` rows times something and at most `most` rows, a group's blocks of about one size;
  // false: there are not so many.
  bool find_block(int64_t index, int64_t most, int64_t unit, RowBlock& block) const {
    int64_t begin = 0;
    for (int64_t group = 0; group <= count; ++group) {
      const RowBlock all = cut(begin, group);
      const int64_t length = all.end - all.begin, blocks = (length + most - 1) / most;
      if (index < blocks) {
        block = part(all, index, blocks, unit);
        return block.begin < block.end;
      }
      index -= blocks;
      begin = all.end;
    }
    return false;
  }

  // Part `index` of `parts` of some rows, in whole units.
  static RowBlock part(RowBlock all, int64_t index, int64_t parts, int64_t unit) {
    const int64_t units = (all.end - all.begin + unit - 1) / unit;
    const int64_t begin = all.begin + units * index / parts * unit, end = all.begin + units * (index + 1) / parts * unit;
    return {begin, end < all.end ? end : all.end, all.group};
  }

 private:
  int64_t size(int64_t group) const { return sizes[group] > 0 ? sizes[group] : 0; }
  RowBlock cut(int64_t begin, int64_t group) const {
    const int64_t end = group == count ? rows : begin + size(group);
    return {begin < rows ? begin : rows, end < rows ? end : rows, group};
  }
};
