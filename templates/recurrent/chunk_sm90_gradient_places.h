// Hopper vocabulary of the chunked recurrence's gradient: what a block has to do, what is where in shared memory, and its barriers. Part of
// backward.chunk.sm90.cu.
#pragma once

// out_t = read_scale times what the row of `readers` reads of the state at t, and pair_scale times what it reads in the chunk; the state
// takes in rows `written` times write_scale at places `read`. back: from the last token on; what is read and written at a token then decays
// as the forward pass' writes and reads do. by_values: rows of the state are values, and columns keys; else the other way round. ends: the
// last state is a result.
struct Job {
  const ${packed ? 'PackedRows' : 'TensorMap'} &readers, &read, &written, &met, &out;  // met: what the sums read of a state are multiplied with
  float read_scale, write_scale, pair_scale;
  bool back, by_values, ends;
};

// A head of a sequence, of which a block has the `steps` chunks from number `first` on: one of segments that are computed at once.
struct Stream {
  int sequence, head, heads, count, chunks, first, steps;  // count: tokens of the sequence; chunks: likewise
$if dual
  int group;  // of heads that share rows of keys
$end
$if packed
  int first_token, before;  // of all tokens; chunks of sequences before it, at most
  Stream(uint32_t item, uint32_t all_heads, const PackedSequence& of)
      : sequence(static_cast<int>(item / all_heads)), head(static_cast<int>(item - item / all_heads * all_heads)), heads(static_cast<int>(all_heads)),
        count(of.count), chunks(of.chunks), first(0), steps(chunks), first_token(of.first), before(of.before) {}
  Stream(uint32_t item, uint32_t all_heads, const int32_t* cum_seqlens, int64_t length)
      : Stream(item, all_heads, PackedSequence(cum_seqlens, static_cast<int>(item / all_heads), length)) {}
  PackedRows rows(const TensorMap& map, const TensorMap& copies, int tensor, int64_t boxes) const {
    return PackedRows::of(map, copies, tensor, boxes, sequence, first_token, count, before);
  }
$else
  Stream(uint32_t item, uint32_t all_heads, const View& rows)
      : sequence(static_cast<int>(item / all_heads)), head(static_cast<int>(item - item / all_heads * all_heads)), heads(static_cast<int>(all_heads)),
        count(static_cast<int>(rows.shape[1])), chunks((count + CHUNK - 1) / CHUNK), first(0), steps(chunks)${dual ? ', group(head / (heads / static_cast<int>(rows.shape[2])))' : ''} {}
$end
  void cut(int segment, int64_t segment_chunks) {
    const int most = static_cast<int>(segment_chunks);
    first = segment * most;
    steps = chunks - first < most ? chunks - first : most;
  }
$if dual
  // Which head's rows a job reads, and which its state is made of.
  int reads(bool by_values) const { return by_values ? group : head; }
  int writes(bool by_values) const { return by_values ? head : group; }
$end
  int chunk_of(int step, bool back) const { return first + (back ? steps - 1 - step : step); }
};

constexpr uint32_t ROW_BOXES = BOXES * BOX, STATE_BOXES = 2 * BOX, STAGE = 2 * ROW_BOXES + STATE_BOXES * (GATED ? 2 : 1);
constexpr uint32_t PAIR_SLOTS = 2, OUT_BUFFERS = ${out_buffers};

// Stages of copied rows, chunks' pairs of tokens, rows of out, the stages' gates, barriers. Of ssd also those of pairs
// for x's gradient, and a state as elements.
struct Places {
$if dual
  static constexpr uint32_t PAIRS = STAGES * STAGE, STATE = PAIRS + 2 * PAIR_SLOTS * BOX, OUT = STATE + 2 * VALUE_BOXES * BOX, GATES = OUT + 2 * OUT_BUFFERS * BOX;
$else
  static constexpr uint32_t PAIRS = STAGES * STAGE, OUT = PAIRS + PAIR_SLOTS * BOX, GATES = OUT + 2 * OUT_BUFFERS * BOX;
$end
  static constexpr uint32_t BARRIERS = GATES + STAGES * sizeof(Gates), BYTES = BARRIERS + 16 * (STAGES + PAIR_SLOTS)${dual ? ' + 16' : ''};
  uint32_t first;

  uint32_t readers(uint32_t stage) const { return first + stage * STAGE; }
  uint32_t read(uint32_t stage) const { return readers(stage) + ROW_BOXES; }
  uint32_t written(uint32_t stage, int part) const { return read(stage) + ROW_BOXES + part * BOX; }
  uint32_t met(uint32_t stage, int part) const { return written(stage, part) + STATE_BOXES; }
  uint32_t pairs(uint32_t slot) const { return first + PAIRS + slot * BOX; }
$if dual
  uint32_t value_pairs(uint32_t slot) const { return pairs(PAIR_SLOTS + slot); }
  uint32_t state(int part) const { return first + STATE + part * (VALUE_BOXES * BOX); }
  uint32_t state_taken() const { return weighed(PAIR_SLOTS); }  // no longer read by the eight warps
$end
  uint32_t out(int part) const { return first + OUT + part * OUT_BUFFERS * BOX; }
  static Gates& gates(char* memory, uint32_t stage) { return reinterpret_cast<Gates*>(memory + GATES)[stage]; }

  // Of a stage: copied, and its gates summed up; no longer read by the eight warps that carry states.
  uint32_t full(uint32_t stage) const { return first + BARRIERS + 16 * stage; }
  uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
  // Of a chunk's pairs: written by the four warps that make them; no longer read by the others.
  uint32_t weighed(uint32_t slot) const { return first + BARRIERS + 16 * (STAGES + slot); }
  uint32_t taken(uint32_t slot) const { return weighed(slot) + 8; }

  void init() const {
    for (uint32_t i = 0; i < STAGES; ++i) {
      barrier_init(full(i), 2);
      barrier_init(empty(i), 8);
    }
    for (uint32_t i = 0; i < PAIR_SLOTS; ++i) {
      barrier_init(weighed(i), 4);
      barrier_init(taken(i), 8);
    }
    ${dual ? 'barrier_init(state_taken(), 8);' : ''}
  }
};
static_assert(1024 + Places::BYTES <= ${shared}, "the spec has another size");
static_assert(Places::BARRIERS % 8 == 0);
