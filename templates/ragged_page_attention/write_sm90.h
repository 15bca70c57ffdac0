// New keys and values of ragged_page_attention_v3 on Hopper on their way to their slots. Part of attend.sm90.cu, whose constants it uses.
//
// A warp has a token after the other. Its rows are copied to shared memory while those of the token before are converted and stored.
#pragma once
#include "ragged_page_attention/write.gpu.h"

struct TokenWriter {
  static constexpr uint32_t ROW_BYTES = D * sizeof(Element), CHUNK_BYTES = 2048;  // a chunk: as many rows as a warp copies at once
  static constexpr uint32_t CHUNKS = 2;  // of a warp, in shared memory
  static constexpr int ROWS = CHUNK_BYTES / ROW_BYTES;
  static constexpr int UNIT = 16 / sizeof(Cached), UNITS = ROWS * D / UNIT / WARP, ROW_UNITS = D / UNIT;  // elements of 16 bytes of a slot; of a chunk, by lane; of a row
  static_assert(PLAN_WARPS * CHUNKS * (CHUNK_BYTES + 8) + 128 == ${ring}, "the spec has another size");
  const NewTokens& to;
  const RaggedBatch& batch;
  int most;        // sequences that the tensors have room for
  uint32_t place;  // of all warps' chunks, then of their barriers

  static uint32_t places() { return (shared_pointer(dynamic_shared()) + 127) / 128 * 128; }
  uint32_t chunk_place(uint32_t i) const { return place + (warp() * CHUNKS + i) * CHUNK_BYTES; }
  uint32_t barrier(uint32_t i) const { return place + PLAN_WARPS * CHUNKS * CHUNK_BYTES + (warp() * CHUNKS + i) * 8; }
  int row_count() const { return 2 * static_cast<int>(to.kv_heads); }

  // Whether rows may be copied so, and stored by 16 bytes.
  static bool may(const NewTokens& to) {
    const NewRows& from = to.rows;
    const int64_t strides = from.key_token | from.key_head | from.value_token | from.value_head, slots = to.page_stride | to.slot_stride | to.row_stride;
    const uint64_t given = reinterpret_cast<uint64_t>(from.keys) | reinterpret_cast<uint64_t>(from.values) | reinterpret_cast<uint64_t>(to.pages);
    return strides % 8 == 0 && slots % UNIT == 0 && given % 16 == 0;
  }

  // Lengths of few sequences, a lane each: asked for at once, also past the last one, where they mean nothing.
  struct FewSequences {
    static constexpr int MOST = WARP - 1;
    bool are;  // few
    int64_t count;
    int first = 0, keys = 0;
    FewSequences(const RaggedBatch& batch, int most) : are(most > 0 && most <= MOST), count(batch.count) {
      if (are) first = batch.starts[smaller_of(lane(), most)], keys = batch.contexts[smaller_of(lane(), most - 1)];
    }
    RaggedSequence of(const RaggedBatch& batch, int64_t token) const {
      const int number = 31 - __clz(lanes_where(lane() <= count && first <= token) | 1), next = shuffle(first, number + 1 < WARP ? number + 1 : number), own = shuffle(first, number);
      return {number, own, (number < count ? next : batch.tokens) - own, number < count ? shuffle(keys, number) : 0};
    }
  };
  // Where a token of a sequence goes; null: nowhere.
  Cached* slot_of(const RaggedSequence& sequence, int64_t token) const {
    const int64_t position = sequence.old_keys() + token - sequence.first;
    if (token < sequence.first || sequence.number == batch.count || position < 0) return nullptr;
    return to.pages + to.tables[sequence.number * to.table_row + position / PAGE] * to.page_stride + position % PAGE * to.slot_stride;
  }

  // A chunk of the warp's tokens, which are `step` apart.
  struct Chunk {
    int64_t token, step;
    int number, count;  // of a token
    void next() {
      if (++number == count) number = 0, token += step;
    }
  };
  void copy(const Chunk& of, uint32_t i) const {
    if (of.token >= batch.tokens) return;
    const int first = of.number * ROWS, rows = smaller_of(row_count() - first, ROWS);
    if (lane() == 0) barrier_arrive_expect(barrier(i), rows * ROW_BYTES);
    sync_warp();
    if (lane() < rows) load_bytes(chunk_place(i) + lane() * ROW_BYTES, to.rows.row(of.token, first + lane()), ROW_BYTES, barrier(i));
  }

  void run(int64_t first, int64_t step) const {
    if (lane() == 0) barrier_init(barrier(0), 1), barrier_init(barrier(1), 1);
    fence_barrier_init();
    sync_warp();
    Chunk now{first, step, 0, (row_count() + ROWS - 1) / ROWS}, ahead = now;
    copy(ahead, 0), ahead.next();
    copy(ahead, 1), ahead.next();
    const FewSequences few(batch, most);
    const bool as_it_is = SAME_TYPE && to.rows.k_scale == nullptr && to.rows.v_scale == nullptr;
    Turn<CHUNKS> turn;
    Cached* slot = nullptr;
#pragma unroll 1
    for (; now.token < batch.tokens; now.next(), turn.next()) {
      if (now.number == 0) slot = slot_of(few.are ? few.of(batch, now.token) : batch[NewTokens::sequence_of(batch, now.token)], now.token);
      const Quotients own(as_it_is ? 1 : to.rows.scale(smaller_of(now.number * ROWS + lane() % ROWS, row_count() - 1)));
      barrier_wait_all(barrier(turn.at), turn.parity);
#pragma unroll
      for (int i = 0; i < UNITS; ++i) store(slot, now.number * ROWS, i, given(turn.at, i), own, as_it_is);
      sync_warp();
      copy(ahead, turn.at), ahead.next();
    }
  }

  // A unit's elements, two a word: this lane's of number i of the chunk.
  using Given = Pack<uint32_t, UNIT / 2>;
  static int row_of(int i) { return (i * WARP + lane()) / ROW_UNITS; }
  static int column_of(int i) { return (i * WARP + lane()) % ROW_UNITS * UNIT; }
  Given given(uint32_t chunk, int i) const {
    const uint32_t from = chunk_place(chunk) + (i * WARP + lane()) * UNIT * sizeof(Element);
    Given x;
#pragma unroll
    for (int k = 0; k < UNIT / 2; k += 4)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.at[k]), "=r"(x.at[k + 1]), "=r"(x.at[k + 2]), "=r"(x.at[k + 3]) : "r"(from + 4 * k) : "memory");
    return x;
  }
  void store(Cached* slot, int first_row, int i, const Given& x, const Quotients& own, bool as_it_is) const {
    const int row = first_row + row_of(i);
    const Quotients by = of_lane(own, row_of(i));
    if (slot == nullptr || row >= row_count()) return;
    Cached* const there = slot + row * to.row_stride + column_of(i);
$if C == E
    if (as_it_is) return store_pack(there, __builtin_bit_cast(Pack<Cached, UNIT>, x));
$end
    store_pack(there, converted(x, by));
  }
$if E == 'bf16'
  static float lower(uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }
  static float upper(uint32_t pair) { return __builtin_bit_cast(float, pair & 0xffff0000u); }
$else
  static float lower(uint32_t pair) { return to_float(__builtin_bit_cast(Element, static_cast<uint16_t>(pair))); }
  static float upper(uint32_t pair) { return to_float(__builtin_bit_cast(Element, static_cast<uint16_t>(pair >> 16))); }
$end
  static Pack<Cached, UNIT> converted(const Given& x, const Quotients& by) {
$if C == 'i8'
    Pack<uint32_t, UNIT / 4> y;
#pragma unroll
    for (int k = 0; k < UNIT / 4; ++k) y.at[k] = bytes(by(lower(x.at[2 * k])), by(upper(x.at[2 * k])), by(lower(x.at[2 * k + 1])), by(upper(x.at[2 * k + 1])));
    return __builtin_bit_cast(Pack<Cached, UNIT>, y);
$else
    Pack<Cached, UNIT> y;
#pragma unroll
    for (int k = 0; k < UNIT / 2; ++k) store_cached_pair<Cached>(y.at + 2 * k, by(lower(x.at[k])), by(upper(x.at[k])));
    return y;
$end
  }
$if C == 'i8'
  // To nearest, ties to even, within -128 and 127; of a NaN 0. (cvt.rni, cvt.pack.sat)
  static uint32_t bytes(float a, float b, float c, float d) {
    uint32_t word;
    asm("{\n.reg .b32 a, b, c, d, upper;\ncvt.rni.s32.f32 a, %1;\ncvt.rni.s32.f32 b, %2;\ncvt.rni.s32.f32 c, %3;\ncvt.rni.s32.f32 d, %4;\n"
        "cvt.pack.sat.s8.s32.b32 upper, d, c, 0;\ncvt.pack.sat.s8.s32.b32 %0, b, a, upper;\n}" : "=r"(word) : "f"(a), "f"(b), "f"(c), "f"(d));
    return word;
  }
$end
  static Quotients of_lane(const Quotients& own, int from) {
    Quotients by = own;
    by.factor = shuffle(own.factor, from), by.divisor = shuffle(own.divisor, from), by.reciprocal = shuffle(own.reciprocal, from);
    return by;
  }
};
