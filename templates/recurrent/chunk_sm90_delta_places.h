// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: what is where in shared memory while gradients are made. Part of
// backward.chunk_delta.sm90.cu.
#pragma once

// What is copied together: rows of queries and keys and numbers, of a chunk; of 64 values out's gradients and what tokens write; its
// gradients; the state before; the gradient of that after.
enum Group { ROWS, WRITES, BEFORE, GRADIENTS, AFTER, GROUPS };
// Barriers of some warps (1 and 2: of the launch before).
enum Meeting { ALL_IDLE = 5, ALL_THERE, FLOWS_FREE, FLOWS_THERE };

// What flows past a chunk's log gates, in parts: of what is read at a token, of the state and of earlier ones; of what it writes that is left
// after the chunk; of what is read in the chunk of each token; through the chunk. And gradients of beta.
struct DeltaFlows {
  float read[2][CHUNK], left[CHUNK], read_here[8][CHUNK], through[4], beta[CHUNK];
};

struct GradientPlaces {
  static constexpr uint32_t DOUT = 4 * BOX, WRITTEN = DOUT + BOX, GRADIENT = WRITTEN + WRITTEN_PARTS * BOX, STATE = GRADIENT + PARTS * BOX;
  static constexpr uint32_t PAIRS = STATE + 2 * PARTS * BOXES * BOX, EXCHANGE = PAIRS + 2 * BOX, OUT = EXCHANGE + 4 * BOX, NUMBERS = OUT + 2 * BOX;
  static constexpr uint32_t FLOWS = NUMBERS + NUMBERS_BYTES, BARRIERS = FLOWS + (sizeof(DeltaFlows) + 15) / 16 * 16, BYTES = BARRIERS + 16 * GROUPS;
  uint32_t first;

  uint32_t queries() const { return first; }
  uint32_t keys() const { return first + 2 * BOX; }
  uint32_t dout() const { return first + DOUT; }
  uint32_t written(int part) const { return first + WRITTEN + part * BOX; }
  uint32_t gradient(int part) const { return first + GRADIENT + part * BOX; }
  uint32_t before(int part) const { return first + STATE + part * BOXES * BOX; }
  uint32_t after(int part) const { return before(PARTS + part); }
  uint32_t pairs(int number) const { return first + PAIRS + number * BOX; }
  uint32_t exchange() const { return first + EXCHANGE; }
  uint32_t out(int number) const { return number ? exchange() : first + OUT; }  // of keys: where what was exchanged has been read
  uint32_t numbers() const { return first + NUMBERS; }
  uint32_t flows() const { return first + FLOWS; }
  uint32_t full(int group) const { return first + BARRIERS + 16 * group; }
  uint32_t empty(int group) const { return full(group) + 8; }

  void init() const {
    for (int group = 0; group < GROUPS; ++group) {
      barrier_init(full(group), 1);
      barrier_init(empty(group), group == GRADIENTS || group == AFTER ? 4 : 12);
    }
    fence_barrier_init();
  }
};
static_assert(1024 + GradientPlaces::BYTES <= ${shared} && GradientPlaces::BARRIERS % 8 == 0, "the spec has another size");

// A chunk of a head, as numbers of all are laid out.
struct GradientItem {
  int number, chunk, head, sequence, token, count;
  GradientItem(int number, int heads, int count) : number(number), chunk(number / heads), head(number - chunk * heads), count(count) {
    const int chunks = (count + CHUNK - 1) / CHUNK;
    sequence = chunk / chunks, token = (chunk - sequence * chunks) * CHUNK;
  }
};
