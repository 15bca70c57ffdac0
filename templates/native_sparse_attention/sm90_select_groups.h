// Hopper vocabulary: groups of SELECT_WARPS tokens of packed sequences, in the order in which a block of threads selects for them. A part of
// sm90_select_entry.h.
#pragma once
#include "native_sparse_attention/sm90_packed_means.h"

// The sequence that a block of threads has reached, the last one first: all groups before it in the list are of others.
struct SelectSequence {
  int first_group;              // of its groups, among all
  int sequence, start, length;  // its number, the row of its first token, and how many it has

  // Goes on to a group, which comes before those that were reached already. False: it is no sequence's. `enters`: it is another sequence's than the last one.
  bool reach(bool& enters, int group, const int32_t* offsets, int64_t sequences, int tokens) {
    enters = false;
    if (group >= first_group) return true;
    const SequencePart part = part_of_sequence(offsets, sequences, group, SELECT_WARPS, true, tokens);
    if (part.of_none || !part.is_there(SELECT_WARPS)) return false;
    first_group = group - static_cast<int>(part.number), sequence = static_cast<int>(part.sequence);
    start = static_cast<int>(part.of.first), length = static_cast<int>(part.of.length);
    enters = true;
    return true;
  }
  // Numbers in the sequence of a group's first token, and of the last one that is there.
  int first_of(int group) const { return (group - first_group) * SELECT_WARPS; }
  int last_of(int group) const { return first_of(group) + SELECT_WARPS < length ? first_of(group) + SELECT_WARPS - 1 : length - 1; }
};
