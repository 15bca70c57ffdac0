// Hopper vocabulary of the chunked recurrence's gradient: the warpgroup that copies rows, sums up gates and weighs pairs of tokens. Part of
// backward.chunk.sm90.cu.
#pragma once

$if dual
// A chunk's gates and steps. STEPPED: what is written forward, or read backward, takes its step; flows want it apart.
template <bool STEPPED>
static inline void put_steps(Gates& to, const DualNumbers& of, const uint32_t (&numbers)[2], int token, int count) {
  float x[2], steps[2];
  of.read(numbers, token, count, x, steps);
  put_gates(to, x);
  put_betas(to, steps);
  if constexpr (STEPPED)
#pragma unroll
    for (int i = 0; i < 2; ++i) to.after[2 * lane() + i] *= steps[i];
}
// What tokens hand on in the chunk, and that times the logs of what is left of it: the lane's parts of rows lane() / 4 and that + 8.
static inline void put_given(const FlowRows& flows, int chunk, float (&given)[2], float (&aged)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) given[h] += shuffle_xor(given[h], mask), aged[h] += shuffle_xor(aged[h], mask);
    const int token = 16 * warp() + lane() / 4 + 8 * h;
    if (lane() % 4 == 0) flows.row(chunk, GIVEN_HERE_ROW)[token] = given[h], flows.row(chunk, AGED_ROW)[token] = aged[h];
  }
}

$end
// Whether the readers of a block of pairs are the tokens that they read; in others all tokens that are read come earlier.
template <bool X> struct OnDiagonal {
  static constexpr bool VALUE = X;
};

template <bool ROW_FLOWS, bool PAIR_FLOWS> struct GradientWeigher {
  const Places at;
  char* memory;
  const Job& job;
  const Stream& stream;
  const ${dual ? 'DualNumbers' : 'TokenNumbers'}& gates;
  const float ${dual ? 'skip' : 'gamma'};
  const FlowRows flows;

$if dual
  static constexpr int ROWS = VALUE_BOXES, PARTS = 2;  // boxes of a token's rows of values, and of keys
$end
  void copy(uint32_t stage, int token, uint32_t full) const {
$if dual
    const int reads = stream.reads(false), writes = stream.writes(false);
$end
    barrier_expect(full, ${dual ? '2 * ROWS * BOX + PARTS * BOX' : '2 * ROW_BOXES + STATE_BOXES'} * (ROW_FLOWS ? 2 : 1));
#pragma unroll
    for (int box = 0; box < ${dual ? 'ROWS' : 'BOXES'}; ++box) {
      load_tile(at.readers(stage) + box * BOX, job.readers, full, {64 * box, ${dual ? 'reads' : 'stream.head'}, token, stream.sequence});
      load_tile(at.read(stage) + box * BOX, job.read, full, {64 * box, ${dual ? 'reads' : 'stream.head'}, token, stream.sequence});
    }
#pragma unroll
    for (int part = 0; part < ${dual ? 'PARTS' : '2'}; ++part) {
      load_tile(at.written(stage, part), job.written, full, {64 * part, ${dual ? 'writes' : 'stream.head'}, token, stream.sequence});
      if (ROW_FLOWS) load_tile(at.met(stage, part), job.met, full, {64 * part, ${dual ? 'writes' : 'stream.head'}, token, stream.sequence});
    }
  }

  // Starts copying the chunk in turn.
  void start_copies(const Turn<STAGES>& turn, int step) const {
    if (step >= stream.steps) return;
    const uint32_t full = at.full(turn.at);
    barrier_wait_all(at.empty(turn.at), turn.parity ^ 1);
    if (lane() == 0) {
      copy(turn.at, stream.chunk_of(step, job.back) * CHUNK, full);
      barrier_arrive(full);
    }
  }
  // A step's log gates, on their way while the chunk before is weighed.
  void load(uint32_t (&numbers)[2], int step) const {
    if (step < stream.steps) gates.load_raw(stream.chunk_of(step, job.back) * CHUNK, stream.count, numbers);
  }
  // Sums up those of the chunk in turn, and loads the next one's.
  void sum_up(const Turn<STAGES>& turn, int step, uint32_t (&numbers)[2]) const {
    if (step >= stream.steps) return;
    const int token = stream.chunk_of(step, job.back) * CHUNK;
    barrier_wait_all(at.empty(turn.at), turn.parity ^ 1);
$if dual
    put_steps<!PAIR_FLOWS>(at.gates(memory, turn.at), gates, numbers, token, stream.count);
$else
    float x[2];
    gates.read(numbers, token, stream.count, gamma, x);
    put_gates(at.gates(memory, turn.at), x);
$end
    load(numbers, step + 1);
    sync_warp();
    if (lane() == 0) barrier_arrive(at.full(turn.at));
  }

  // Starts: sums = products of rows in boxes, of all rows to the left with N to the right.
  template <int N${dual ? ', int DEPTH' : ''}> static void multiply(float (&sums)[N / 2], uint32_t left, uint32_t right) {
    const uint64_t a = depth_major<128>(left), b = depth_major<128>(right);
    keep_in_place(sums);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < ${dual ? 'DEPTH' : 'SLICES'}; ++k) wgmma<Element, N>(sums, moved(a, k / 4 * BOX + k % 4 * 32), moved(b, k / 4 * BOX + k % 4 * 32), k > 0);
    wgmma_commit();
  }

  // The weights of a chunk's pairs, the scale included: rows are readers.
  void weigh(int warp, uint32_t stage, uint32_t slot, int chunk) const {
    const Gates& here = at.gates(memory, stage);
    const StoreBuffers<Element, 1> pairs{at.pairs(slot), 0}${dual ? ', value_pairs{at.value_pairs(slot), 0}' : ''};
    const int own = 16 * warp + lane() / 4, direction = job.back ? -1 : 1;
    const float high[2] = {here.high[own], here.high[own + 8]}, low[2] = {here.low[own], here.low[own + 8]};
    float given[2] = {};
$if dual
    const float steps[2] = {here.beta[own], here.beta[own + 8]};
    float aged[2] = {};
$end
    constexpr int WIDTH = PAIR_FLOWS ? CHUNK / 2 : CHUNK;  // for the sake of registers
#pragma unroll 1
    for (int start = 0; start < CHUNK; start += WIDTH) {
      float sums[WIDTH / 2], met[PAIR_FLOWS ? WIDTH / 2 : 1];
      multiply<WIDTH${dual ? ', 4 * ROWS' : ''}>(sums, at.readers(stage), at.read(stage) + start * 128);
      if constexpr (PAIR_FLOWS) multiply<WIDTH${dual ? ', SLICES' : ''}>(met, at.met(stage, 0), at.written(stage, 0) + start * 128);
      wgmma_wait<0>();
      keep_in_place(sums);
      keep_in_place(met);
#pragma unroll
      for (int j = 0; j < WIDTH / 8; j += 2) {
        const int column = start / 8 + j;
        uint32_t r[4] = {}${dual ? ', value_r[PAIR_FLOWS ? 4 : 1] = {}' : ''};
        float read[4] = {};
        // 16 readers by 16 that are read.
        const auto weigh_block = [&](auto where) {
          constexpr bool DIAGONAL = decltype(where)::VALUE;
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const int s = 8 * (column + n) + lane() % 4 * 2;
            const Pack<float, 2> there = load_pack<2>(here.high + s), rest = load_pack<2>(here.low + s);
$if dual
            const Pack<float, 2> written = load_pack<2>(here.beta + s);
$end
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              float x[2]${dual ? ', y[2]' : ''};
#pragma unroll
              for (int i = 0; i < 2; ++i) {
                const int place = 4 * (j + n) + 2 * h + i, distance = DIAGONAL ? direction * (own + 8 * h - s - i) : 1;
                const float between = (high[h] - there.at[i]) + (low[h] - rest.at[i]), left = exp2_of(job.back ? -between : between);
$if dual
                x[i] = distance >= 0 ? sums[place] * left : 0;
                if constexpr (PAIR_FLOWS) {
                  y[i] = distance >= 0 ? steps[h] * (met[place] * left) : 0;
                  if (distance == 0) y[i] += skip;
                  const float flow = x[i] * met[place];
                  if (distance > 0) given[h] += flow, aged[h] += flow * between, read[2 * n + i] += steps[h] * flow;
                  if (distance == 0) flows.row(chunk, OWN_ROW)[own + 8 * h] = flow, flows.row(chunk, SKIP_ROW)[own + 8 * h] = sums[place];
                }
                x[i] *= job.back ? steps[h] : written.at[i];
$else
                x[i] = distance >= 0 ? sums[place] * job.pair_scale * left : 0;
                if constexpr (PAIR_FLOWS) {
                  const float flow = distance > 0 ? x[i] * met[place] : 0;
                  given[h] += flow, read[2 * n + i] += flow;
                }
$end
              }
              r[2 * n + h] = pack_pair<Element>(x[0], x[1]);
              ${dual ? 'if constexpr (PAIR_FLOWS) value_r[2 * n + h] = pack_pair<Element>(y[0], y[1]);' : ''}
            }
          }
        };
        const int from = 8 * column - 16 * warp;
        if (from == 0)
          weigh_block(OnDiagonal<true>{});
        else if (direction * from < 0)
          weigh_block(OnDiagonal<false>{});
        pairs.put<false>(column, r);
        ${dual ? 'if constexpr (PAIR_FLOWS) value_pairs.put<false>(column, value_r);' : ''}
        if constexpr (PAIR_FLOWS) store_token_sums(read, flows.row(chunk, READ_HERE_ROWS + warp), column);
      }
    }
$if dual
    if constexpr (PAIR_FLOWS) put_given(flows, chunk, given, aged);
$else
    if constexpr (PAIR_FLOWS) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        given[h] += shuffle_xor(given[h], 1);
        given[h] += shuffle_xor(given[h], 2);
        if (lane() % 4 == 0) flows.row(chunk, GIVEN_HERE_ROW)[own + 8 * h] = given[h];
      }
    }
$end
  }

  void run() const {
    uint32_t numbers[2] = {};
    Turn<STAGES> next, turn;
    Turn<PAIR_SLOTS> slot;
    // The two warps that weigh the fewest pairs make chunks ready.
    const int warp = uniform(::warp()), copier = job.back ? 3 : 0, summer = job.back ? 2 : 1;
    if (warp == summer) load(numbers, 0);
#pragma unroll 1
    for (int step = 1 - STAGES; step < stream.steps; ++step) {
      if (step >= 0) {
        barrier_wait_all(at.full(turn.at), turn.parity);
        barrier_wait_all(at.taken(slot.at), slot.parity ^ 1);
        weigh(warp, turn.at, slot.at, stream.chunk_of(step, job.back));
        fence_async();
        sync_warp();
        if (lane() == 0) barrier_arrive(at.weighed(slot.at));
        turn.next(), slot.next();
      }
      if (warp == copier) start_copies(next, step + STAGES - 1);
      if (warp == summer) sum_up(next, step + STAGES - 1, numbers);
      next.next();
    }
  }
};
