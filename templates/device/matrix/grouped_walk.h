// GPU vocabulary: the tiles of a grouped product, in order, found by each warp for itself from group sizes that lie on the device.
#pragma once

// Groups are cut into as few bands of at most `most` rows as do, in steps of STEP rows, all of a group about equally high; a tile is a band
// and one of `columns` column blocks. Numbered group after group; within a group so many bands, TOGETHER, side by side, then the next
// column. After the last group come the rows of none, as one group more. `sorts`: of each WARP groups those with high tiles come first, so that
// those who take tiles end with low ones, at about the same time.
struct GroupTile {
  int group;     // number of groups: rows of none
  int row, end;  // of the matrix of all rows; row < end
  int column;    // block
  int bands;     // of the group
};

template <int STEP, int TOGETHER> struct GroupWalk {
  const int32_t* sizes;  // none: `groups` groups of `rows` rows, each with rows numbered from 0
  int groups, rows, columns, most;
  bool sorts;
  int window = 0, tiles_before = 0;          // the groups that lanes hold, and the tiles of those before them
  uint32_t rows_before = 0, rows_until = 0;  // before those groups, and before the next
  int my_group = 0;                          // this lane's
  uint32_t my_begin = 0, my_end = 0;         // its rows
  int tiles_until = 0;                       // tiles up to and with it, from tiles_before

  GroupWalk(const int32_t* group_sizes, int group_count, int row_count, int column_count, int most_rows, bool sorts_groups = false)
      : sizes(group_sizes), groups(group_count), rows(row_count), columns(column_count), most(most_rows), sorts(sorts_groups) {
    if (sizes) load();
  }

  // The tile of that number, not below that of the last call. False: there are not so many. All lanes call it.
  bool find(int tile, GroupTile& found) {
    if (!sizes) return find_equal(tile, found);
    int until = shuffle(tiles_until, WARP - 1);
    while (tile - tiles_before >= until) {
      if (window + WARP > groups) return false;
      next_window(until);
      until = shuffle(tiles_until, WARP - 1);
    }
    const int place = tile - tiles_before;
    int before = 0;  // groups of the window that end before the tile
#pragma unroll
    for (int half_of = WARP / 2; half_of > 0; half_of /= 2)
      if (shuffle(tiles_until, before + half_of - 1) <= place) before += half_of;
    const int first_tile = before > 0 ? shuffle(tiles_until, before - 1) : 0;
    found.group = sorts ? shuffle(my_group, before) : window + before;
    place_tile(place - first_tile, static_cast<int>(shuffle(my_begin, before)), static_cast<int>(shuffle(my_end, before)), found);
    return true;
  }

 private:
  bool find_equal(int tile, GroupTile& found) const {
    const int a_group = (rows + most - 1) / most * columns;
    found.group = tile / a_group;
    if (found.group >= groups) return false;
    place_tile(tile - found.group * a_group, 0, rows, found);
    return true;
  }

  void next_window(int tiles) {
    tiles_before += tiles;
    rows_before = rows_until;
    window += WARP;
    load();
  }

  // Sizes are cut off at the last row; sums of two do not overflow.
  void load() {
    const int group = window + lane();
    const uint32_t all = static_cast<uint32_t>(rows);
    uint32_t sum = group < groups ? static_cast<uint32_t>(sizes[group] < 0 ? 0 : sizes[group]) : group == groups ? all : 0;
    if (sum > all) sum = all;
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const uint32_t other = shuffle(sum, lane() >= by ? lane() - by : lane());
      if (lane() >= by) sum = sum + other < all ? sum + other : all;
    }
    my_end = rows_before + sum < all ? rows_before + sum : all;
    const uint32_t before = shuffle(my_end, lane() > 0 ? lane() - 1 : 0);
    my_begin = lane() > 0 ? before : rows_before;
    my_group = group;
    rows_until = shuffle(my_end, WARP - 1);
    if (sorts) sort();
    tiles_until = (static_cast<int>(my_end - my_begin) + most - 1) / most * columns;
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const int other = shuffle(tiles_until, lane() >= by ? lane() - by : lane());
      if (lane() >= by) tiles_until += other;
    }
  }

  // Lanes take groups in the order of their tiles' height, by a bitonic network, if they do not lie so.
  void sort() {
    const int size = static_cast<int>(my_end - my_begin), bands = (size + most - 1) / most;
    uint32_t key = (bands > 0 ? ((size + STEP - 1) / STEP + bands - 1) / bands : 0) * WARP + WARP - 1 - lane();
    const uint32_t before = shuffle(key, lane() > 0 ? lane() - 1 : 0);
    if (!any_in_warp(before < key)) return;
#pragma unroll
    for (int run = 2; run <= WARP; run *= 2)
#pragma unroll
      for (int by = run / 2; by > 0; by /= 2) {
        const uint32_t other = shuffle_xor(key, by);
        const bool takes_larger = ((lane() & by) == 0) == ((lane() & run) == 0);
        if (takes_larger == (other > key)) key = other;
      }
    const int from = WARP - 1 - static_cast<int>(key % WARP);
    my_group = shuffle(my_group, from);
    my_begin = shuffle(my_begin, from);
    my_end = shuffle(my_end, from);
  }

  void place_tile(int tile, int begin, int end, GroupTile& found) const {
    const int bands = (end - begin + most - 1) / most, side = tile / (TOGETHER * columns), first = side * TOGETHER;
    const int across = bands - first < TOGETHER ? bands - first : TOGETHER;
    const int within = tile - first * columns;
    found.bands = bands;
    found.column = within / across;
    const int band = first + within - found.column * across;
    const int steps = (end - begin + STEP - 1) / STEP, low = steps / bands, higher = steps - low * bands;  // so many bands have a step more
    found.row = begin + (band * low + (band < higher ? band : higher)) * STEP;
    found.end = found.row + (low + (band < higher ? 1 : 0)) * STEP;
    if (found.end > end) found.end = end;
  }
};
