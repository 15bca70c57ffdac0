// CPU vocabulary: what tokens that pass a range of keys together have of it. Part of a template, which has defined before: TOKENS, how many pass
// together at most, and Groups (key_groups.h).
#pragma once

// A token's weights, and their gradients or the scores', of the keys of a range that it sees: [row][pitch], a group after the other.
struct Entry {
  int64_t token;  // of those that pass together
  Groups groups;
  float *weights, *slopes;
  int64_t pitch;
};

// An entry that has a group, as its group number `place`.
struct Member {
  const Entry* entry;
  int64_t place;
};

// use(group, members, how many) for each group of keys that entries have, in order.
template <class Use> static inline void each_group(const Entry* entries, int64_t count, Use use) {
  int64_t next[TOKENS] = {};
  for (;;) {
    int64_t group = __INT64_MAX__, some = 0;
    for (int64_t i = 0; i < count; ++i)
      if (next[i] < entries[i].groups.count && entries[i].groups.index[next[i]] < group) group = entries[i].groups.index[next[i]];
    if (group == __INT64_MAX__) return;
    Member members[TOKENS];
    for (int64_t i = 0; i < count; ++i)
      if (next[i] < entries[i].groups.count && entries[i].groups.index[next[i]] == group) members[some++] = {entries + i, next[i]++};
    use(group, members, some);
  }
}
