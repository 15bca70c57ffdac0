// Hopper vocabulary of the chunked recurrence: the state after a segment of a sequence, without what is before it. Its chunks are met in the
// opposite order, each with what is left of it after the segment, so that those of which nothing is left are never read.
#pragma once

constexpr float NOTHING_LEFT = -125;  // in units of log 2; what is left of more is a normal number

// Shared memory: chunks on their way, of each the rows that are read and those that are written; their gates, barriers. No other rows lie there,
// so that more of them fit than when rows of out are made.
struct GatherPlaces {
  static constexpr uint32_t READ_BYTES = BOXES * BOX, BYTES = READ_BYTES + 2 * BOX, COUNT = (${shared} - 1024) / (BYTES + sizeof(Gates) + 16);
  static constexpr uint32_t GATES = COUNT * BYTES, BARRIERS = GATES + COUNT * sizeof(Gates);
  uint32_t first;
  char* memory;

  GatherPlaces() : first((shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024), memory(dynamic_shared() + (first - shared_pointer(dynamic_shared()))) {}
  uint32_t read(uint32_t stage) const { return first + stage * BYTES; }
  uint32_t written(uint32_t stage, int part) const { return read(stage) + READ_BYTES + part * BOX; }
  Gates& gates(uint32_t stage) const { return reinterpret_cast<Gates*>(memory + GATES)[stage]; }
  // Of a stage: copied, and its gates summed up; no longer read by the eight warps that add up states.
  uint32_t full(uint32_t stage) const { return first + BARRIERS + 16 * stage; }
  uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
  void init() const {
    for (uint32_t i = 0; i < COUNT; ++i) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), 8);
    }
    fence_barrier_init();
  }
};
static_assert(GatherPlaces::BARRIERS % 8 == 0 && GatherPlaces::COUNT > 2);

// The compiler has these registers for nothing else before this line, as products that go on may still read them.
static inline void keep_factors(uint32_t (&a)[4][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[k][i]) : : "memory");
}

// By a warp: copies chunks and makes their factors, until nothing is left of what comes after; the log of what the segment leaves of a state
// before it. token_of(step): a chunk's first token; copy(stage, token): starts its copies. back: gates are met from the last on.
template <class TokenOf, class Copy>
static inline float feed(const GatherPlaces& at, const ${dual ? 'DualNumbers' : 'TokenNumbers'}& gates, float gamma, int count, int chunks, bool back, TokenOf token_of, Copy copy) {
  LongSum log = {0, 0};  // of what the chunks so far leave, in units of log 2
  Turn<GatherPlaces::COUNT> turn;
  uint32_t raw[2];
  gates.load_raw(token_of(0), count, raw);
#pragma unroll 1
  for (int step = 0; step < chunks && log.high > NOTHING_LEFT; ++step, turn.next()) {
    float numbers[2];
$if dual  // ssd: what is written is multiplied by its step
    float steps[2];
    gates.read(raw, token_of(step), count, numbers, steps);
$else
    gates.read(raw, token_of(step), count, gamma, numbers);
$end
    if (step + 1 < chunks) gates.load_raw(token_of(step + 1), count, raw);
    barrier_wait_all(at.empty(turn.at), turn.parity ^ 1);
    if (lane() == 0) {
      barrier_expect(at.full(turn.at), GatherPlaces::BYTES);
      copy(turn.at, token_of(step));
    }
    Gates& to = at.gates(turn.at);
    put_gates(to, numbers);
    sync_warp();
    const float left = exp2_of(log.high + log.low);
    float* factors = back ? to.before : to.after;
#pragma unroll
    for (int i = 0; i < 2; ++i) factors[2 * lane() + i] *= left${dual ? ' * (back ? 1 : steps[i])' : ''};
    log = log + LongSum{to.high[CHUNK - 1], to.low[CHUNK - 1]};
    sync_warp();
    if (lane() == 0) {
      const SplitExp all = log.high > NOTHING_LEFT ? split_exp((log.high + log.low) * LN_2) : SplitExp{0, 0};
      to.base = all.base, to.rest = all.rest;
      barrier_arrive(at.full(turn.at));
    }
  }
  return log.high > NOTHING_LEFT ? log.high + log.low : -1e4f;  // e to that is 0
}

// A chunk in a stage: 64 features of rows that are written, at a place in shared memory, each times a factor.
struct Gathered {
  uint32_t written;
  const float* factors;
  float scale;

  // Of 16 tokens: what is written, as left factors; and what rounding took from it.
  void prepare(uint32_t (&rows)[4], uint32_t (&rest)[4], int slice) const {
    const int token = lane() % 8 + lane() / 16 * 8, pack = warp() % 4 * 2 + lane() / 8 % 2;
    load_matrices_transposed(rows, written + token * 128 + (pack ^ token % 8) * 16 + slice * 2048);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Pack<float, 2> left = load_pack<2>(factors + 16 * slice + lane() % 4 * 2 + i / 2 * 8);
      const float x = low_of(rows[i]) * (left.at[0] * scale), y = high_of(rows[i]) * (left.at[1] * scale);
      rows[i] = pack_pair<Element>(x, y);
      rest[i] = rounding_of(x, y, rows[i]);
    }
  }
};

// By a warpgroup: adds up the state after the segment; what is left of the state before it. chunk_in(stage): the part's `Gathered`. A next
// chunk's factors are made while products go on.
template <class ChunkIn> static inline SplitExp gather(Column& state, const GatherPlaces& at, int chunks, ChunkIn chunk_in) {
  uint32_t written[4][4], rest[4][4], next[4][4], next_rest[4][4];
  Turn<GatherPlaces::COUNT> turn;
  barrier_wait_all(at.full(0), 0);
#pragma unroll
  for (int k = 0; k < 4; ++k) chunk_in(0).prepare(written[k], rest[k], k);
#pragma unroll 1
  for (;;) {
    const uint32_t stage = turn.at;
    const Gates& gates = at.gates(stage);
    const SplitExp left{gates.base, gates.rest};
    const bool ends = --chunks == 0 || (left.base == 0 && left.rest == 0);
    turn.next();
    Column taken;
    keep_in_place(taken);
    wgmma_fence();
    multiply_by_all_columns(taken, rest, at.read(stage), false);  // smaller ones first: matrix instructions round down
    multiply_by_all_columns(taken, written, at.read(stage), true);
    wgmma_commit();
    if (!ends) {
      barrier_wait_all(at.full(turn.at), turn.parity);
#pragma unroll
      for (int k = 0; k < 4; ++k) chunk_in(turn.at).prepare(next[k], next_rest[k], k);
    }
    wgmma_wait<0>();
    keep_in_place(taken);
    keep_factors(written);
    keep_factors(rest);
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) state[i] += taken[i];
    sync_warp();
    if (lane() == 0) barrier_arrive(at.empty(stage));
    if (ends) return left;
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) written[k][i] = next[k][i], rest[k][i] = next_rest[k][i];
  }
}
