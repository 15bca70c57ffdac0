// Hopper vocabulary of the chunked recurrence: segments of a sequence, which are computed at once as if nothing were before them.
// chunk_sm90_joints.h adds what there is. Part of a template, which has defined CARRIED_TURNS before.
//
// With the delta rule a segment makes of a state before it, of values by keys, that state times a matrix, and its tokens read that state times
// rows. Both are made by a block that goes through the segment with the identity as its state and with values 0. It ends where gates and writes
// have left less than f32's normal numbers of the matrix.
#pragma once

// Of a block that carries the identity: whether a warp had something left of it after a chunk, of the last CARRIED_TURNS in turn; the first
// chunk that is not computed. Of all blocks whether they do, and where their first rows of out go: here, as there are no registers for that.
struct Carried {
  int left[CARRIED_TURNS][8], end, to[3], carries;
  void init() { end = 1 << 30; }
  bool any_left(uint32_t turn) const {
    bool any = false;
#pragma unroll
    for (int i = 0; i < 8; ++i) any = any || left[turn][i];
    return any;
  }
  // By a warp of those that carry.
  template <int N> void note(uint32_t turn, const float (&state)[N]) {
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) bits |= __builtin_bit_cast(uint32_t, state[i]);
    const bool any = any_in_warp((bits & 0x7f800000) != 0);  // 2^-126 or more
    if (lane() == 0) left[turn][warp() - 4] = any;
  }
  // The same of warps that begin with number 8, whose rows of the state are to be multiplied by `back`.
  template <int N> void note(uint32_t turn, const float (&state)[N], const float (&back)[2]) {
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) bits |= __builtin_bit_cast(uint32_t, state[i] * back[i % 4 / 2]);
    const bool any = any_in_warp((bits & 0x7f800000) != 0);
    if (lane() == 0) left[turn][warp() - 8] = any;
  }
};

// Block number: of the first `carrying` ones segments but the first of a head of a sequence, which carry the identity; then a segment of
// slice % slices of such a head.
struct Segment {
  bool carries;
  int number, row, slice, sequence, head;  // row: number of the slice (carries: of the head) among all sequences
  int first, count;  // tokens
  int chunk;  // carries: its first one among all that are carried

  Segment(int64_t heads, int64_t slices, int64_t segments, int64_t segment_tokens, int64_t carrying, int64_t length) : slice(0), chunk(0) {
    const int all = static_cast<int>(segments), all_heads = static_cast<int>(heads);
    int block = block_x(), item;
    carries = block < static_cast<int>(carrying);
    if (carries) {
      row = item = divided(block, all - 1), number = block - item * (all - 1) + 1;
    } else {
      block -= static_cast<int>(carrying);
      row = divided(block, all), number = block - row * all;
      item = divided(row, static_cast<int>(slices)), slice = row - item * static_cast<int>(slices);
    }
    sequence = static_cast<int>(static_cast<uint32_t>(item) / static_cast<uint32_t>(all_heads)), head = item - sequence * all_heads;
    if (carries) chunk = uniform((sequence * (all - 1) + number - 1) * (static_cast<int>(segment_tokens) / CHUNK));
    first = uniform(number * static_cast<int>(segment_tokens));
    const int left = static_cast<int>(length) - first;
    count = left < static_cast<int>(segment_tokens) ? left : static_cast<int>(segment_tokens);
  }
  static int divided(int x, int by) { return uniform(static_cast<int>(static_cast<uint32_t>(x) / static_cast<uint32_t>(by))); }
  Tokens tokens(int64_t sequences) const {
    Tokens tokens(nullptr, sequences, sequence, 0);
    tokens.first = first, tokens.end = first + count;
    return tokens;
  }
  // Places of rows of out: head, token, sequence; of those that are carried: 0, head, chunk.
  void put_place(Carried& of) const {
    of.to[0] = carries ? 0 : head, of.to[1] = carries ? head : first, of.to[2] = carries ? chunk : sequence, of.carries = carries;
  }
  int64_t joint(int64_t segments) const { return static_cast<int64_t>(row) * (segments - 1) + number - 1; }
  int chunks() const { return (count + CHUNK - 1) / CHUNK; }
};

// Calls use(value, key, i) for each number i of the part of a state that a warpgroup has: its place among 128 values.
template <class Use> static inline void each_number(int part, Use use) {
#pragma unroll
  for (int i = 0; i < KEYS / 2; ++i) use(64 * part + 16 * (warp() % 4) + lane() / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane() % 4 * 2 + i % 2, i);
}
// The identity of `keys` keys as a state: of those that are padded nothing is left from the start, as no gate would ever take it away. And
// zeros in a box of values, to which none are copied then.
static inline void begin_carrying(Column& state, int part, int keys) {
  each_number(part, [&](int value, int key, int i) { state[i] = value == key && key < keys ? 1 : 0; });
}
static inline void clear_values(char* box, int part) {
#pragma unroll 1
  for (int i = thread_x() % WARPGROUP; i < static_cast<int>(BOX) / 16; i += WARPGROUP)
    store_pack(reinterpret_cast<float*>(box) + 4 * i, Pack<float, 4>{});
  sync_some(1 + part, WARPGROUP);
}
// The state after a segment that began with nothing or with the identity, by values.
static inline void keep_alone(const Column& state, float* to, int part) {
  each_number(part, [&](int value, int key, int i) {
    if (i % 2 == 0) store_pack(to + value * KEYS + key, Pack<float, 2>{state[i], state[i + 1]});
  });
}
