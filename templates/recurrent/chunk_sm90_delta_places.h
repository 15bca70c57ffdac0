// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: what is where in shared memory while gradients are made. Part of
// backward.chunk_delta.sm90.cu.
#pragma once

// Values are multiplied in steps: what is copied of some is a stage, out's gradients, what tokens write and its gradients by tokens, states
// before and gradients after by values. Rows of queries and keys, and numbers, are a chunk's.
constexpr int STEP = 32, VALUE_STEPS = 128 / STEP;
constexpr uint32_t STEP_BOX = CHUNK * STEP * 2, STEP_STATE_BOX = STEP * 128, GRADIENT_STAGES = 2;
constexpr uint32_t STEP_ROWS = (1 + WRITTEN_PARTS + PARTS) * STEP_BOX, GRADIENT_STAGE = STEP_ROWS + 2 * PARTS * BOXES * STEP_STATE_BOX;
constexpr uint32_t ROWS = GRADIENT_STAGES;  // their barriers: after those of the stages
// A state is kept before each pair of chunks and its gradient after it, so that two chunks have their gradients as one of 128 tokens would, by
// turns: those of the later one with the states, those of the later one's tokens with the earlier one's, those of the earlier one.
enum Turns { LATER, ACROSS, EARLIER, TURNS };
static inline int steps_of(int turn) { return turn == ACROSS ? VALUE_STEPS / 2 : VALUE_STEPS; }
// Which of two phases the barriers of a stage have in a step of a turn of the block's item number `number`, which fill each stage 5 times.
static inline uint32_t stage_parity(int number, int turn, int step) { return (number + (turn == EARLIER) + step / static_cast<int>(GRADIENT_STAGES)) % 2; }
// What some warps wait for and others bring, once a turn: the place of pairs and of what is exchanged is free; they are there; and flows
// past gates likewise. All lanes arrive, so that compute-sanitizer follows the order, which it does not where warps arrive at a named
// barrier (barrier.arrive) without waiting there.
enum Meeting { PAIRS_FREE, PAIRS_THERE, FLOWS_FREE, FLOWS_THERE, MEETINGS };

// What flows past log gates in a turn, in parts: of what is read at a token, of the state and of earlier ones; of what it writes that is left
// after the pair of chunks; of what is read of each token; through the pair, by OF_READS and OF_WRITES. And gradients of beta.
struct DeltaFlows {
  float read[2][CHUNK], read_by_keys[CHUNK], left[CHUNK], read_here[8][CHUNK], through[2][4], beta[CHUNK];
};

struct GradientPlaces {
  static constexpr uint32_t STAGES_AT = 6 * BOX, PAIRS = STAGES_AT + GRADIENT_STAGES * GRADIENT_STAGE, EXCHANGE = PAIRS + 2 * BOX, OUT = EXCHANGE + 4 * BOX;
  static constexpr uint32_t NUMBERS = OUT + 2 * BOX, FLOWS = NUMBERS + 2 * NUMBERS_BYTES, BARRIERS = FLOWS + (sizeof(DeltaFlows) + 15) / 16 * 16;
  static constexpr uint32_t MEET = BARRIERS + 16 * (GRADIENT_STAGES + 1), BYTES = MEET + 8 * MEETINGS;
  uint32_t first;

  uint32_t queries() const { return first; }  // of the chunk that has its turn
  uint32_t keys(bool later) const { return first + (later ? 2 : 4) * BOX; }
  uint32_t before(uint32_t stage, int part) const { return first + STAGES_AT + stage * GRADIENT_STAGE + part * BOXES * STEP_STATE_BOX; }
  uint32_t after(uint32_t stage, int part) const { return before(stage, PARTS + part); }
  // Where there are no states in a stage (ACROSS), 32 more values (`more`) have their place.
  uint32_t dout(uint32_t stage, bool more = false) const { return before(stage, more ? 0 : 2 * PARTS); }
  uint32_t written(uint32_t stage, int part, bool more = false) const { return dout(stage, more) + (1 + part) * STEP_BOX; }
  uint32_t gradient(uint32_t stage, int part, bool more = false) const { return written(stage, WRITTEN_PARTS + part, more); }
  uint32_t pairs(int number) const { return first + PAIRS + number * BOX; }
  uint32_t exchange() const { return first + EXCHANGE; }
  uint32_t out(int number) const { return number ? exchange() : first + OUT; }  // of keys: where what was exchanged has been read
  uint32_t numbers(bool later) const { return first + NUMBERS + later * NUMBERS_BYTES; }
  uint32_t flows() const { return first + FLOWS; }
  uint32_t full(uint32_t barriers) const { return first + BARRIERS + 16 * barriers; }
  uint32_t empty(uint32_t barriers) const { return full(barriers) + 8; }
  uint32_t meeting(Meeting number) const { return first + MEET + 8 * number; }

  void init() const {
    for (uint32_t i = 0; i <= ROWS; ++i) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), 12);
    }
    barrier_init(meeting(PAIRS_FREE), WARPGROUP);
    barrier_init(meeting(PAIRS_THERE), 2 * WARPGROUP);
    barrier_init(meeting(FLOWS_FREE), WARP);
    barrier_init(meeting(FLOWS_THERE), 3 * WARPGROUP);
    fence_barrier_init();
  }
};
static_assert(STEP_ROWS <= 2 * PARTS * BOXES * STEP_STATE_BOX && GRADIENT_STAGES == 2);
static_assert(1024 + GradientPlaces::BYTES <= ${shared} && GradientPlaces::BARRIERS % 8 == 0, "the spec has another size");

// Two chunks of a head, one after the other. Those that the launch before wrote last, the last chunks of all sequences, come first, as the
// second-level cache has them.
struct GradientItem {
  int pair, head, heads, sequence, token, count;  // token: the first one's
$if packed
  int first, before;  // token of the sequence; chunks of sequences before. count: 0 where there is no such pair
  // Number: from the last one's to the first one's, for the same reason, where sequences are about as long.
  GradientItem(int place, int heads, int sequences, int pairs, const int32_t* cum_seqlens, int64_t length) : heads(heads) {
    const int row = place / heads;
    pair = pairs - 1 - row, head = place - row * heads;
    const PackedChunk own(cum_seqlens, sequences, 2 * pair, length);
    sequence = own.sequence, first = own.of.first, before = own.of.before, count = own.there() ? own.of.count : 0, token = own.number * CHUNK;
  }
  PackedRows rows(const TensorMap& map, const TensorMap& copies, int tensor, int64_t boxes) const {
    return PackedRows::of(map, copies, tensor, boxes, sequence, first, count, before);
  }
$else
  GradientItem(int place, int heads, int sequences, int count) : heads(heads), count(count) {
    const int pairs = (count + 2 * CHUNK - 1) / (2 * CHUNK), rows = heads * sequences, step = place / rows, row = place - step * rows;
    sequence = row / heads, head = row - sequence * heads;
    token = (pairs - 1 - step) * 2 * CHUNK, pair = sequence * pairs + pairs - 1 - step;
  }
$end
  int first_token(bool later) const { return token + later * CHUNK; }
  int chunk(bool later) const { return 2 * pair + later; }
  int number(bool later) const { return chunk(later) * heads + head; }  // as numbers of all are laid out
};
