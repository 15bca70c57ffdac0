// Hopper vocabulary of the chunked recurrence's gradient: segments of a sequence, which are computed at once, and the entries that make the
// states before them. Part of backward.chunk.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_gathered.h"

enum Kind { QUERIES, VALUES, KEYS_OF };  // whose gradient

// Block number: segment % segments of a head of a sequence.
struct Segment {
  int kind, number, order, segments;  // order: as they are met
  Stream stream;

$if packed
  int most;  // segments of a sequence; shorter ones may have fewer
  Segment(int kind, uint32_t block, int64_t heads, int64_t most, const int32_t* cum_seqlens, int64_t length)
      : kind(kind), number(static_cast<int>(block % static_cast<uint32_t>(most))), order(0), segments(1),
        stream(block / static_cast<uint32_t>(most), static_cast<uint32_t>(heads), cum_seqlens, length), most(static_cast<int>(most)) {
    const int chunks = (stream.chunks + this->most - 1) / this->most;
    if (chunks > 0) segments = (stream.chunks + chunks - 1) / chunks;
    order = kind == QUERIES ? number : segments - 1 - number;
    stream.cut(number, chunks);
  }
  bool there() const { return number < segments; }
$else
  Segment(int kind, uint32_t block, int64_t heads, int64_t segments, int64_t segment_chunks, const View& rows)
      : kind(kind), number(static_cast<int>(block % static_cast<uint32_t>(segments))), order(0), segments(static_cast<int>(segments)),
        stream(block / static_cast<uint32_t>(segments), static_cast<uint32_t>(heads), rows) {
    order = kind == QUERIES ? number : this->segments - 1 - number;
    stream.cut(number, segment_chunks);
  }
$end
  bool ends() const { return order + 1 == segments; }
  // Which of the states after segments but the last is that after number `order`.
  int64_t place(int64_t sequences, int order) const {
    return ((${dual ? '(kind != QUERIES)' : 'kind'} * sequences + stream.sequence) * stream.heads + stream.head) * (${packed ? 'most' : 'segments'} - 1) + order;
  }
  const float* before(const float* states, int64_t sequences) const {
    return order == 0 ? nullptr : states + place(sequences, order - 1) * (WARPGROUP * KEYS);
  }
};

// Block number: of the three gradients number % 3 (ssd: of C's and Bm's number % 2), of a segment of a head of a sequence: its state without
// those before it, and the log of what it leaves of them. None for the last segment.
KERNEL(3 * WARPGROUP, 1) segment_states_alone(${parameters('segment_states_alone')}) {
  const GatherPlaces at;
  if (thread_x() == 0) at.init();
  sync_block();
  let_next_launch_go();
  const uint32_t block = static_cast<uint32_t>(block_x()) / ${dual ? 2 : 3}, others = static_cast<uint32_t>(segments) - 1;
  const int kind = ${dual ? 'block_x() % 2 ? KEYS_OF : QUERIES' : 'block_x() % 3'};
  const uint32_t number = block % others + (kind == QUERIES ? 0 : 1);  // of those that are met last there is none
  const Segment segment(kind, block / others * static_cast<uint32_t>(segments) + number, heads, segments, ${packed ? 'cum_seqlens, k_view.shape[1]' : dual ? 'segment_chunks, Bm_view' : 'segment_chunks, k_view'});
  const Stream& stream = segment.stream;
  const bool back = kind != QUERIES, of_values = kind == VALUES;
$if dual
  const TensorMap &q_map = C_map, &k_map = Bm_map, &v_map = x_map;
  constexpr float scale = 1;
$else
  const float scale = softmax_scale;
$end
$if packed
  if (!segment.there() || segment.ends()) return;
  const auto rows = [&](const TensorMap& map, CopyOf of) { return stream.rows(map, row_copies_map, of, copied_boxes); };
  const PackedRows read = kind == QUERIES ? rows(v_map, V_ROWS) : of_values ? rows(q_map, Q_ROWS) : rows(dout_map, DOUT_ROWS);
  const PackedRows written = kind == QUERIES ? rows(k_map, K_ROWS) : of_values ? rows(dout_map, DOUT_ROWS) : rows(q_map, Q_ROWS);
$else
  const TensorMap &read = kind == QUERIES ? v_map : of_values ? q_map : dout_map, &written = kind == QUERIES ? k_map : of_values ? dout_map : q_map;
$end
  const int group = uniform(warpgroup());
  if (group == 0) {
    give_registers<88>();
    if (warp() >= FEEDERS) return;
$if dual
    GatheredGates gates{{{dt_view, dt_type, Tokens(nullptr, sequences, stream.sequence, stream.count), stream.head, false},
                         number_of_head(dt_bias_view, bias_type, stream.head), number_at(A_view.data, a_type, stream.head), dt_softplus},
                        0};
$else
    GatheredGates gates{{g_view, g_type, Tokens(${packed ? 'cum_seqlens' : 'nullptr'}, sequences, stream.sequence, stream.count), stream.head, ${packed ? 'REVERSED' : 'false'}},
                        gamma_of(g_gamma_view, gamma_type, stream.head, heads, layer_idx, num_layers)};
$end
    const float log = feed(at, gates, stream.count, stream.steps, back,
         [&](int step) { return stream.chunk_of(step, !back) * CHUNK; },
         [&](uint32_t stage, int token) {
#pragma unroll
           for (int box = 0; box < BOXES; ++box)
             load_tile(at.read(stage) + box * BOX, read, at.full(stage), {64 * box, ${dual ? 'stream.reads(of_values)' : 'stream.head'}, token, stream.sequence});
#pragma unroll
           for (int part = 0; part < 2; ++part)
             load_tile(at.written(stage, part), written, at.full(stage), {64 * part, ${dual ? 'stream.writes(of_values)' : 'stream.head'}, token, stream.sequence});
         });
    if (thread_x() == 0) segment_logs[segment.place(sequences, segment.order)] = log;
  } else {
    take_registers<208>();
    const int part = group - 1;
    Column state = {};
    const SplitExp left = gather(state, at, stream.steps, 0, [&](uint32_t stage) {
      const Gates& gates = at.gates(stage);
      return Gathered{at.written(stage, part), back ? gates.before : gates.after, back ? scale : 1};
    });
    if (segment.order == 0 && (left.base != 0 || left.rest != 0)) {
      const StateInMemory first(back ? dfinal_state_view : initial_state_view, stream, 64 * part + 16 * (warp() % 4), of_values, true);
      if (first.data) first.each([&](int i, const float* x) { state[i] += left.of(*x); });
    }
    GradientCarrier<false, false>::keep(state, segment_states + segment.place(sequences, segment.order) * (WARPGROUP * KEYS), part);
  }
}

#include "recurrent/chunk_sm90_joined.h"
