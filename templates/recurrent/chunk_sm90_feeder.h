// Hopper vocabulary of the chunked recurrence: warps that copy rows and sum up gates. Part of forward.chunk.sm90.cu. With the delta rule they
// are the weigher's first warp; else a warpgroup of their own, each warp of which has every so manieth chunk of a head.
#pragma once

struct Feeder {
  const Places at;
  char* memory;
  const TensorMap &queries, &keys, &values;
$if delta
  const TensorMap& inverses;
  const TokenNumbers betas;
$end
$if dual
  const DualNumbers steps;  // of the warp's head
$else
  const TokenNumbers gates;
  const float gamma;
$end
  const int count, sequence, head, query_head, key_head, value_head, column;
  const int first;  // token of the segment
$if delta
  const int chunks_before;  // of sequences before
$end

  // A chunk's log gates and betas on their way, while those before are made use of.
  struct Numbers {
    uint32_t gates[2] = {}, betas[2] = {};
  };
  void load(Numbers& numbers, int chunk) const {
    ${dual ? 'steps' : 'gates'}.load_raw(chunk * CHUNK, count, numbers.gates);
$if delta
    betas.load_raw(chunk * CHUNK, count, numbers.betas);
$end
  }

  void copy(uint32_t stage, int token, uint32_t full) const {
    barrier_expect(full, ${delta ? 'at.carried(memory).carries ? STAGE - VALUE_BOXES : ' : ''}STAGE);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      load_tile(at.queries(stage) + box * BOX, queries, full, {64 * box, query_head, token, sequence});
      load_tile(at.keys(stage) + box * BOX, keys, full, {64 * box, key_head, token, sequence});
    }
#pragma unroll
    for (int part = 0; part < 2; ++part) ${delta ? 'if (!at.carried(memory).carries) ' : ''}load_tile(at.values(stage, part), values, full, {${paired ? '0, value_head + part' : 'column + 64 * part, value_head'}, token, sequence});
$if delta
    load_tile(at.inverse(stage), inverses, full, {0, 0, 0, head, chunks_before + token / CHUNK});
$end
  }

$if delta
  void put(uint32_t stage, const Numbers& numbers, int chunk) const {
    Gates& to = at.gates(memory, stage);
    float x[2];
    gates.read(numbers.gates, chunk * CHUNK, count, gamma, x);
    put_gates(to, x);
    betas.read(numbers.betas, chunk * CHUNK, count, 0, x);
    put_betas(to, x);
  }
  // Starts copying the chunk in turn; by the first warp, which has its numbers and loads those of the next.
  void start(const Turn<STAGES>& turn, int chunk, Numbers& numbers) const {
    if (chunk * CHUNK >= count || chunk > at.carried(memory).end) return;
    const uint32_t full = at.full(turn.at);
    barrier_wait_all(at.empty(turn.at), turn.parity ^ 1);
    if (at.carried(memory).carries && chunk >= STAGES && !at.carried(memory).any_left(turn.at)) {
      if (lane() == 0) {
        at.carried(memory).end = chunk;
        barrier_arrive(full);
      }
      return;
    }
    if (lane() == 0) copy(turn.at, first + chunk * CHUNK, full);
    put(turn.at, numbers, chunk);
    load(numbers, chunk + 1);
    sync_warp();
    if (lane() == 0) barrier_arrive(full);
  }
$else
  // The warp's chunks, one after another: sums are made before there is a place for them. Not more warps a head than stages, as a wait tells
  // the latest phase of a barrier from the one before, not from earlier ones.
  void run() const {
    constexpr int STEP = 4 / HEADS < STAGES ? 4 / HEADS : STAGES;
    const int own = warp() % HEADS;
    Numbers numbers;
    int chunk = warp() % 4 / HEADS;
    if (chunk >= STEP) return;
    load(numbers, chunk);
#pragma unroll 1
    for (; chunk * CHUNK < count; chunk += STEP) {
      float x[2];
$if dual  // steps are factors of what is left of a token's write
      float factors[2];
      steps.read(numbers.gates, chunk * CHUNK, count, x, factors);
$else
      gates.read(numbers.gates, chunk * CHUNK, count, gamma, x);
$end
      load(numbers, chunk + STEP);
      ${dual ? 'GateSums' : 'const GateSums'} sums(x);
      const LongSum end = from_lane(sums.sums[1], lane() | 7);  // of 16 tokens
      float upto[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        upto[i] = exp2_of((end.high - sums.sums[i].high) + (end.low - sums.sums[i].low))${dual ? ' * factors[i]' : ''};
$if dual
        sums.after[i] *= factors[i];
$end
      }
      const uint32_t turn = static_cast<uint32_t>(chunk) / STAGES, stage = static_cast<uint32_t>(chunk) - turn * STAGES;
      barrier_wait_all(at.empty(stage), turn % 2 ^ 1);
      if (own == 0 && lane() == 0) {
        copy(stage, first + chunk * CHUNK, at.full(stage));
        barrier_arrive(at.full(stage));
      }
      StageGates& to = at.gates(memory, stage, own);
      sums.put(to);
      store_pack(to.upto + 2 * lane(), Pack<float, 2>{upto[0], upto[1]});
$if dual
      put_betas(to, factors);
$end
      sync_warp();
      if (lane() == 0) barrier_arrive(at.summed(stage));
    }
  }
$end
};
