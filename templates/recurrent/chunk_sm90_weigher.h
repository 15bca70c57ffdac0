// Hopper vocabulary of the chunked recurrence: the warpgroup that weighs pairs of tokens. Part of forward.chunk.sm90.cu.
#pragma once

struct Weigher {
  const Places at;
  char* memory;
$if delta
  const Feeder feeder;
$end
  const float scale;
  const int count;

  // Factors of the rows of queries and keys, a row a thread.
  void put_row_norms(uint32_t stage, Norms& to) const {
    const int row = thread_x() % CHUNK;
    const bool of_keys = thread_x() >= CHUNK;
    const char* from = memory + ((of_keys ? at.keys(stage) : at.queries(stage)) - at.first) + row * 128;
    float squares = 0;
#pragma unroll
    for (int box = 0; box < BOXES; ++box)
#pragma unroll 2
      for (int i = 0; i < 8; ++i) {
        const Pack<Element, 8> x = load_pack<8>(reinterpret_cast<const Element*>(from + box * BOX + (i ^ row % 8) * 16));
#pragma unroll
        for (int j = 0; j < 8; ++j) squares += to_float(x.at[j]) * to_float(x.at[j]);
      }
    (of_keys ? to.k : to.q)[row] = rsqrt_of(squares + 1e-6f);
    sync_some(3, WARPGROUP);
  }

  // Products of the rows of a chunk's queries and keys.
  void multiply(Columns& sums, uint32_t stage) const {
    const uint64_t a = depth_major<128>(at.queries(stage)), b = depth_major<128>(at.keys(stage));
    keep_in_place(sums);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < SLICES; ++k) wgmma<Element, CHUNK>(sums, moved(a, k / 4 * BOX + k % 4 * 32), moved(b, k / 4 * BOX + k % 4 * 32), k > 0);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(sums);
  }
$if delta
  void put_weights(const Columns& sums, uint32_t stage, uint32_t slot) const {
    const Gates& gates = at.gates(memory, stage);
    const Norms& norms = at.norms(memory, slot);
    const StoreBuffers<Element, 1> pairs{at.pairs(slot), 0};
    const int own = 16 * warp() + lane() / 4;
    const float high[2] = {gates.high[own], gates.high[own + 8]}, low[2] = {gates.low[own], gates.low[own + 8]};
    float factors[2] = {scale, scale};
    if (NORMED) factors[0] *= norms.q[own], factors[1] *= norms.q[own + 8];
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      uint32_t r[4] = {};
      if (8 * j <= 16 * warp()) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const int s = 8 * (j + n) + lane() % 4 * 2;
          const Pack<float, 2> there = load_pack<2>(gates.high + s), rest = load_pack<2>(gates.low + s);
          Pack<float, 2> norm{{1, 1}};
          if (NORMED) norm = load_pack<2>(norms.k + s);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float x[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const float left = exp2_of((high[h] - there.at[i]) + (low[h] - rest.at[i]));
              x[i] = s + i <= own + 8 * h ? sums[4 * (j + n) + 2 * h + i] * (factors[h] * norm.at[i]) * left : 0;
            }
            r[2 * n + h] = pack_pair<Element>(x[0], x[1]);
          }
        }
      }
      pairs.put<false>(j, r);
    }
  }
$else
  // Pairs within 16 tokens take an exponential each. Other ones are products: what is left of a write at the last of its 16 tokens, times what
  // is left of that at the token that reads it.
  void put_weights(const Columns& sums, uint32_t stage, uint32_t slot, int own) const {
    const StageGates& gates = at.gates(memory, stage, own);
    const StoreBuffers<Element, 1> pairs{at.pairs(slot, own), 0};
    const int row = 16 * warp() + lane() / 4;
    const float high[2] = {gates.high[row], gates.high[row + 8]}, low[2] = {gates.low[row], gates.low[row + 8]};
    const auto left = [&](int h, float there, float rest) { return exp2_of((high[h] - there) + (low[h] - rest)) * scale; };
#pragma unroll
    for (int block = 0; block < CHUNK / 16; ++block) {
      uint32_t r[4] = {};
      if (block < warp()) {
        const int last = 16 * block + 15;
        const float factors[2] = {left(0, gates.high[last], gates.low[last]), left(1, gates.high[last], gates.low[last])};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const Pack<float, 2> upto = load_pack<2>(gates.upto + 16 * block + 8 * n + lane() % 4 * 2);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float* x = sums + 8 * block + 4 * n + 2 * h;
            r[2 * n + h] = pack_pair<Element>(x[0] * (factors[h] * upto.at[0]), x[1] * (factors[h] * upto.at[1]));
          }
        }
      } else if (block == warp()) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const int s = 16 * block + 8 * n + lane() % 4 * 2;
          const Pack<float, 2> there = load_pack<2>(gates.high + s), rest = load_pack<2>(gates.low + s);
$if dual
          const Pack<float, 2> step = load_pack<2>(gates.beta + s);
$end
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float x[2];
#pragma unroll
            for (int i = 0; i < 2; ++i)
              x[i] = s + i <= row + 8 * h ? sums[8 * block + 4 * n + 2 * h + i] * left(h, there.at[i], rest.at[i])${dual ? ' * step.at[i]' : ''} : 0;
            r[2 * n + h] = pack_pair<Element>(x[0], x[1]);
          }
        }
      }
      pairs.put<false>(2 * block, r);
    }
  }
$end

  // The weights of a chunk's pairs, the scale included: rows are queries. `stage` has${delta ? '' : ', or will have,'} rows and gates.
  void weigh_in_turn(const Turn<STAGES>& stage, const Turn<PAIR_SLOTS>& slot) const {
    Columns sums;
$if delta
    barrier_wait_all(at.read(slot.at), slot.parity ^ 1);
    if (NORMED) put_row_norms(stage.at, at.norms(memory, slot.at));
    multiply(sums, stage.at);
    put_weights(sums, stage.at, slot.at);
$else
    barrier_wait_all(at.full(stage.at), stage.parity);
    multiply(sums, stage.at);
    barrier_wait_all(at.summed(stage.at), stage.parity);
    barrier_wait_all(at.read(slot.at), slot.parity ^ 1);
#pragma unroll
    for (int own = 0; own < HEADS; ++own) put_weights(sums, stage.at, slot.at, own);
$end
    fence_async();
    sync_warp();
    if (lane() == 0) barrier_arrive(at.weighed(slot.at));
  }

  void run() const {
    const int chunks = (count + CHUNK - 1) / CHUNK;
    Turn<STAGES> turn;
    Turn<PAIR_SLOTS> slot;
$if delta
    Feeder::Numbers numbers;
    Turn<STAGES> next;
    if (warp() == 0) feeder.load(numbers, 0);
#pragma unroll 1
    for (int chunk = 1 - STAGES; chunk < chunks; ++chunk) {
      if (chunk >= 0) {
        barrier_wait_all(at.full(turn.at), turn.parity);
        if (chunk >= at.carried(memory).end) return;
        weigh_in_turn(turn, slot);
        turn.next(), slot.next();
      }
      if (warp() == 0) feeder.start(next, chunk + STAGES - 1, numbers);
      next.next();
    }
$else
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, turn.next(), slot.next()) weigh_in_turn(turn, slot);
$end
  }
};
