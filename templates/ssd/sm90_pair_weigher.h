// Hopper vocabulary of ssd_bwd, two heads of a group a block: the warpgroup that copies rows, sums up gates and weighs pairs of tokens. Pairs'
// weights for gradients of C and Bm, which heads share, are added up. Part of templates/ssd/backward.chunk.sm90.cu.
#pragma once

template <bool ROW_FLOWS, bool PAIR_FLOWS> struct PairWeigher {
  using One = GradientWeigher<ROW_FLOWS, PAIR_FLOWS>;
  static constexpr bool BACK = !ROW_FLOWS || PAIR_FLOWS;
  static constexpr int WIDTH = CHUNK / 2;  // of pairs at once, for the sake of registers
  const Places at;
  char* memory;
  const Job& job;
  const Stream& stream;  // of the first head
  const DualNumbers gates[TOGETHER];
  const float skips[TOGETHER];
  const FlowRows flows[TOGETHER];

  void copy(uint32_t stage, int token, uint32_t full) const {
    barrier_expect(full, (ROW_FLOWS ? 8 : 6) * BOX);
    const auto load = [&](uint32_t to, const TensorMap& from, int box, bool of_values) {
      load_tile(to, from, full, {of_values ? 0 : 64 * box, of_values ? stream.head + box : stream.group, token, stream.sequence});
    };
#pragma unroll
    for (int box = 0; box < 2; ++box) {
      load(at.readers(stage) + box * BOX, job.readers, box, ROW_FLOWS);
      load(at.read(stage) + box * BOX, job.read, box, ROW_FLOWS);
      load(at.written(stage, box), job.written, box, !ROW_FLOWS);
      if (ROW_FLOWS) load(at.met(stage, box), job.met, box, false);
    }
  }

  void load(uint32_t (&numbers)[TOGETHER][2], int step) const {
#pragma unroll
    for (int own = 0; own < TOGETHER; ++own)
      if (step < stream.steps) gates[own].load_raw(stream.chunk_of(step, BACK) * CHUNK, stream.count, numbers[own]);
  }
  // As that of GradientWeigher.
  void start(const Turn<STAGES>& turn, int step, uint32_t (&numbers)[TOGETHER][2]) const {
    if (step >= stream.steps) return;
    const uint32_t full = at.full(turn.at);
    const int token = stream.chunk_of(step, BACK) * CHUNK;
    barrier_wait_all(at.empty(turn.at), turn.parity ^ 1);
    if (lane() == 0) copy(turn.at, token, full);
#pragma unroll
    for (int own = 0; own < TOGETHER; ++own) put_steps<!PAIR_FLOWS>(at.gates(memory, turn.at, own), gates[own], numbers[own], token, stream.count);
    load(numbers, step + 1);
    sync_warp();
    if (lane() == 0) barrier_arrive(full);
  }

  // One head's weights of some pairs, of which `sums` are the products, added to `weights`.
  void add_weights(float (&weights)[WIDTH / 2], const float (&sums)[WIDTH / 2], const float (&met)[PAIR_FLOWS ? WIDTH / 2 : 1], uint32_t stage, int head, int start, int chunk,
                   float (&given)[2], float (&aged)[2]) const {
    const Gates& here = at.gates(memory, stage, head);
    const int own = 16 * warp() + lane() / 4, direction = BACK ? -1 : 1;
    const float high[2] = {here.high[own], here.high[own + 8]}, low[2] = {here.low[own], here.low[own + 8]}, steps[2] = {here.beta[own], here.beta[own + 8]};
#pragma unroll
    for (int j = 0; j < WIDTH / 8; j += 2) {
      const int column = start / 8 + j;
      float read[4] = {};
      if (direction * (8 * column - 16 * warp()) <= 0) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const int s = 8 * (column + n) + lane() % 4 * 2;
          const Pack<float, 2> there = load_pack<2>(here.high + s), rest = load_pack<2>(here.low + s), written = load_pack<2>(here.beta + s);
#pragma unroll
          for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int place = 4 * (j + n) + 2 * h + i, distance = direction * (own + 8 * h - s - i);
              const float between = (high[h] - there.at[i]) + (low[h] - rest.at[i]);
              float x = distance >= 0 ? sums[place] * exp2_of(BACK ? -between : between) : 0;
              if constexpr (PAIR_FLOWS) {
                const float flow = x * met[place];
                if (distance > 0) given[h] += flow, aged[h] += flow * between, read[2 * n + i] += steps[h] * flow;
                if (distance == 0) flows[head].row(chunk, OWN_ROW)[own + 8 * h] = flow, flows[head].row(chunk, SKIP_ROW)[own + 8 * h] = sums[place];
              }
              x *= BACK ? steps[h] : written.at[i];
              if (!ROW_FLOWS && distance == 0) x += skips[head];
              weights[place] += x;
            }
        }
      }
      if constexpr (PAIR_FLOWS) store_token_sums(read, flows[head].row(chunk, READ_HERE_ROWS + warp()), column);
    }
  }

  void put(const float (&weights)[WIDTH / 2], uint32_t tile, int start) const {
    const StoreBuffers<Element, 1> pairs{tile, 0};
#pragma unroll
    for (int j = 0; j < WIDTH / 8; j += 2) {
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = pack_pair<Element>(weights[4 * j + 2 * i], weights[4 * j + 2 * i + 1]);
      pairs.put<false>(start / 8 + j, r);
    }
  }

  // The weights of a chunk's pairs: rows are readers.
  void weigh(uint32_t stage, uint32_t slot, int chunk) const {
    float given[TOGETHER][2] = {}, aged[TOGETHER][2] = {};
#pragma unroll 1
    for (int start = 0; start < CHUNK; start += WIDTH) {
      float sums[WIDTH / 2], met[PAIR_FLOWS ? WIDTH / 2 : 1], weights[WIDTH / 2] = {};
      if constexpr (PAIR_FLOWS) One::template multiply<WIDTH, SLICES>(met, at.met(stage, 0), at.written(stage, 0) + start * 128);
#pragma unroll
      for (int head = 0; head < TOGETHER; ++head) {
        if (ROW_FLOWS || head == 0) {
          const uint32_t box = ROW_FLOWS ? head * BOX : 0;
          One::template multiply<WIDTH, ROW_FLOWS ? 4 : SLICES>(sums, at.readers(stage) + box, at.read(stage) + box + start * 128);
          wgmma_wait<0>();
          keep_in_place(sums);
          keep_in_place(met);
        }
        add_weights(weights, sums, met, stage, head, start, chunk, given[head], aged[head]);
        if (ROW_FLOWS) continue;
        put(weights, at.pairs(slot, head), start);
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) weights[i] = 0;
      }
      if (ROW_FLOWS) put(weights, at.pairs(slot), start);
    }
    if constexpr (PAIR_FLOWS)
#pragma unroll
      for (int head = 0; head < TOGETHER; ++head) put_given(flows[head], chunk, given[head], aged[head]);
  }

  void run() const {
    uint32_t numbers[TOGETHER][2] = {};
    Turn<STAGES> next, turn;
    Turn<PAIR_SLOTS> slot;
    if (warp() == 0) load(numbers, 0);
#pragma unroll 1
    for (int step = 1 - STAGES; step < stream.steps; ++step) {
      if (step >= 0) {
        barrier_wait_all(at.full(turn.at), turn.parity);
        barrier_wait_all(at.taken(slot.at), slot.parity ^ 1);
        weigh(turn.at, slot.at, stream.chunk_of(step, BACK));
        fence_async();
        sync_warp();
        if (lane() == 0) barrier_arrive(at.weighed(slot.at));
        turn.next(), slot.next();
      }
      if (warp() == 0) start(next, step + STAGES - 1, numbers);
      next.next();
    }
  }
};
