// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: the entry that computes the gradients of chunks' queries, keys,
// gates and betas, of the states that were kept. Part of backward.chunk_delta.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_delta_places.h"
#include "recurrent/chunk_sm90_delta_gates.h"
#include "recurrent/chunk_sm90_delta_gradient_turns.h"

// By one thread: of 32 values after the others what is multiplied, and chunks' rows.
struct GradientCopier {
  const GradientPlaces at;
$if packed
  const PackedRows queries, keys, douts;
  const TensorMap &states, &written;
$else
  const TensorMap &queries, &keys, &douts, &states, &written;
$end
  const KeptNumbers* numbers;

  uint32_t open(uint32_t barriers, uint32_t parity, uint32_t bytes) const {
    barrier_wait(at.empty(barriers), parity);
    barrier_arrive_expect(at.full(barriers), bytes);
    return at.full(barriers);
  }
  // Of the block's item number `number`.
  void run(const GradientItem& item, int number) const {
#pragma unroll 1
    for (int turn = LATER; turn < TURNS; ++turn) {
      const int steps = steps_of(turn);
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        const uint32_t stage = step % GRADIENT_STAGES, full = open(stage, stage_parity(number, turn, step) ^ 1, turn == ACROSS ? 2 * STEP_ROWS : GRADIENT_STAGE);
        if (turn == ACROSS) {
          copy_values(item, stage, full, turn, 2 * step, false);
          copy_values(item, stage, full, turn, 2 * step + 1, true);
        } else {
          copy_values(item, stage, full, turn, step, false);
          copy_states(item, stage, full, turn, step);
          if (step == 2) copy_rows(item, turn == LATER);
        }
      }
    }
  }
  // What another turn reads again stays in the second-level cache, the rest does not take its place.
  static Keep kept(bool another_turn) { return another_turn ? Keep::normal : Keep::shortly; }
  void copy_values(const GradientItem& item, uint32_t stage, uint32_t full, int turn, int step, bool more) const {
    load_tile(at.dout(stage, more), douts, full, {STEP * step, item.head, item.first_token(turn != EARLIER), item.sequence}, kept(turn == LATER));
#pragma unroll
    for (int i = 0; i < WRITTEN_PARTS + PARTS; ++i) {
      const bool later = turn == LATER || (turn == ACROSS && i >= WRITTEN_PARTS);  // across: what earlier tokens write, later ones' gradients
      load_tile(at.written(stage, i, more), written, full, {STEP * step, 0, i, item.head, item.chunk(later)}, kept(i < WRITTEN_PARTS ? turn == ACROSS : turn == LATER));
    }
  }
  void copy_states(const GradientItem& item, uint32_t stage, uint32_t full, int turn, int step) const {
#pragma unroll
    for (int part = 0; part < 2 * PARTS; ++part)
#pragma unroll
      for (int box = 0; box < BOXES; ++box)
        load_tile(at.before(stage, part) + box * STEP_STATE_BOX, states, full, {64 * box, STEP * step, part, item.head, item.pair}, kept(turn == LATER));
  }
  // Late: their place is free when the turn before is done, and what is copied meanwhile must not wait for that.
  void copy_rows(const GradientItem& item, bool late) const {
    const uint32_t full = open(ROWS, late, late ? 6 * BOX + 2 * NUMBERS_BYTES : 2 * BOX);
    const auto load = [&](uint32_t to, const ${packed ? 'PackedRows' : 'TensorMap'}& map, bool later) {
#pragma unroll
      for (int box = 0; box < BOXES; ++box) load_tile(to + box * BOX, map, full, {64 * box, item.head, item.first_token(later), item.sequence}, Keep::shortly);
    };
    load(at.queries(), queries, late);
    if (!late) return;
#pragma unroll
    for (int later = 0; later < 2; ++later) {
      load(at.keys(later), keys, later);
      load_bytes(at.numbers(later), &numbers[item.number(later)].numbers, NUMBERS_BYTES, full);
    }
  }
};

// Blocks that stay: each has every grid-th two chunks of a head.
KERNEL(4 * WARPGROUP, 1) gradients(${parameters('gradients')}) {
  const GradientPlaces at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
  if (thread_x() == 0) at.init();
  wait_for_previous_launch();
  sync_block();
  const int items = static_cast<int>(chunks / 2 * heads), group = uniform(warpgroup()), steps = (items - static_cast<int>(block_x()) + static_cast<int>(grid_x()) - 1) / static_cast<int>(grid_x());
  const auto item_of = [&](int step) { return GradientItem(static_cast<int>(block_x()) + step * static_cast<int>(grid_x()), static_cast<int>(heads), static_cast<int>(sequences), ${packed ? 'static_cast<int>(chunks / 2), cum_seqlens, q_view.shape[1]' : 'static_cast<int>(q_view.shape[1])'}); };
  if (group == 3) {
    give_registers<40>();
    const int own = uniform(warp() % 4);
    if (own == 0 && lane() == 0) {
$if packed
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        const GradientItem item = item_of(step);
        const PackedRows q = item.rows(q_map, row_copies_map, Q_ROWS, copied_boxes), k = item.rows(k_map, row_copies_map, K_ROWS, copied_boxes);
        const PackedRows dout = item.rows(dout_map, value_copies_map, DOUT_ROWS, copied_boxes);
        GradientCopier{at, q, k, dout, kept_states_map, written_rows_map, reinterpret_cast<const KeptNumbers*>(chunk_numbers)}.run(item, step);
      }
$else
      GradientCopier copier{at, q_map, k_map, dout_map, kept_states_map, written_rows_map, reinterpret_cast<const KeptNumbers*>(chunk_numbers)};
#pragma unroll 1
      for (int step = 0; step < steps; ++step) copier.run(item_of(step), step);
$end
    }
    if (GATED && own == 1) {
      barrier_arrive(at.meeting(FLOWS_FREE));
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        const GradientItem item = item_of(step);
        const Tokens tokens(${packed ? 'cum_seqlens' : 'nullptr'}, sequences, item.sequence, item.count);
        const TokenNumbers gates(g_view, g_type, tokens, item.head, ${packed ? 'REVERSED' : 'false'});
        const float more = gamma_of(g_gamma_view, gamma_type, item.head, heads, layer_idx, num_layers);
        float log_gates[2][2];
        gates.load(item.first_token(false), item.count, more, log_gates[0]);
        gates.load(item.first_token(true), item.count, more, log_gates[1]);
        GateFlows sums{at, *reinterpret_cast<const DeltaFlows*>(memory + (at.flows() - at.first))};
        const GradientRow betas(dbeta_view, beta_type, ${packed ? 'tokens.row, REVERSED ? tokens.end - 1 : tokens.first' : 'item.sequence, 0'}, item.head), to(dg_view, g_type, ${packed ? 'tokens.row, REVERSED ? tokens.end - 1 : tokens.first' : 'item.sequence, 0'}, item.head);
        const auto store_betas = [&](bool later) {
          const int token = item.first_token(later);
          for (int t = lane(); is_given(dbeta_view) && t < CHUNK && token + t < item.count; t += WARP)
            betas.store((token + t) * ${packed ? '(REVERSED ? -dbeta_view.strides[1] : dbeta_view.strides[1])' : 'dbeta_view.strides[1]'}, sums.flows.beta[t]);
        };
#pragma unroll 1
        for (int turn = LATER; turn < TURNS; ++turn)
          sums.add(step, turn, [&] {
            if (turn != ACROSS) store_betas(turn == LATER);
          });
#pragma unroll
        for (int later = 1; later >= 0; --later) {
          const float sum = sums.store(later, log_gates[later], to, ${packed ? 'REVERSED ? -dg_view.strides[1] : dg_view.strides[1]' : 'dg_view.strides[1]'}, item.first_token(later), item.count, is_given(dg_view));
          if (lane() == 0) gate_sums[item.number(later)] = sum;
        }
      }
    }
  } else {
    const GradientMaker maker{{at, memory, static_cast<float>(softmax_scale)}};
    const auto each_item = [&](auto make) {
#pragma unroll 1
      for (int step = 0; step < steps; ++step) make(item_of(step), step);
    };
    if (group == OF_QUERIES) {
      take_registers<152>();
      each_item([&](const GradientItem& item, int step) { maker.of_queries(item, ${packed ? 'item.rows(dq_map, row_copies_map, DQ_ROWS, copied_boxes)' : 'dq_map'}, step); });
    } else if (group == OF_READS) {
      take_registers<152>();
      each_item([&](const GradientItem&, int step) { maker.of_reads(step); });
    } else {
      take_registers<168>();
      each_item([&](const GradientItem& item, int step) { maker.of_writes(item, ${packed ? 'item.rows(dk_map, row_copies_map, DK_ROWS, copied_boxes)' : 'dk_map'}, step); });
    }
    if (thread_x() % WARPGROUP == 0) store_wait<0>();
  }
}
