// GPU vocabulary of ragged_page_attention on Hopper: the pieces of work that a list has for blocks to take. Part of a template, which has defined before:
// GROUPS, BLOCK_N.
//
// A stream is a chunk of new tokens of a sequence, times the query heads of one kv head, against all keys that some of them sees. An item is a stream, or some
// steps of one. A stream of many rows ("wide") has 64 of them a warpgroup; of one that a single warpgroup could have, all warpgroups have the same rows, and
// take its steps in turn ("shared"), or all but the first have none of worth. What the warpgroups have of a shared item of few rows their block adds up; of others
// these parts wait in memory, as those of cut streams.
#pragma once
#include "device/attention/share_places.h"
#include "device/attention/visible_keys.h"

constexpr int ITEM_WORDS = 12;
// Rows by 16 of shared items that a block adds up: so many have room where the queries were, and the code of three warpgroups has no registers for it.
constexpr int MERGED_UNITS = GROUPS == 2 ? 2 : 0;

struct RaggedItem {
  int sequence, kv_head, token, tokens;  // token: the first one, of all sequences
  int position, keys;                    // of that token among the sequence's keys, and how many there are
  int first, end;                        // steps
  int slot;                              // where parts of the stream wait, in rows by 16; negative: this is all of it
  int pieces, piece;
  int wide, shared;                      // see above
  int apart;                             // warpgroups have parts of a shared item in memory
};

// What the list begins with: how many items of each queue are taken and how many there are, and how many blocks begin with queue 0. Then of each slot how
// many parts have arrived. Queue 0 has wide streams.
enum PlanWord { TAKEN = 0, COUNT = 2, FIRST_BLOCKS = 4, ARRIVED = 8 };

static inline void store_item(int32_t* to, const RaggedItem& x) {
  store_pack(to, Pack<int32_t, 4>{{x.sequence, x.kv_head, x.token, x.tokens}});
  store_pack(to + 4, Pack<int32_t, 4>{{x.position, x.keys, x.first, x.end}});
  store_pack(to + 8, Pack<int32_t, 4>{{x.slot, x.pieces, x.piece, x.wide + 2 * x.shared + 4 * x.apart}});
}
struct ItemWords {
  Pack<int32_t, 4> part[ITEM_WORDS / 4];
  explicit ItemWords(const int32_t* from) {
#pragma unroll
    for (int i = 0; i < ITEM_WORDS / 4; ++i) part[i] = load_pack<4>(from + 4 * i);
  }
  RaggedItem item() const {
    const Pack<int32_t, 4> &a = part[0], &b = part[1], &c = part[2];
    return {a.at[0], a.at[1], a.at[2], a.at[3], b.at[0], b.at[1], b.at[2], b.at[3], c.at[0], c.at[1], c.at[2], c.at[3] & 1, c.at[3] >> 1 & 1, c.at[3] >> 2};
  }
};
static inline RaggedItem load_item(const int32_t* from) { return ItemWords(from).item(); }

// Keys before a query that it sees at most: so many that no sum of it and a position overflows, where all.
constexpr int EVERY_KEY = 0x3fffffff;
static inline int window_of(int64_t window_left) { return window_left < 0 || window_left > EVERY_KEY ? EVERY_KEY : static_cast<int>(window_left); }
