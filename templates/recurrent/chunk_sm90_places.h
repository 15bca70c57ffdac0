// Hopper vocabulary of the chunked recurrence: what is where in shared memory, and its barriers. Part of forward.chunk.sm90.cu.
#pragma once

constexpr uint32_t KEY_BOXES = BOXES * BOX, VALUE_BOXES = 2 * BOX, INVERSE_BOXES = DELTA ? 2 * BOX : 0;
constexpr uint32_t STAGE = 2 * KEY_BOXES + VALUE_BOXES + INVERSE_BOXES;
constexpr uint32_t PAIR_SLOTS = 2, OUT_BUFFERS = ${out_buffers};

$if delta
using StageGates = Gates;
$else
struct StageGates : Gates {
  float upto[CHUNK];  // what is left of a token's write at the last of its 16 tokens (ssd: times its step)
};
$end

// Stages of copied rows, chunks' pairs of tokens of each head, rows of out, the stages' gates of each head, norms, barriers.
struct Places {
  static constexpr uint32_t PAIRS = STAGES * STAGE, OUT = PAIRS + PAIR_SLOTS * HEADS * BOX, GATES = OUT + 2 * OUT_BUFFERS * BOX;
  static constexpr uint32_t NORMS = GATES + STAGES * HEADS * sizeof(StageGates);
  static constexpr uint32_t BARRIERS = NORMS + (NORMED ? PAIR_SLOTS * sizeof(Norms) : 0), BYTES = BARRIERS + 16 * (STAGES + PAIR_SLOTS) + ${delta ? 'sizeof(Carried)' : '8 * STAGES'};
  uint32_t first;

  uint32_t queries(uint32_t stage) const { return first + stage * STAGE; }
  uint32_t keys(uint32_t stage) const { return queries(stage) + KEY_BOXES; }
  uint32_t values(uint32_t stage, int part) const { return keys(stage) + KEY_BOXES + part * BOX; }
  uint32_t inverse(uint32_t stage) const { return keys(stage) + KEY_BOXES + VALUE_BOXES; }
  uint32_t pairs(uint32_t slot, int own = 0) const { return first + PAIRS + (slot * HEADS + own) * BOX; }
  uint32_t out(int part) const { return first + OUT + part * OUT_BUFFERS * BOX; }
  static StageGates& gates(char* memory, uint32_t stage, int own = 0) { return reinterpret_cast<StageGates*>(memory + GATES)[stage * HEADS + own]; }
  static Norms& norms(char* memory, uint32_t slot) { return reinterpret_cast<Norms*>(memory + NORMS)[slot]; }
$if delta
  static Carried& carried(char* memory) { return *reinterpret_cast<Carried*>(memory + BARRIERS + 16 * (STAGES + PAIR_SLOTS)); }
$end

  // Of a stage: copied (with the delta rule, its gates summed up besides); no longer read by the eight warps that carry states.
  uint32_t full(uint32_t stage) const { return first + BARRIERS + 16 * stage; }
  uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
$if not delta
  // Its gates are summed up, of each head.
  uint32_t summed(uint32_t stage) const { return first + BARRIERS + 16 * (STAGES + PAIR_SLOTS) + 8 * stage; }
$end
  // Of a chunk's pairs: written by the four warps that make them; no longer read by the others.
  uint32_t weighed(uint32_t slot) const { return first + BARRIERS + 16 * (STAGES + slot); }
  uint32_t read(uint32_t slot) const { return weighed(slot) + 8; }

  void init() const {
    for (uint32_t i = 0; i < STAGES; ++i) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), 8);
$if not delta
      barrier_init(summed(i), HEADS);
$end
    }
    for (uint32_t i = 0; i < PAIR_SLOTS; ++i) {
      barrier_init(weighed(i), 4);
      barrier_init(read(i), 8);
    }
  }
};
static_assert(1024 + Places::BYTES <= ${shared}, "the spec has another size");
static_assert(Places::BARRIERS % 8 == 0);
