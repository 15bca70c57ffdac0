// GPU vocabulary (Hopper): rnn/rnn_fragments.h's words by wgmma. Two warpgroups have half of the features each, with their part of 64 lines of
// weights in registers as operand A (what does not fit there, in shared memory), and go on with the sums. A third looks at the states of
// each step and brings them into shared memory, as operand B: a panel lies there as it lies in the exchange, in bricks of 8 features
// of 8 rows.
#pragma once
#include "device/sm90.h"
#include "device/tile/exchange.h"

constexpr int REGISTERS = ${registers};  // of a thread, for weights, states and sums
constexpr int SUM_PARTS = 2, SUM_THREADS = SUM_PARTS * WARPGROUP, THREADS = SUM_THREADS + WARPGROUP;
constexpr int CHUNK = 8, PART_LINES = 64, WEIGHT_WORDS = 1;
#include "rnn/rnn_matrix_sums.h"
constexpr int ALL_FLOATS = 2 * SUM_PARTS * PART_FLOATS;  // in turn: some may still read those of the step before
static inline void sync_steps() { sync_some(1, SUM_THREADS); }

// A part's features are CHUNKS batches of 8 products, 16 features deep each. Batches of both parts come in turn; IN_FLIGHT of them are looked
// at at once.
constexpr int DEPTHS = 8 * CHUNKS, BATCHES = SUM_PARTS * CHUNKS, LOOKS = ROWS / 8;
constexpr int IN_FLIGHT = BATCHES * LOOKS <= 12 ? BATCHES : 12 / LOOKS;
constexpr int BATCH_BYTES = 16 * 16 * ROWS, PANEL_BYTES = BATCHES * BATCH_BYTES;
constexpr int REGISTERS_LEFT = (REGISTERS - ROWS / 2) / 4, HELD = REGISTERS_LEFT < DEPTHS ? REGISTERS_LEFT : DEPTHS;
constexpr int DEPTH_BYTES = 64 * 16 * 2;  // of the weights of a product

// 16 bytes of each of the block's messengers, LOOKS times.
struct Received {
  Pack<uint32_t, 4> of[LOOKS];

  static int word_of(int batch, int look) {
    return ((batch % SUM_PARTS * CHUNKS + batch / SUM_PARTS) * BATCH_BYTES + (look * WARPGROUP + thread_x() % WARPGROUP) * 16) / 4;
  }
  void look_at(const uint32_t* panel, int batch) {
#pragma unroll
    for (int i = 0; i < LOOKS; ++i) of[i] = look<4>(panel + word_of(batch, i));
  }
  bool lacks_some() const {
    uint32_t largest = 0;
#pragma unroll
    for (int n = 0; n < LOOKS; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) largest = largest > of[n].at[i] ? largest : of[n].at[i];
    return any_in_warp(largest == NOT_SENT);
  }
};

struct Fragments {
  float* all_sums;
  uint32_t *panel, *kept;  // in shared memory
  uint32_t of[HELD][4];

  // All of a block's threads, before anything else. memory: the launch's shared memory.
  explicit Fragments(float* memory) : all_sums(memory), panel(reinterpret_cast<uint32_t*>(memory + (ALL_FLOATS + 3) / 4 * 4)), kept(panel + PANEL_BYTES / 4) {
    if (thread_x() == 0) {
      for (int b = 0; b < BATCHES; ++b) barrier_init(full(b), WARPGROUP / WARP);
      barrier_init(empty(), SUM_THREADS / WARP);
      fence_barrier_init();
    }
    sync_block();
  }
  uint32_t full(int batch) const { return shared_pointer(kept) + SUM_PARTS * (DEPTHS - HELD) * DEPTH_BYTES + 8 * batch; }
  uint32_t empty() const { return full(BATCHES); }
  static int part() { return warpgroup(); }

  // Whether this thread's part is to receive() the panels, and nothing else.
  static bool receives() {
    if (warpgroup() < SUM_PARTS) return false;
    give_registers<120>();
    return true;
  }
  // A step's panel into shared memory.
  void receive(const uint32_t* from, int step) const {
    Received batch[IN_FLIGHT];
    do batch[0].look_at(from, 0);
    while (batch[0].lacks_some());
#pragma unroll
    for (int b = 1; b < IN_FLIGHT; ++b) batch[b].look_at(from, b);  // not before: they are sent when the first ones are
    barrier_wait(empty(), step % 2 ^ 1);
#pragma unroll
    for (int b = 0; b < BATCHES; ++b) {
      Received& now = batch[b % IN_FLIGHT];
      while (b > 0 && now.lacks_some()) now.look_at(from, b);
#pragma unroll
      for (int i = 0; i < LOOKS; ++i) store_pack(panel + Received::word_of(b, i), now.of[i]);
      if (b + IN_FLIGHT < BATCHES) now.look_at(from, b + IN_FLIGHT);
      fence_async();
      sync_warp();
      if (lane() == 0) barrier_arrive(full(b));
    }
  }

  // from(line, k): two elements of a line from k on, as a word.
  template <class From> void load(const From& from) {
    take_registers<192>();  // with those of the others no more than the block began with, 3 * 168
#pragma unroll
    for (int s = 0; s < DEPTHS; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int line = warp() % 4 * 16 + i % 2 * 8 + lane() / 4, half = i / 2, word = lane() % 4;
        const uint32_t two = from(line, (part() * DEPTHS + s) * 16 + 8 * half + 2 * word).at[0];
        if (s < HELD)
          of[s < HELD ? s : 0][i] = two;
        else
          kept[((part() * (DEPTHS - HELD) + s - HELD) * 2 + half) * 256 + line * 4 + word] = two;
      }
    fence_async();
    sync_steps();
  }

  // All sums of a step of a block: each warpgroup's to its part of shared memory, of which this returns the first. meanwhile() runs while
  // states are on their way.
  template <class Meanwhile> float* multiply(const uint32_t*, int step, const Meanwhile& meanwhile) const {
    meanwhile();
    float sums[ROWS / 2];
    keep_in_place(sums);
#pragma unroll
    for (int b = 0; b < CHUNKS; ++b) {
      barrier_wait(full(b * SUM_PARTS + part()), step % 2);
      wgmma_fence();
      const uint64_t states = matrix_in_shared<0>(shared_pointer(panel) + (part() * CHUNKS + b) * BATCH_BYTES, 16 * ROWS, 128);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int s = 8 * b + i;
        if (s < HELD)
          wgmma<Element, ROWS>(sums, of[s < HELD ? s : 0], moved(states, i * 32 * ROWS), s > 0);
        else
          wgmma<Element, ROWS>(sums, matrix_in_shared<0>(shared_pointer(kept) + (part() * (DEPTHS - HELD) + s - HELD) * DEPTH_BYTES, 1024, 128),
                               moved(states, i * 32 * ROWS), s > 0);
      }
      wgmma_commit();
    }
    wgmma_wait<0>();
    keep_in_place(sums);
    if (lane() == 0) barrier_arrive(empty());
    float* const parts = all_sums + step % 2 * (SUM_PARTS * PART_FLOATS);
    store_sums(parts + part() * PART_FLOATS, warp() % 4, [&](int n, int i) { return sums[4 * n + i]; });
    return parts;
  }
};
