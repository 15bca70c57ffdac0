// Hopper vocabulary of the chunked recurrence: segments of a sequence, which are computed at once, and the entries that make the states
// before them. Part of forward.chunk.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_gathered.h"

// A row is a slice of a head (or HEADS heads) of a sequence. Block number: a row that is not cut, of the first ones; then segment % segments of
// the others.
struct Segment {
  int number, row, slice, sequence, head, first, count;  // row: among those that are cut; first: token; count: of tokens
  bool ends;                                             // it is its row's last one

  Segment(int64_t block, int64_t whole_rows, int64_t heads, int64_t slices, int64_t segments, int64_t segment_tokens, int64_t length) {
    const bool cut = block >= whole_rows;
    const int of_cut = static_cast<int>(block - whole_rows), all = static_cast<int>(segments);
    row = cut ? static_cast<int>(static_cast<uint32_t>(of_cut) / static_cast<uint32_t>(all)) : of_cut;
    number = cut ? of_cut - row * all : 0;
    const uint32_t of_all = static_cast<uint32_t>(whole_rows + row), item = of_all / static_cast<uint32_t>(slices), all_heads = static_cast<uint32_t>(heads);
    slice = static_cast<int>(of_all - item * static_cast<uint32_t>(slices));
    sequence = static_cast<int>(item / all_heads), head = static_cast<int>(item - sequence * all_heads);
    first = number * static_cast<int>(segment_tokens);
    const int left = static_cast<int>(length) - first;
    ends = !cut || left <= static_cast<int>(segment_tokens);
    count = ends ? left : static_cast<int>(segment_tokens);
  }
  Tokens tokens(int64_t sequences) const {
    Tokens tokens(nullptr, sequences, sequence, 0);
    tokens.first = first, tokens.end = first + count;
    return tokens;
  }
  // Of one of the two warpgroups that carry states.
  int head_of(int part) const { return HEADS > 1 ? HEADS * head + part : head; }
  int column(int part) const { return HEADS > 1 ? 0 : slice * 128 + 64 * part; }
  // Where the state after a segment is kept, of one of the two warpgroups that carry it.
  int64_t place(int64_t segments, int number, int part) const { return ((row * (segments - 1) + number) * 2 + part) * (WARPGROUP * (KEYS / 2)); }
};

// Of a segment: its state without those before it, and the log of what it leaves of them. The last one has no block.
KERNEL(3 * WARPGROUP, 1) segment_states_alone(${parameters('segment_states_alone')}) {
$if dual
  const View &k_view = Bm_view, &v_view = x_view;
  const TensorMap &k_map = Bm_map, &v_map = x_map;
$end
  const GatherPlaces at;
  if (thread_x() == 0) at.init();
  sync_block();
  let_next_launch_go();
  const Segment segment(whole_rows + block_x(), whole_rows, heads, slices, segments - 1, segment_tokens, k_view.shape[1]);
  const int group = uniform(warpgroup());
  if (group == 0) {
    give_registers<88>();
    if (warp() >= FEEDERS * HEADS) return;
    const auto own = [&](const View& view) { return segment.head_of(0) / static_cast<int>(heads * HEADS / view.shape[2]); };
    const int key_head = own(k_view), value_head = own(v_view);
    const int own_head = segment.head_of(warp() % HEADS);
$if dual
    GatheredGates gates{dual_numbers(dt_view, dt_type, A_view, a_type, dt_bias_view, bias_type, segment.tokens(sequences), own_head, dt_softplus), 0};
$else
    GatheredGates gates{{g_view, g_type, segment.tokens(sequences), own_head, false}, gamma_of(g_gamma_view, gamma_type, own_head, heads, layer_idx, num_layers)};
$end
    const int last = segment.count - CHUNK;
    const float log = feed(at, gates, segment.count, segment.count / CHUNK, false, [&](int step) { return last - step * CHUNK; },
         [&](uint32_t stage, int token) {
#pragma unroll
           for (int box = 0; box < BOXES; ++box)
             load_tile(at.read(stage) + box * BOX, k_map, at.full(stage), {64 * box, key_head, segment.first + token, segment.sequence});
#pragma unroll
           for (int part = 0; part < 2; ++part)
             load_tile(at.written(stage, part), v_map, at.full(stage),
                       {segment.column(part), ${paired ? 'value_head + part' : 'value_head'}, segment.first + token, segment.sequence});
         });
    if (warp() < HEADS && lane() == 0) segment_logs[(segment.row * (segments - 1) + segment.number) * HEADS + warp()] = log;
  } else {
    take_registers<208>();
    const int part = group - 1, own = HEADS > 1 ? part : 0;
    Column state = {};
    const SplitExp left = gather(state, at, segment.count / CHUNK, own, [&](uint32_t stage) { return Gathered{at.written(stage, part), at.gates(stage, own).after, 1}; });
    const StateMemory initial(initial_state_view, segment.sequence, segment.head_of(part), segment.column(part) + 16 * (warp() % 4));
    if (initial.data && segment.number == 0 && (left.base != 0 || left.rest != 0))
      initial.each([&](int n, int i, const float* from) { state[4 * n + i] += left.of(*from); });
    Carrier::keep(state, segment_states + segment.place(segments, segment.number, part));
  }
}

#include "recurrent/chunk_sm90_joined.h"
