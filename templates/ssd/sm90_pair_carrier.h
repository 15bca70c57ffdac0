// Hopper vocabulary of ssd_bwd, two heads of a group a block: a warpgroup that carries 64 keys of both heads' states, and adds up their
// gradients. Part of templates/ssd/backward.chunk.sm90.cu.
#pragma once

template <bool MEETS> struct PairCarrier {
  using One = GradientCarrier<true, MEETS>;
  const One first, second;

  void run(const View& first_state, const float* before, const float* second_before, bool ends) const {
    const Places& at = first.at;
    typename One::Column state = {}, second_state = {};
    first.begin(state, first_state, before);
    second.begin(second_state, first_state, second_before);
    StoreBuffers<Element, OUT_BUFFERS> buffers{at.out(first.part), 1 + first.part};
    Turn<STAGES> turn;
    Turn<PAIR_SLOTS> slot;
#pragma unroll 1
    for (int step = 0; step < first.stream.steps; ++step, turn.next(), slot.next()) {
      const int chunk = first.stream.chunk_of(step, MEETS);
      first.keep_for_gradient(state, chunk), second.keep_for_gradient(second_state, chunk);
      first.meet(state, chunk + 1), second.meet(second_state, chunk + 1);
      barrier_wait_all(at.full(turn.at), turn.parity);
      Columns sums;
      first.template advance<false>(state, sums, turn.at, chunk);
      second.template advance<true>(second_state, sums, turn.at, chunk);
      barrier_wait_all(at.weighed(slot.at), slot.parity);
      first.read_pairs(sums, turn.at, slot.at);
      wgmma_wait<0>();
      keep_in_place(sums);
      store_values(sums, buffers, first.job.out, {64 * first.part, first.stream.head / TOGETHER, chunk * CHUNK, first.stream.sequence});
      sync_warp();
      if (lane() == 0) {
        barrier_arrive(at.empty(turn.at));
        barrier_arrive(at.taken(slot.at));
      }
    }
    buffers.finish();
    if (ends) first.keep_for_gradient(state, first.stream.chunks), second.keep_for_gradient(second_state, first.stream.chunks);
  }
};
