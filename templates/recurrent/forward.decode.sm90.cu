// recurrent, forward, for one token a sequence, on Hopper: blocks that stay take one head's state after another, whole. Warp COPIER's first
// thread copies it to shared memory, CARRIERS warps of 16 keys each change it there, and it goes back as it came, in one piece; meanwhile the
// next ones are on their way. The last warp prepares rows of the tokens ahead of the others.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_uniform.h"
#include "device/number/roots.h"
#include "recurrent/recurrent_step.h"

using Element = ${ctype(E)};
using Stored = ${half_state ? 'bfloat16' : 'float'};  // a state's number in memory, also in shared memory
constexpr bool DELTA = ${delta}, KEY_GATES = ${key_gates}, IN_PLACE = ${in_place};
constexpr int KEYS = 128, COLUMNS = 128, CARRIERS = 8, COPIER = CARRIERS, PREPARER = CARRIERS + 1, WARPS = PREPARER + 1;
constexpr int OWN = KEYS / CARRIERS, VEC = COLUMNS / WARP, LANE = KEYS / WARP;  // a warp's keys, a lane's columns, numbers of a row a lane prepares
constexpr uint32_t STATE_BYTES = KEYS * COLUMNS * sizeof(Stored), STAGES = ${half_state ? 6 : 3}, SLOTS = 2;
constexpr int TOGETHER = 1;  // the barrier of the warps that carry states

// A token, prepared: q times the scale, k, v, and what gates leave of each key's row of the state, or (no gates of keys) of all.
struct alignas(16) Prepared {
  float q[KEYS], k[KEYS], v[COLUMNS], base[KEY_GATES ? KEYS : 1], rest[KEY_GATES ? KEYS : 1], beta;
};
struct alignas(16) Memory {
  Prepared rows[SLOTS];
  float seen[CARRIERS][COLUMNS], read[2][CARRIERS][COLUMNS];  // sums of the warps by the key; by the query, of this token and the one before
  uint64_t full[STAGES], changed[STAGES], ready[SLOTS], used[SLOTS];
};
static_assert(STAGES * STATE_BYTES + sizeof(Memory) <= ${shared}, "the spec has another size");

// What a block's step is about.
struct Item {
  int sequence, head;
  Item(int step, int heads) {
    const int number = static_cast<int>(block_x()) + step * static_cast<int>(grid_x());
    sequence = number / heads, head = number - sequence * heads;
  }
  Stored* state(const View& view) const { return static_cast<Stored*>(view.data) + sequence * view.strides[0] + head * view.strides[1]; }
};

static inline float sum_of_warp(float x) {
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) x += shuffle_xor(x, mask);
  return x;
}

// A sum over the lane's keys of its four columns, to `to`.
static inline void give(const float (&sums)[VEC], float (&to)[COLUMNS]) { store_pack(to + VEC * lane(), Pack<float, VEC>{sums[0], sums[1], sums[2], sums[3]}); }
static inline Pack<float, VEC> add_up(const float (&parts)[CARRIERS][COLUMNS]) {
  Pack<float, VEC> sums = {};
#pragma unroll
  for (int w = 0; w < CARRIERS; ++w) {
    const auto part = load_pack<VEC>(&parts[w][VEC * lane()]);
#pragma unroll
    for (int c = 0; c < VEC; ++c) sums.at[c] += part.at[c];
  }
  return sums;
}

// The state's part of a warp, in shared memory, becomes that after the token.
static inline void change(Stored* state, const Prepared& row, Memory& memory, int turn) {
  const int first = OWN * warp();
  float x[OWN][VEC], sums[VEC] = {};
#pragma unroll
  for (int j = 0; j < OWN; ++j) {
    const auto own = load_pack<VEC>(state + (first + j) * COLUMNS + VEC * lane());
    const SplitExp left{row.base[KEY_GATES ? first + j : 0], row.rest[KEY_GATES ? first + j : 0]};
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      x[j][c] = left.of(to_float(own.at[c]));
      if (DELTA) sums[c] += row.k[first + j] * x[j][c];
    }
  }
  Pack<float, VEC> v = load_pack<VEC>(row.v + VEC * lane());
  if constexpr (DELTA) {
    give(sums, memory.seen[warp()]);
    sync_some(TOGETHER, CARRIERS * WARP);
    const auto seen = add_up(memory.seen);
#pragma unroll
    for (int c = 0; c < VEC; ++c) v.at[c] = row.beta * (v.at[c] - seen.at[c]), sums[c] = 0;
  }
#pragma unroll
  for (int j = 0; j < OWN; ++j) {
    Pack<Stored, VEC> to;
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      const float now = x[j][c] + row.k[first + j] * v.at[c];
      to.at[c] = from_float<Stored>(now);
      sums[c] += row.q[first + j] * now;
    }
    store_pack(state + (first + j) * COLUMNS + VEC * lane(), to);
  }
  give(sums, memory.read[turn][warp()]);
}

KERNEL(32 * WARPS, 1) recurrent(${parameters('recurrent')}) {
$if in_place
  const View &before_view = state_view, &after_view = state_view;
$else
  const View &before_view = initial_state_view, &after_view = final_state_view;
$end
  char* states = dynamic_shared();
  Memory& memory = *reinterpret_cast<Memory*>(states + STAGES * STATE_BYTES);
  const auto full = [&](uint32_t i) { return shared_pointer(&memory.full[i]); };
  const auto changed = [&](uint32_t i) { return shared_pointer(&memory.changed[i]); };
  const auto ready = [&](uint32_t i) { return shared_pointer(&memory.ready[i]); };
  const auto used = [&](uint32_t i) { return shared_pointer(&memory.used[i]); };
  if (thread_x() == 0) {
    for (uint32_t i = 0; i < STAGES; ++i) barrier_init(full(i), 1), barrier_init(changed(i), CARRIERS);
    for (uint32_t i = 0; i < SLOTS; ++i) barrier_init(ready(i), 1), barrier_init(used(i), CARRIERS);
    fence_barrier_init();
  }
  sync_block();
  const int all_heads = static_cast<int>(heads), items = static_cast<int>(item_count), grid = static_cast<int>(grid_x());
  const int steps = (items - static_cast<int>(block_x()) + grid - 1) / grid, own = uniform(warp());
  if (own == COPIER) {
    if (lane() > 0) return;
    const auto start = [&](int step) {
      const uint32_t stage = step % STAGES;
      barrier_arrive_expect(full(stage), STATE_BYTES);
      load_bytes(shared_pointer(states) + stage * STATE_BYTES, Item(step, all_heads).state(before_view), STATE_BYTES, full(stage));
    };
    for (int step = 0; step < static_cast<int>(STAGES) && step < steps; ++step) start(step);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const uint32_t stage = step % STAGES;
      barrier_wait(changed(stage), step / STAGES % 2);
      store_bytes(Item(step, all_heads).state(after_view), shared_pointer(states) + stage * STATE_BYTES, STATE_BYTES);
      store_commit();
      if (step + static_cast<int>(STAGES) >= steps) continue;
      store_wait_read<0>();
      start(step + STAGES);
    }
    store_wait<0>();
  } else if (own == PREPARER) {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const Item item(step, all_heads);
      const Tokens tokens(nullptr, sequences, item.sequence, 1);
      const Element *q_row = Numbers<Element>(q_view, tokens, item.head, heads, 0).data, *k_row = Numbers<Element>(k_view, tokens, item.head, heads, 0).data;
      const Element* v_row = Numbers<Element>(v_view, tokens, item.head, heads, 0).data;
      float q[LANE], k[LANE], v[LANE], gates[LANE] = {};
#pragma unroll
      for (int j = 0; j < LANE; ++j) q[j] = to_float(q_row[j * WARP + lane()]), k[j] = to_float(k_row[j * WARP + lane()]), v[j] = to_float(v_row[j * WARP + lane()]);
      if constexpr (KEY_GATES) AnyNumbers(gk_view, gk_type, tokens, item.head, 0).row(0, lane(), WARP, KEYS, gates);
      const float gate = AnyNumbers(g_view, g_type, tokens, item.head, 0).at(0, 0) + gamma_of(g_gamma_view, gamma_type, item.head, heads, layer_idx, num_layers);
      const float beta = DELTA ? AnyNumbers(beta_view, beta_type, tokens, item.head, 0).at(0, 0) : 1;
      float of_query = static_cast<float>(softmax_scale), of_key = 1;
      if (l2_norm) {
        float squares[2] = {};
#pragma unroll
        for (int j = 0; j < LANE; ++j) squares[0] += q[j] * q[j], squares[1] += k[j] * k[j];
        of_query *= rsqrt_of(sum_of_warp(squares[0]) + 1e-6f), of_key = rsqrt_of(sum_of_warp(squares[1]) + 1e-6f);
      }
      const uint32_t slot = step % SLOTS;
      Prepared& to = memory.rows[slot];
      barrier_wait_all(used(slot), step / SLOTS % 2 ^ 1);
#pragma unroll
      for (int j = 0; j < LANE; ++j) {
        const int at = j * WARP + lane();
        to.q[at] = q[j] * of_query, to.k[at] = k[j] * of_key, to.v[at] = v[j];
        if constexpr (KEY_GATES) {
          const SplitExp left = split_exp(gate + gates[j]);
          to.base[at] = left.base, to.rest[at] = left.rest;
        }
      }
      if (lane() == 0) {
        if (!KEY_GATES) {
          const SplitExp left = split_exp(gate);
          to.base[0] = left.base, to.rest[0] = left.rest;
        }
        to.beta = beta;
      }
      sync_warp();
      if (lane() == 0) barrier_arrive(ready(slot));
    }
  } else {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const uint32_t stage = step % STAGES, slot = step % SLOTS;
      barrier_wait_all(ready(slot), step / SLOTS % 2);
      barrier_wait_all(full(stage), step / STAGES % 2);
      change(reinterpret_cast<Stored*>(states + stage * STATE_BYTES), memory.rows[slot], memory, step % 2);
      fence_async();
      sync_warp();
      if (lane() == 0) barrier_arrive(changed(stage)), barrier_arrive(used(slot));
      sync_some(TOGETHER, CARRIERS * WARP);
      if (own != step % CARRIERS) continue;
      const Item item(step, all_heads);
      Element* out = static_cast<Element*>(out_view.data) + item.sequence * out_view.strides[0] + item.head * out_view.strides[2] + VEC * lane();
      const auto row = add_up(memory.read[step % 2]);
#pragma unroll
      for (int c = 0; c < VEC; ++c) out[c] = from_float<Element>(row.at[c]);
    }
  }
}
