// Hopper vocabulary of the chunked recurrence with gates of keys and the delta rule: the warpgroups that bring chunks to those that carry a state. They
// copy what there is of a chunk, and make of queries and keys what a state is read by and takes in: rows of length 1, each weighed by what its gates
// leave of it from the chunk's start (the first warpgroup), or to its end (the second). Part of a template, which has defined the parts of a chunk and
// their Places before.
#pragma once
#include "device/sm90/sm90_few_registers.h"

constexpr int FEEDERS = PARTS, FEEDER_THREADS = FEEDERS * WARP, FEEDERS_MEET = 3;  // warps of each; a barrier's number
constexpr int AT_ONCE = 2;  // tokens whose rows are read before the first is weighed

// Two numbers; pieces are a box apart.
static inline void store_row_pieces(uint32_t to, float x, float y) {
#pragma unroll
  for (int piece = 0; piece < ROW_PIECES; ++piece) {
    const uint32_t word = pack_pair<Piece>(x, y);
    store_shared_word(to + piece * BOX, word);
    x -= low_as<Piece>(word), y -= high_as<Piece>(word);
  }
}

struct Feeder {
  const Places at;
  const Segment& segment;
  Carried& carried;
  const int chunks_before, query_head, key_head, value_head;
  const TensorMap &queries, &keys, &values, &gates, &inverse, &weights;
  const float* numbers;  // of the segment's first chunk
  const int row;         // from a chunk's to the next one's

  // A warp has a part's tokens, and 64 keys of them at a time: a lane two neighbours.
  static int part() { return uniform(warp() % FEEDERS); }
  // What a lane weighs by, of a chunk's numbers: the logs of what gates leave of its two keys before the part, or after it (then of box BOXES + ...).
  static Pack<float, 2> logs_of(const float* chunk, int box) {
    const int after = box >= BOXES;
    return load_pack<2>(chunk + PART_LOGS + (after * PARTS + part()) * KEYS + 64 * (box - after * BOXES) + 2 * lane());
  }
  // What makes rows of the part's tokens ones of length 1: of token `lane` its key, of token `lane` - PART its query.
  static float factors_of(const float* chunk) { return chunk[ROW_FACTORS + lane() / PART * CHUNK + part() * PART + lane() % PART]; }
  const float* after(const float* chunk, int number) const { return number + 1 < segment.chunks() ? chunk + row : chunk; }
  // What rows of 64 keys are weighed of.
  void start(int chunk, int box) const {
    const int token = segment.first + chunk * CHUNK;
    barrier_arrive_expect(at.full(RAW + box), 2 * BOX + 4 * CHUNK * 64);
    load_tile(at.first + box * GROUP + RAW_GATES, gates, at.full(RAW + box), {64 * box, segment.head, token, segment.sequence});
    load_tile(at.first + box * GROUP + RAW_KEYS, keys, at.full(RAW + box), {64 * box, key_head, token, segment.sequence});
    load_tile(at.first + box * GROUP + RAW_QUERIES, queries, at.full(RAW + box), {64 * box, query_head, token, segment.sequence});
  }
  void copy_values(int chunk, const float* betas) const {
    const int token = segment.first + chunk * CHUNK;
    barrier_wait(at.empty(VALUES_PART), chunk % 2 ^ 1);
    barrier_arrive_expect(at.full(VALUES_PART), (carried.carries ? 0 : 2 * BOX) + 8 * CHUNK);
    if (!carried.carries) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_tile(at.first + VALUES + i * BOX, values, at.full(VALUES_PART), {segment.slice * 128 + 64 * i, value_head, token, segment.sequence});
    }
    load_bytes(at.first + BETA_ROWS, betas, 8 * CHUNK, at.full(VALUES_PART));
  }
  void copy_matrices(int chunk, const float* numbers_of) const {
    barrier_wait(at.empty(INVERSE), chunk % 2 ^ 1);
    barrier_arrive_expect(at.full(INVERSE), INVERSE_PARTS * BOX + 16);
    load_tile(at.first + INVERSE_AT, inverse, at.full(INVERSE), {0, 0, 0, segment.head, chunks_before + chunk});
    load_bytes(at.first + POWER, numbers_of + INVERSE_POWER, 16, at.full(INVERSE));
    barrier_wait(at.empty(PAIRS), chunk % 2 ^ 1);
    barrier_arrive_expect(at.full(PAIRS), BOX + 4 * CHUNK);
    load_tile(at.first + PAIRS_AT, weights, at.full(PAIRS), {0, 0, segment.head, chunks_before + chunk});
    load_bytes(at.first + OUT_ROW, numbers_of + OUT_FACTORS, 4 * CHUNK, at.full(PAIRS));
  }

  // A lane's place in a row of 128 bytes is one for 8 tokens but for an exclusive or with 16 times the token, as tensor maps swizzle boxes.
  uint32_t rows_at(int box) const { return at.first + box * GROUP + part() * PART * 128 + lane() * 4; }
  uint32_t gates_at(int box) const { return at.first + box * GROUP + RAW_GATES + part() * PART * 256 + lane() * 8; }
  static uint32_t pair_at(uint32_t rows, int t) { return (rows ^ t * 16) + t * 128; }
  void weigh_early(const Pack<float, 2>& logs, float factors, int box) const {
    uint32_t rows = rows_at(box), from = gates_at(box);
    float left[2] = {logs.at[0], logs.at[1]};
#pragma unroll 1
    for (int first = 0; first < PART; first += 8) {
#pragma unroll
      for (int t = 0; t < 8; t += AT_ONCE) {
        Pack<float, 2> own[AT_ONCE];
        uint32_t key_pairs[AT_ONCE], query_pairs[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
          own[i] = load_shared_pair(from + (t + i) * 256);
          key_pairs[i] = load_shared_word(pair_at(rows, t + i) + RAW_KEYS), query_pairs[i] = load_shared_word(pair_at(rows, t + i) + RAW_QUERIES);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
          left[0] += own[i].at[0] * LOG2_E, left[1] += own[i].at[1] * LOG2_E;
          const float low = exp2_of(left[0]), high = exp2_of(left[1]), key = shuffle(factors, first + t + i), query = shuffle(factors, PART + first + t + i);
          store_shared_word(pair_at(rows, t + i) + QUERIES_AT, pack_pair<Piece>(low_of(query_pairs[i]) * query * low, high_of(query_pairs[i]) * query * high));
          store_row_pieces(pair_at(rows, t + i), low_of(key_pairs[i]) * key * low, high_of(key_pairs[i]) * key * high);
        }
      }
      rows += 8 * 128, from += 8 * 256;
    }
  }
  void weigh_late(const Pack<float, 2>& logs, float factors, int box) const {
    uint32_t rows = rows_at(box) + (PART - 8) * 128, from = gates_at(box) + (PART - 8) * 256;
    float left[2] = {logs.at[0], logs.at[1]};
#pragma unroll 1
    for (int first = PART - 8; first >= 0; first -= 8) {
#pragma unroll
      for (int t = 8 - AT_ONCE; t >= 0; t -= AT_ONCE) {
        Pack<float, 2> own[AT_ONCE];
        uint32_t key_pairs[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) own[i] = load_shared_pair(from + (t + i) * 256), key_pairs[i] = load_shared_word(pair_at(rows, t + i) + RAW_KEYS);
#pragma unroll
        for (int i = AT_ONCE - 1; i >= 0; --i) {
          const float key = shuffle(factors, first + t + i);
          store_row_pieces(pair_at(rows, t + i) + LATE_AT, low_of(key_pairs[i]) * key * exp2_of(left[0]), high_of(key_pairs[i]) * key * exp2_of(left[1]));
          left[0] += own[i].at[0] * LOG2_E, left[1] += own[i].at[1] * LOG2_E;
        }
      }
      rows -= 8 * 128, from -= 8 * 256;
    }
  }
  void hand_over(int of) const {
    fence_async();
    sync_warp();
    if (lane() == 0) barrier_arrive(at.full(of));
  }

  void give_raw(int box) const {
    sync_warp();
    if (lane() == 0) barrier_arrive(at.empty(RAW + box));
  }

  // What a state is read by, and the parts after it.
  void feed_early() const {
    const bool copies = thread_x() == 0;
    const float* here = numbers;
    auto logs = logs_of(here, 0);
    float factors = factors_of(here);
#pragma unroll 1
    for (int chunk = 0; chunk < segment.chunks(); ++chunk) {
#pragma unroll 1
      for (int box = 0; box < BOXES; ++box) {
        const bool last = box + 1 == BOXES;
        const auto ahead = logs_of(last ? after(here, chunk) : here, last ? 0 : box + 1);
        barrier_wait_all(at.full(RAW + box), chunk % 2);
        barrier_wait_all(at.empty(EARLY + box), chunk % 2 ^ 1);  // so that the chunk before is being computed
        if (carried.carries && box == 0 && chunk >= 2 && !carried.any_left(chunk % 2)) {  // after the one before that
          if (copies) carried.end = chunk;
          hand_over(EARLY);
#pragma unroll 1
          for (int i = 0; i < BOXES; ++i) give_raw(i);
          return;
        }
        weigh_early(logs, factors, box);
        logs = ahead;
        hand_over(EARLY + box);
        give_raw(box);
      }
      factors = factors_of(after(here, chunk));
      if (thread_x() * WARP < DECAY_ROW) fetch(after(here, chunk) + thread_x() * WARP);
      if (copies) copy_values(chunk, here + KEYS), copy_matrices(chunk, here);
      sync_warp();
      here = after(here, chunk);
    }
  }
  // What it takes in, with decays; and what both are weighed of.
  void feed_late() const {
    const bool copies = thread_x() == FEEDER_THREADS;
    for (int box = 0; box < BOXES && copies; ++box) start(0, box);
    sync_warp();
    const float* here = numbers;
    auto logs = logs_of(here, BOXES);
    float factors = factors_of(here);
    bool ends = false;
#pragma unroll 1
    for (int chunk = 0; chunk < segment.chunks() && !ends; ++chunk) {
#pragma unroll 1
      for (int box = 0; box < BOXES; ++box) {
        const bool last = box + 1 == BOXES;
        const auto ahead = logs_of(last ? after(here, chunk) : here, last ? BOXES : BOXES + box + 1);
        barrier_wait_all(at.full(RAW + box), chunk % 2);
        barrier_wait_all(at.empty(LATE + box), chunk % 2 ^ 1);
        if (copies) {
          barrier_arrive_expect(at.full(LATE + box), 4 * 64);
          load_bytes(at.first + DECAYS + 256 * box, here + 64 * box, 4 * 64, at.full(LATE + box));
        }
        weigh_late(logs, factors, box);
        logs = ahead;
        hand_over(LATE + box);
        barrier_wait_all(at.empty(RAW + box), chunk % 2);  // the other warpgroup has read it
        ends = carried.end <= chunk;
        sync_some(FEEDERS_MEET, FEEDER_THREADS);
        if (copies && chunk + 1 < segment.chunks() && !ends) start(chunk + 1, box);
        sync_warp();
      }
      if (ends) {  // nothing is on its way any more
#pragma unroll 1
        for (int box = 0; box < BOXES; ++box) barrier_wait_all(at.full(LATE + box), chunk % 2);
      }
      here = after(here, chunk);
      factors = factors_of(here);
    }
  }
};
