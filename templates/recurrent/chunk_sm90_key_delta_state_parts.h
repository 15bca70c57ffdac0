// Hopper vocabulary of the chunked recurrence's gradient with gates of keys and the delta rule: the parts of a chunk that a walk through states reads, their
// places in shared memory, and the thread that copies them. Part of chunk_sm90_key_delta_states.h.
#pragma once

// A block has one way through a head of a sequence: warp 0 copies, the other warpgroups (CARRIERS) keep 64 values of the state each in registers, by keys.
// A chunk is copied in parts, each of which makes room for the next chunk's as soon as it has been read: rows that read the state, all pieces of
// 64 keys, then of the next; the inverse and the pairs' weights; rows that are taken in; queries; values or out's gradients, decays and betas, which
// are read from a chunk's start to its end and have two places in turn.
enum Copied { READERS, MATRICES_OF, TAKEN, QUERIES, VALUES, COPIED };
constexpr int VALUE_PLACES = 2, BARRIER_PAIRS = COPIED + VALUE_PLACES - 1;
constexpr uint32_t NUMBERS = 4 * DECAYS_AND_BETAS;
constexpr uint32_t PIECES_OF_ROWS = ROW_PIECES * BOX, ROWS_BYTES = BOXES * PIECES_OF_ROWS, PIECES_OF_QUERIES = QUERY_PIECES * BOX;

struct StatePlaces {
  static constexpr uint32_t VALUES_AT = ROWS_BYTES, MATRICES_AT = VALUES_AT + VALUE_PLACES * CARRIERS * BOX, TAKEN_AT = MATRICES_AT + (INVERSE_PARTS + PAIR_PIECES) * BOX;
  static constexpr uint32_t QUERIES_AT = TAKEN_AT + ROWS_BYTES, OUT = QUERIES_AT + BOXES * PIECES_OF_QUERIES, DECAYS = OUT + CARRIERS * OUT_BUFFERS * BOX;
  static constexpr uint32_t BARRIERS = DECAYS + VALUE_PLACES * NUMBERS, BYTES = BARRIERS + 16 * BARRIER_PAIRS;
  uint32_t first;

  uint32_t readers() const { return first; }
  uint32_t values(int part, int step) const { return first + VALUES_AT + (step % VALUE_PLACES * CARRIERS + part) * BOX; }
  uint32_t inverse() const { return first + MATRICES_AT; }
  uint32_t pairs(int piece) const { return inverse() + (INVERSE_PARTS + piece) * BOX; }
  uint32_t taken() const { return first + TAKEN_AT; }
  uint32_t queries() const { return first + QUERIES_AT; }
  uint32_t out(int part) const { return first + OUT + part * OUT_BUFFERS * BOX; }
  static constexpr uint32_t numbers(int step) { return DECAYS + step % VALUE_PLACES * NUMBERS; }
  // Barriers of a step's part, a pair a place; those of values are the last ones.
  static constexpr int places(int copied) { return copied == VALUES ? VALUE_PLACES : 1; }
  uint32_t full(int copied, int step) const { return first + BARRIERS + 16 * (copied + step % places(copied)); }
  uint32_t empty(int copied, int step) const { return full(copied, step) + 8; }
  static int parity(int copied, int step) { return step / places(copied) % 2; }
};
static_assert(1024 + StatePlaces::BYTES <= ${state_shared} && StatePlaces::BARRIERS % 8 == 0, "the spec has another size");

struct StateCopier {
  const StatePlaces at;
  const Walk& walk;
  const int first_part;  // the first of the block's 64 values
$if packed
  const TensorMap& readers;
  const PackedRows values;
  const TensorMap &inverses, &pairs, &taken, &queries;
$else
  const TensorMap &readers, &values, &inverses, &pairs, &taken, &queries;
$end
  const float* decays;

  // Waits until a part's place is free; then its barrier expects so many bytes.
  uint32_t open(Copied copied, int step, uint32_t bytes) const {
    barrier_wait(at.empty(copied, step), at.parity(copied, step) ^ 1);
    barrier_arrive_expect(at.full(copied, step), bytes);
    return at.full(copied, step);
  }
  void copy_rows(uint32_t to, const TensorMap& from, int pieces, int number, uint32_t full) const {
#pragma unroll
    for (int box = 0; box < BOXES; ++box) load_tile(to + box * pieces * BOX, from, full, {64 * box, 0, 0, walk.head, number});
  }
  void run() const {
#pragma unroll 1
    for (int step = 0; step < walk.chunks; ++step) {
      const int chunk = walk.chunk(step), number = walk.number(chunk);
      copy_rows(at.readers(), readers, ROW_PIECES, number, open(READERS, step, ROWS_BYTES));
      uint32_t full = open(VALUES, step, CARRIERS * BOX + NUMBERS);
#pragma unroll
      for (int i = 0; i < CARRIERS; ++i) load_tile(at.values(i, step), values, full, {64 * (first_part + i), walk.head, chunk * CHUNK, walk.sequence});
      load_bytes(at.first + at.numbers(step), decays + (static_cast<int64_t>(number) * walk.heads + walk.head) * DECAY_ROW, NUMBERS, full);
      full = open(MATRICES_OF, step, (INVERSE_PARTS + (walk.back ? PAIR_PIECES : 0)) * BOX);
      if (walk.back) load_tile(at.pairs(0), pairs, full, {0, 0, 0, walk.head, number});
      load_tile(at.inverse(), inverses, full, {0, 0, 0, walk.head, number});
      copy_rows(at.taken(), taken, ROW_PIECES, number, open(TAKEN, step, ROWS_BYTES));
      if (walk.back) copy_rows(at.queries(), queries, QUERY_PIECES, number, open(QUERIES, step, BOXES * PIECES_OF_QUERIES));
    }
  }
};
