// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: what a warpgroup that carries a state does with sums of values by
// tokens, and boxes of rows that go to memory.
#pragma once

constexpr uint32_t OUT_BUFFERS = 2;
using OutBuffers = StoreBuffers<Element, static_cast<int>(OUT_BUFFERS)>;

// A box of 64 rows of 64 elements on its way; TRANSPOSED: its rows are tokens.
template <bool TRANSPOSED, class Buffers, int RANK> static inline void send_box(Buffers& buffers, const uint32_t (*rows)[4], const TensorMap& map, const int (&to)[RANK]) {
  buffers.open();
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const uint32_t r[4] = {rows[j / 2][0], rows[j / 2][1], rows[j / 2][2], rows[j / 2][3]};
    buffers.template put<TRANSPOSED>(j, r);
  }
  buffers.send(true, static_cast<Element*>(nullptr), 0, 0, 0, [&](uint32_t from) { store_tile(map, to, from); });
}

struct BoxPlace {
  int at[5];
};
// COUNT of them at once, where so many buffers are enough that others are on their way meanwhile: fewer barriers. to(i): where number i goes.
template <int COUNT, int BUFFERS, class To> static inline void send_boxes(StoreBuffers<Element, BUFFERS>& buffers, const uint32_t (*const (&rows)[COUNT])[4], const TensorMap& map, To to) {
  constexpr int TOGETHER = BUFFERS > COUNT ? COUNT : 1;
#pragma unroll
  for (int first = 0; first < COUNT; first += TOGETHER) {
    if (thread_x() % WARPGROUP == 0) store_wait_read<BUFFERS - TOGETHER>();
    sync_some(buffers.barrier, WARPGROUP);
    uint32_t places[TOGETHER];
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
      places[i] = buffers.current(), ++buffers.count;
      const StoreBuffers<Element, 1> box{places[i], 0};
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const uint32_t(&of)[4] = rows[first + i][j / 2];
        const uint32_t r[4] = {of[0], of[1], of[2], of[3]};
        box.template put<false>(j, r);
      }
    }
    fence_async();
    sync_some(buffers.barrier, WARPGROUP);
    if (thread_x() % WARPGROUP == 0) {
#pragma unroll
      for (int i = 0; i < TOGETHER; ++i) {
        store_tile(map, to(first + i).at, places[i]);
        store_commit();
      }
    }
  }
}

// 64 values of a chunk's tokens, which lie in a box with a row a token, as a left factor of values by tokens.
static inline void load_transposed(uint32_t (&a)[4][4], uint32_t box) {
  const int token = lane() % 8 + lane() / 16 * 8, pack = warp() % 4 * 2 + lane() / 8 % 2;
#pragma unroll
  for (int k = 0; k < 4; ++k) load_matrices_transposed(a[k], box + token * 128 + (pack ^ token % 8) * 16 + k * 2048);
}

// The elements next to x, which are taken from it.
static inline void take_piece(uint32_t (&piece)[4][4], Columns& x) {
  to_factor(piece, x);
  Columns taken;
  from_factor(taken, piece);
#pragma unroll
  for (int i = 0; i < CHUNK / 2; ++i) x[i] -= taken[i];
}

// COUNT elements a number of x, values by tokens, to memory: what tokens write, or its gradient. `to`: of the first.
template <int COUNT, class Buffers> static inline void keep_written(const Columns& x, Buffers& buffers, const TensorMap& written, const int (&to)[5]) {
  Columns left;
#pragma unroll
  for (int i = 0; i < CHUNK / 2; ++i) left[i] = x[i];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    uint32_t piece[4][4];
    take_piece(piece, left);
    send_box<true>(buffers, piece, written, {to[0], to[1], to[2] + i, to[3], to[4]});
  }
}
// What a state is read as, of 64 values: `seen` and what rounding took from it, to memory, in boxes of 64 keys.
template <int COUNT, class Buffers>
static inline void keep_state(const uint32_t (&seen)[SLICES][4], const uint32_t (&rest)[SLICES][4], Buffers& buffers, const TensorMap& kept, const int (&to)[5]) {
#pragma unroll
  for (int box = 0; box < BOXES; ++box) {
    const uint32_t(*rows[COUNT])[4];
    rows[0] = seen + 4 * box;
    if constexpr (COUNT > 1) rows[1] = rest + 4 * box;
    send_boxes(buffers, rows, kept, [&](int i) { return BoxPlace{64 * box, to[1], to[2] + i, to[3], to[4]}; });
  }
}

// What a block walks through: a head of a sequence, from its first chunk or (back) its last.
struct Walk {
  int sequence, head, heads, chunks;
  bool back;
$if packed
  int first, count, before;  // tokens; chunks of sequences before, at most
  static Walk of(int64_t all_heads, int64_t sequences, const int32_t* cum_seqlens, int64_t length, int number) {
    Walk walk(all_heads, sequences, 0, number);
    const PackedSequence of(cum_seqlens, walk.sequence, length);
    walk.first = of.first, walk.count = of.count, walk.chunks = of.chunks, walk.before = of.before;
    return walk;
  }
  PackedRows rows(const TensorMap& map, const TensorMap& copies, int tensor, int64_t boxes) const {
    return PackedRows::of(map, copies, tensor, boxes, sequence, first, count, before);
  }
$end
  // Number: first those that go back.
  Walk(int64_t all_heads, int64_t sequences, int64_t tokens, int number = static_cast<int>(block_x()))
      : heads(static_cast<int>(all_heads)), chunks((static_cast<int>(tokens) + CHUNK - 1) / CHUNK) {
    const int rows = heads * static_cast<int>(sequences), row = number < rows ? number : number - rows;
    back = number < rows;
    sequence = row / heads, head = row - sequence * heads;
  }
  int chunk(int step) const { return back ? chunks - 1 - step : step; }
  int number(int chunk) const { return ${packed ? 'before' : 'sequence * chunks'} + chunk; }
};
