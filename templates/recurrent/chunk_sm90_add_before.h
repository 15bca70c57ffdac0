// Hopper vocabulary of the chunked recurrence: the entry that adds to out what queries of a segment read of the state before it. With the delta
// rule they read by rows that were carried, else by queries, which the launch `prepare` has weighed. Part of chunk_sm90_joints.h.
#pragma once

using OutTile = Tile<Element, CHUNK, 128>;
constexpr int LEFT_AT = 2 * (KeyTile::BYTES + OutTile::BYTES);  // after two chunks' rows and theirs of out: what is left of the state
static_assert(LEFT_AT + (DELTA ? 0 : 4 * ADDED_CHUNKS * KEYS) == ${added_shared}, "the spec has another size");

// Chunks [begin, end) of a segment but the first, of a slice of a head of a sequence.
struct Addition {
  const Joints joints;
  int row, number, item, sequence, head, part, first, begin, end;  // first: token

  // Block number: first those of segments' first chunks, of which something is left; of the same tokens all heads, whose rows lie side by side.
  Addition(const Joints& of, int64_t slices, int64_t heads, int64_t sequences) : joints(of) {
    const int rows = static_cast<int>(slices * heads * sequences), place = block_x() / rows;
    row = block_x() - place * rows, part = place / (joints.segments - 1), number = place - part * (joints.segments - 1) + 1;
    begin = part * ADDED_CHUNKS, end = begin + ADDED_CHUNKS, first = number * joints.tokens;
    item = row / static_cast<int>(slices);
    sequence = item / static_cast<int>(heads), head = item - sequence * static_cast<int>(heads);
  }
  void end_at(int chunks) { end = end < chunks ? end : chunks; }
};

// The slice's rows of out, from the segment's first token on.
struct OutSlice {
  Element* first;
  int stride, columns;  // stride: elements
  OutSlice(const View& view, const Addition& to, int64_t slices) : stride(static_cast<int>(view.strides[1])) {
    const int column = (to.row - to.item * static_cast<int>(slices)) * 128, left = static_cast<int>(view.shape[3]) - column;
    first = static_cast<Element*>(view.data) + to.sequence * view.strides[0] + to.head * view.strides[2] + column;
    first += static_cast<int64_t>(to.first) * stride;
    columns = left < 128 ? left : 128;
  }
  Element* chunk(int number) const { return first + static_cast<int64_t>(number * CHUNK) * stride; }
};

// Of a state before a segment, by values, a warp's 16 values as operand B of two products of 8 columns, so that a lane has four values one
// after another in the sums.
static inline void load_before(uint32_t (&state)[SLICES][4], const Element* values) {
  const Element* from = values + (16 * warp() + lane() / 8 * 4 + lane() / 4 % 2) * KEYS + lane() % 4 * 2;
#pragma unroll
  for (int k = 0; k < SLICES; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) state[k][i] = *reinterpret_cast<const uint32_t*>(from + i / 2 * 2 * KEYS + 16 * k + i % 2 * 8);
}
$if not delta
// The same times what is left of it, by keys.
static inline void decay_before(uint32_t (&to)[SLICES][4], const uint32_t (&state)[SLICES][4], const float* left) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Pack<float, 2> x = load_pack<2>(left + 16 * k + i % 2 * 8 + lane() % 4 * 2);
      to[k][i] = pack_pair<Element>(low_of(state[k][i]) * x.at[0], high_of(state[k][i]) * x.at[1]);
    }
}
// What is left of it before each chunk, to shared memory.
static inline void put_left(float* left, const float* before, const float* decays, int64_t stride, int chunks) {
  if (thread_x() >= KEYS) return;
  float x = before[thread_x()];
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    left[chunk * KEYS + thread_x()] = x;
    const float decay = decays[chunk * stride + thread_x()];
    x = x * base_of(decay) + x * decay;
  }
}
$end

// Block number: ADDED_CHUNKS chunks of a segment but the first of a slice of a head of a sequence.
KERNEL(256, 2) add_before(${parameters('add_before')}) {
  Addition of(Joints(segments, segment_tokens, q_view.shape[1]), slices, heads, sequences);
  char* memory = dynamic_shared();
  wait_for_previous_launch();
$if delta
  of.end_at(carried_chunks[of.joints.place(of.item, of.number)]);
  if (of.begin >= of.end) return;
  const int carried = (of.sequence * (of.joints.segments - 1) + of.number - 1) * (of.joints.tokens / CHUNK);
  const Element* rows = reinterpret_cast<const Element*>(carried_rows) + (static_cast<int64_t>(carried) * heads + of.head) * (CHUNK * KEYS);
$end
$if not delta
  const int64_t joint = of.joints.place(of.item, of.number);
  of.end_at(carried_chunks[joint]);
  if (of.begin >= of.end) return;
  const int64_t first = of.joints.chunks_before(of.sequence, of.number) * heads + of.head;
  const Element* rows = reinterpret_cast<const Element*>(queries_before) + first * (CHUNK * KEYS);
  const float* before = decays_before + (joint * of.joints.parts() + of.part) * KEYS;
  float* left = reinterpret_cast<float*>(memory + LEFT_AT);
  put_left(left, before, decays + (first + of.begin * heads) * KEYS, heads * KEYS, of.end - of.begin);
  sync_block();
$end
  const OutSlice out(out_view, of, slices);
  const auto tile = [&](int chunk) { return KeyTile{shared_pointer(memory) + chunk % 2 * KeyTile::BYTES}; };
  const int out_at = 2 * KeyTile::BYTES;
  const auto start = [&](int chunk) {
    if (chunk < of.end) {
      copy_dense_async<256>(tile(chunk), rows + chunk * heads * (CHUNK * KEYS));
      const OutTile own{shared_pointer(memory) + out_at + chunk % 2 * OutTile::BYTES};
      copy_rows_async<256>(own, out.chunk(chunk), out.stride, of.joints.length - of.first - chunk * CHUNK, out.columns);
    }
    copy_async_commit();
  };
  start(of.begin);
  uint32_t state[SLICES][4];
  load_before(state, reinterpret_cast<const Element*>(states_before) + of.joints.place(of.row, of.number) * STATE_NUMBERS);
  const int value = 16 * warp() + lane() % 4 * 4, tokens = value < out.columns ? of.joints.length - of.first - lane() / 4 : 0;
#pragma unroll 1
  for (int chunk = of.begin; chunk < of.end; ++chunk) {
    start(chunk + 1);
$if not delta
    uint32_t decayed[SLICES][4];
    decay_before(decayed, state, left + (chunk - of.begin) * KEYS);
$else
    const auto& decayed = state;
$end
    copy_async_wait<1>();
    sync_block();
    const Element* own = reinterpret_cast<const Element*>(memory + out_at + chunk % 2 * OutTile::BYTES) + lane() / 4 * OutTile::PITCH + value;
    Element* to = out.chunk(chunk) + lane() / 4 * out.stride + value;
#pragma unroll 1
    for (int r = 0; r < CHUNK; r += 16) {
      float sums[2][4] = {};
#pragma unroll
      for (int k = 0; k < SLICES; ++k) {
        uint32_t a[4];
        tile(chunk).load_a(a, r, 16 * k);
        multiply_two(sums[0], sums[1], a, decayed[k]);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (chunk * CHUNK + r + 8 * h >= tokens) continue;
        Pack<Element, 4> x = load_pack<4>(own + (r + 8 * h) * OutTile::PITCH);
#pragma unroll
        for (int i = 0; i < 4; ++i) x.at[i] = from_float<Element>(to_float(x.at[i]) + sums[i / 2][2 * h + i % 2]);
        store_pack(to + (r + 8 * h) * out.stride, x);
      }
    }
    sync_block();
  }
}
