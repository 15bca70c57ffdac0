// Hopper vocabulary of the chunked recurrence: the state after a segment of a sequence, without what is before it. Its chunks are met in the
// opposite order, each with what is left of it after the segment, so that those of which nothing is left are never read. Part of a template,
// which has defined HEADS before: a block has one, or the two warpgroups that add up states have one each.
#pragma once

constexpr float NOTHING_LEFT = -125;  // in units of log 2; what is left of more is a normal number
static inline bool is_any_left(const LongSum& log) { return log.high > NOTHING_LEFT; }
constexpr int FEEDERS = ${dual ? 2 : 1};  // warps a head, below: with softplus a chunk takes one of them longer than all else

// Shared memory: chunks on their way, of each the rows that are read and those that are written; their gates, barriers, sums of gates. No other rows lie there,
// so that more of them fit than when rows of out are made.
struct GatherPlaces {
  static constexpr uint32_t READ_BYTES = BOXES * BOX, BYTES = READ_BYTES + 2 * BOX, COUNT = (${shared} - 1024 - 16 * FEEDERS * HEADS) / (BYTES + HEADS * sizeof(Gates) + 16);
  static constexpr uint32_t GATES = COUNT * BYTES, BARRIERS = GATES + COUNT * HEADS * sizeof(Gates);
  uint32_t first;
  char* memory;

  GatherPlaces() : first((shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024), memory(dynamic_shared() + (first - shared_pointer(dynamic_shared()))) {}
  uint32_t read(uint32_t stage) const { return first + stage * BYTES; }
  uint32_t written(uint32_t stage, int part) const { return read(stage) + READ_BYTES + part * BOX; }
  Gates& gates(uint32_t stage, int own = 0) const { return reinterpret_cast<Gates*>(memory + GATES)[stage * HEADS + own]; }
  // Whether anything is left of what comes after a stage's chunk, of any head.
  bool any_left(uint32_t stage) const {
    bool any = false;
#pragma unroll
    for (int own = 0; own < HEADS; ++own) any = any || gates(stage, own).base != 0 || gates(stage, own).rest != 0;
    return any;
  }
  // Of a stage: copied, and its gates summed up; no longer read by the eight warps that add up states.
  uint32_t full(uint32_t stage) const { return first + BARRIERS + 16 * stage; }
  uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
  // Sums of chunks' log gates that warps tell each other: of two rounds in turn.
  LongSum* totals(int round) const { return reinterpret_cast<LongSum*>(memory + BARRIERS + 16 * COUNT) + round * FEEDERS * HEADS; }
  void init() const {
    for (uint32_t i = 0; i < COUNT; ++i) {
      barrier_init(full(i), HEADS);
      barrier_init(empty(i), 8);
    }
    fence_barrier_init();
  }
};
static_assert(GatherPlaces::BARRIERS % 8 == 0 && GatherPlaces::COUNT > FEEDERS);

// A head's numbers as a warp meets its chunks.
struct GatheredGates {
  ${dual ? 'DualNumbers' : 'TokenNumbers'} numbers;
  float gamma;
  uint32_t raw[2] = {};

  void load(int token, int count) { numbers.load_raw(token, count, raw); }
  // The chunk's sums, with the factor of what is written, if there is one, in those of what is left after it (back: they are met from the last on).
  GateSums sums(int token, int count, bool back) const {
    float gates[2];
$if dual
    float steps[2];
    numbers.read(raw, token, count, gates, steps);
    GateSums sums(gates);
#pragma unroll
    for (int i = 0; i < 2; ++i) sums.after[i] *= back ? 1 : steps[i];
    return sums;
$else
    numbers.read(raw, token, count, gamma, gates);
    return GateSums(gates);
$end
  }
};

// By FEEDERS warps a head, which have its chunks in turn: copies them and makes their factors, until nothing is left of what comes after, of any
// head. token_of(step): a chunk's first token; copy(stage, token): starts its copies. Gives the log of what the segment leaves of a state before.
template <class TokenOf, class Copy>
static inline float feed(const GatherPlaces& at, GatheredGates& gates, int count, int chunks, bool back, TokenOf token_of, Copy copy) {
  const int own = warp() % HEADS, way = warp() / HEADS;
  LongSum logs[HEADS] = {};  // of what the chunks so far leave, in units of log 2
  bool any = true;
  if (way < chunks) gates.load(token_of(way), count);
#pragma unroll 1
  for (int first = 0; first < chunks && any; first += FEEDERS) {
    const int step = first + way;
    GateSums sums = gates.sums(step < chunks ? token_of(step) : count, count, back);
    if (step + FEEDERS < chunks) gates.load(token_of(step + FEEDERS), count);
    LongSum* totals = at.totals(first / FEEDERS % 2);
    if (lane() == WARP - 1) totals[warp()] = sums.sums[1];
    if constexpr (FEEDERS * HEADS > 1) sync_some(3, FEEDERS * HEADS * WARP);
    else sync_warp();
#pragma unroll
    for (int other = 0; other < FEEDERS; ++other) {
      if (first + other >= chunks || !any) break;
      if (other == way) {
        const uint32_t turn = static_cast<uint32_t>(step) / GatherPlaces::COUNT, stage = static_cast<uint32_t>(step) - turn * GatherPlaces::COUNT;
        const LongSum before = own == 0 ? logs[0] : logs[HEADS - 1], log = before + totals[warp()];
        const float left = exp2_of(before.high + before.low);
        sums.all = is_any_left(log) ? split_exp((log.high + log.low) * LN_2) : SplitExp{0, 0};
#pragma unroll
        for (int i = 0; i < 2; ++i) sums.before[i] *= back ? left : 1, sums.after[i] *= back ? 1 : left;
        barrier_wait_all(at.empty(stage), turn % 2 ^ 1);
        if (own == 0 && lane() == 0) {
          barrier_expect(at.full(stage), GatherPlaces::BYTES);
          copy(stage, token_of(step));
        }
        sums.put(at.gates(stage, own));
        sync_warp();
        if (lane() == 0) barrier_arrive(at.full(stage));
      }
      any = false;
#pragma unroll
      for (int head = 0; head < HEADS; ++head) {
        logs[head] = logs[head] + totals[other * HEADS + head];
        any = any || is_any_left(logs[head]);
      }
    }
  }
  const LongSum log = own == 0 ? logs[0] : logs[HEADS - 1];
  return is_any_left(log) ? log.high + log.low : -1e4f;  // e to that is 0
}

// A chunk in a stage: 64 features of rows that are written, at a place in shared memory, each times a factor.
struct Gathered {
  uint32_t written;
  const float* factors;
  float scale;

  void prepare(uint32_t (&rows)[4], uint32_t (&rest)[4], int slice) const { load_weighed(rows, rest, written, slice, factors, scale); }
};

// By a warpgroup: adds up the state after the segment; what is left of the state before it. chunk_in(stage): the part's `Gathered`; own: its head.
// A next chunk's factors are made while products go on.
template <class ChunkIn> static inline SplitExp gather(Column& state, const GatherPlaces& at, int chunks, int own, ChunkIn chunk_in) {
  uint32_t written[4][4], rest[4][4], next[4][4], next_rest[4][4];
  Turn<GatherPlaces::COUNT> turn;
  barrier_wait_all(at.full(0), 0);
#pragma unroll
  for (int k = 0; k < 4; ++k) chunk_in(0).prepare(written[k], rest[k], k);
#pragma unroll 1
  for (;;) {
    const uint32_t stage = turn.at;
    const Gates& gates = at.gates(stage, own);
    const SplitExp left{gates.base, gates.rest};
    const bool ends = --chunks == 0 || !at.any_left(stage);
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
