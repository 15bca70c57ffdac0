// Where queries, keys and values of ragged_page_attention on Hopper lie in shared memory, with their barriers; and what the warps of a block know of an item. Part of
// attend.sm90.cu, whose constants it uses.
#pragma once

// Barriers come in pairs: full, then empty. Each warpgroup has its own queries of an item.
struct Places {  // in shared memory
  static constexpr uint32_t QUERIES = Q_STAGES * GROUPS, RAW = QUERIES + 2 * STAGES, BARRIERS = RAW + 2 * RAW_STAGES;
  static constexpr uint32_t K_AT = QUERIES * Q_BYTES, V_AT = K_AT + STAGES * K_BYTES, RAW_AT = V_AT + STAGES * K_BYTES, BARRIERS_AT = RAW_AT + 2 * RAW_STAGES * RAW_BYTES;
  static constexpr uint32_t BYTES = BARRIERS_AT + 16 * (BARRIERS + 1);
  uint32_t base;
  uint32_t q(uint32_t i, int part) const { return base + (i * GROUPS + part) * Q_BYTES; }
  uint32_t k(uint32_t i) const { return base + K_AT + i * K_BYTES; }
  uint32_t v(uint32_t i) const { return base + V_AT + i * K_BYTES; }
  uint32_t raw_k(uint32_t i) const { return base + RAW_AT + i * RAW_BYTES; }
  uint32_t raw_v(uint32_t i) const { return raw_k(RAW_STAGES + i); }
  uint32_t barrier(uint32_t i) const { return base + BARRIERS_AT + 16 * i; }
  uint32_t q_full(uint32_t i, int part) const { return barrier(i * GROUPS + part); }
  uint32_t k_full(uint32_t i) const { return barrier(QUERIES + i); }
  uint32_t v_full(uint32_t i) const { return barrier(QUERIES + STAGES + i); }
  uint32_t raw_k_full(uint32_t i) const { return barrier(RAW + i); }
  uint32_t raw_v_full(uint32_t i) const { return barrier(RAW + RAW_STAGES + i); }
  uint32_t found() const { return barrier(BARRIERS); }  // an item is known
  uint32_t wanted() const { return found() + 8; }       // the one before it is being copied, and its last AHEAD steps' keys are next
};
static_assert(Places::BYTES + 1024 == ${shared}, "the spec has another size");
constexpr int AHEAD = 8;  // steps
static inline uint32_t empty(uint32_t full) { return full + 8; }

// An item, and what follows from it.
struct KnownItem {
  RaggedItem item;
  int number;         // in the list; negative: there are no more
  int first_key;      // the first one that some row sees
  int first_whole, end_whole;  // steps that are seen whole by all rows; none where `negative`
  float unit, cap_unit, v_factor;  // take products to scores in units of log 2; to what tanh is of; outputs to values
  bool negative;      // `unit` is of the products' opposites
  int there;          // so many of its keys are, whether or not the launch before this one has ended
  bool passes;        // its keys and values leave the L2 cache first, since wide streams come back to theirs
};

// Items are known Q_STAGES + 1 ahead, one more where queries are in registers already, and to consumers until their outputs are stored.
constexpr uint32_t ITEMS = Q_STAGES + 4;
__shared__ KnownItem known[ITEMS];
__shared__ bool first_known;  // the first one, before the list is there

// What follows from an item.
struct Units {
  int window;  // keys before a query that it sees at most
  float scale, soft_cap;
  Factors k, v;
  void fill(KnownItem& to) const {
    const RaggedItem& item = to.item;
    to.first_key = larger_of(item.position - window, 0), to.first_whole = (larger_of(item.position + item.tokens - 1 - window, 0) + BLOCK_N - 1) / BLOCK_N;
    to.end_whole = larger_of(smaller_of(item.position + 1, item.keys), 0) / BLOCK_N;
    const float natural = scale * k[item.kv_head];
    to.unit = (CAPPED ? soft_cap : larger_of(fabsf(natural), 1e-30f)) * LOG2_E,  // not 0: what is hidden is -inf times it
    to.negative = !CAPPED && natural < 0;
    if (to.negative) to.end_whole = 0;  // so that one look says that a step needs no more than its products' weights
    to.cap_unit = CAPPED ? natural / soft_cap : 0, to.v_factor = v[item.kv_head];
  }
};

// The list, and who takes what: a block goes on with the other queue when its own is empty.
struct RaggedQueue {
  int32_t* words;
  const int32_t* items;
  int room;  // of a queue
  const int32_t* item(int number) const { return items + int64_t{number} * ITEM_WORDS; }
  int count(int queue) const { return words[COUNT + queue]; }
};

// A warp that makes items known, one ahead of their copies.
struct Finder {
  const Places& at;
  const Units& units;

  // The item that a block begins with, before its barriers are there.
  void note_first(const FoundItem& found) const {
    if (lane() == 0) {
      if (found.known) write(0, found.item, found.number, found.passes, found.there);
      first_known = found.known;
    }
    sync_warp();
  }
  // The list may not be there yet, but its first item may be known; all else that blocks read was there before the list's launch let this one start, but for the
  // keys that it writes. ask(item): for its first keys and values, where nearly all blocks wait for products before.
  template <class Ask> void run(const RaggedQueue& list, const Ask& ask) const {
    RaggedItem item;
    int number = 0;
    const bool early = uniform(first_known);
    if (early) {
      item = known[0].item;
      if (lane() == 0) barrier_arrive(at.found());
      sync_warp();
    }
    wait_for_previous_launch();
    const int wide_count = uniform(list.count(0)), other_count = uniform(list.count(1));
    const int first_blocks = uniform(list.words[FIRST_BLOCKS]);
    const bool idle = first_blocks > grid_x() - grid_x() / 8;  // memory, while wide streams are attended to
    int queue = Division::start_of(block_x(), grid_x(), first_blocks, number);
    bool changed = false, told = early, was_wide = false;
    Turn<ITEMS> place;
    for (int parity = 0;;) {
      if (!told) {
        while (number >= (queue == 0 ? wide_count : other_count) && !changed) {
          changed = true, queue ^= 1;
          number = take(list, queue);
        }
        if (number >= (queue == 0 ? wide_count : other_count)) return tell_end(place.at);
        item = load_item(list.item(queue * list.room + number));
        if (uniform(item.first) < uniform(item.end)) {
          tell(place.at, item, queue * list.room + number, queue == 1 && wide_count > 0, 0);
          if (idle && was_wide && queue == 1) ask(item);
        } else {
          number = take(list, queue);
          continue;
        }
      }
      told = false, was_wide = queue == 0;
      place.next();
      // As late as copies allow: what a block has taken, others that end before it cannot.
      const bool is_short = uniform(item.end) - uniform(item.first) <= AHEAD;
      if (is_short) number = take(list, queue);
      barrier_wait_all(at.wanted(), parity);
      parity ^= 1;
      if (!is_short) number = take(list, queue);
    }
  }
  void write(uint32_t place, const RaggedItem& item, int number, bool passes, int there) const {
    known[place].item = item, known[place].number = number, known[place].passes = passes, known[place].there = there;
    units.fill(known[place]);
  }
  void tell(uint32_t place, const RaggedItem& item, int number, bool passes, int there) const {
    if (lane() == 0) {
      write(place, item, number, passes, there);
      barrier_arrive(at.found());
    }
    sync_warp();
  }
  void tell_end(uint32_t place) const {
    if (lane() == 0) {
      known[place].number = -1;
      barrier_arrive(at.found());
    }
  }
  static int take(const RaggedQueue& list, int queue) {
    int number = 0;
    if (lane() == 0) number = atomicAdd(list.words + TAKEN + queue, 1);
    return uniform(number);
  }
};
