// recurrent, forward, for one token a sequence: a block has COLUMNS columns of one head's state, in registers. All its loads are on their way
// before the first is used, and it waits for its threads once. Of a small call what counts is how soon a block ends; of a large one memory's
// rate, so that several blocks share a processor and some read while others write: blocks that stay and states that go through shared memory
// in bulk copies reach less of it.
//
// A thread has OWN keys of VEC columns, 16 bytes a key. What the query reads after the token has written, q' (S + k w) = q' S + (q' k) w, is made
// of sums over the keys that do not wait for w, and so are the norms. A state of bf16 stays in registers as it was read: it decays once for the
// sums and again when it is written. Tensors come as pointers: they lie whole, and the fewer parameters a launch has, the sooner it starts.
#include "device/gpu.h"
#include "device/number/roots.h"
#include "recurrent/recurrent_step.h"

using Element = ${ctype(E)};
using Stored = ${half_state ? 'bfloat16' : 'float'};  // a state's number in memory
constexpr int KEYS = ${keys}, OWN = 8, VEC = 16 / sizeof(Stored), COLUMNS = ${columns}, GROUPS = COLUMNS / VEC, THREADS = KEYS / OWN * GROUPS, WARPS = THREADS / WARP;
constexpr bool DELTA = ${delta}, KEY_GATES = ${key_gates}, NORMED = ${normed}, SHARED_HEADS = ${shared_heads};

// Sums over a warp's keys: what its key and its query read of the state, and products of query and key with themselves and each other.
struct alignas(16) Sums {
  float seen[GROUPS][VEC], read[GROUPS][VEC], rows[4];
};
static inline void give(float (&to)[VEC], const float (&x)[VEC]) {
#pragma unroll
  for (int i = 0; i < VEC; i += 4) store_pack(to + i, Pack<float, 4>{x[i], x[i + 1], x[i + 2], x[i + 3]});
}

template <class T, int N> static inline void load_floats(const T* from, float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const Pack<T, 4> words = load_pack<4>(from + i);
#pragma unroll
    for (int j = 0; j < 4; ++j) x[i + j] = to_float(words.at[j]);
  }
}
// Over the lanes that share columns.
static inline float sum_of_parts(float x) {
#pragma unroll
  for (int mask = GROUPS; mask < WARP; mask *= 2) x += shuffle_xor(x, mask);
  return x;
}

// Block number: COLUMNS columns of a head of a sequence.
KERNEL(THREADS, ${blocks}) recurrent(${parameters('recurrent')}) {
  Sums* warps = reinterpret_cast<Sums*>(dynamic_shared());
  const int sequence = block_z(), head = block_y(), all = static_cast<int>(heads), row = sequence * all + head;
  const int group = thread_x() % GROUPS, first = thread_x() / GROUPS * OWN, column = block_x() * COLUMNS + group * VEC;
  const auto own_row = [&](int64_t count) {
    const int own = static_cast<int>(count);
    return static_cast<int64_t>(SHARED_HEADS ? sequence * own + head / (all / own) : row);
  };
  const int64_t place = (static_cast<int64_t>(row) * KEYS + first) * V + column;  // of the thread's first row of the state
$if in_place
  Stored *const before = state + place, *const after = before;
$else
  const float* const before = initial_state ? initial_state + place : nullptr;
  float* const after = final_state + place;
$end
  Pack<Stored, VEC> s[OWN] = {};
  if (before) {
#pragma unroll
    for (int j = 0; j < OWN; ++j) s[j] = load_pack<VEC>(before + j * V);
  }
  float query[OWN], key[OWN], written[VEC], key_gates[OWN] = {};
  load_floats(k + own_row(Hk) * KEYS + first, key);
  load_floats(q + own_row(Hq) * KEYS + first, query);
  load_floats(v + own_row(Hv) * V + column, written);
  float share = 1, gate = gamma_of(View{const_cast<void*>(static_cast<const void*>(g_gamma)), ${decayed} ? 1 : -1}, gamma_type, head, heads, layer_idx, num_layers);
$if key_gates
  load_floats(gk + static_cast<int64_t>(row) * KEYS + first, key_gates);
$end
$if gated
  gate += to_float(g[row]);
$end
$if delta
  share = to_float(beta[row]);
$end

  float seen[VEC] = {}, read[VEC] = {}, rows[3] = {};
  SplitExp left = {1, 0};
  if constexpr (!KEY_GATES) left = split_exp(gate);
#pragma unroll
  for (int j = 0; j < OWN; ++j) {
    if constexpr (KEY_GATES) left = split_exp(gate + key_gates[j]);
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
$if half_state
      const float decayed = left.of(to_float(s[j].at[c]));
$else
      const float decayed = s[j].at[c] = left.of(s[j].at[c]);
$end
      if (DELTA) seen[c] += key[j] * decayed;
      read[c] += query[j] * decayed;
    }
    rows[0] += query[j] * key[j];
    if (NORMED) rows[1] += key[j] * key[j], rows[2] += query[j] * query[j];
  }
  Sums& own = warps[warp()];
#pragma unroll
  for (int c = 0; c < VEC; ++c) {
    if (DELTA) seen[c] = sum_of_parts(seen[c]);
    read[c] = sum_of_parts(read[c]);
  }
#pragma unroll
  for (int i = 0; i < (NORMED ? 3 : 1); ++i) rows[i] = sum_of_parts(rows[i]);
  if (lane() < GROUPS) {
    if (DELTA) give(own.seen[lane()], seen);
    give(own.read[lane()], read);
    if (lane() == 0) store_pack(own.rows, Pack<float, 4>{rows[0], rows[1], rows[2], 0});
  }
  sync_block();

  float all_seen[VEC] = {}, all_read[VEC] = {}, all_rows[4] = {};
#pragma unroll ${blocks == 1 ? 'WARPS' : '2'}
  for (int w = 0; w < WARPS; ++w) {
    float more_read[VEC], more_rows[4], more_seen[VEC] = {};
    load_floats(warps[w].read[group], more_read), load_floats(warps[w].rows, more_rows);
    if (DELTA) load_floats(warps[w].seen[group], more_seen);
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      all_seen[c] += more_seen[c], all_read[c] += more_read[c];
      if (c < 4) all_rows[c] += more_rows[c];
    }
  }
  const float key_norm = NORMED ? rsqrt_of(all_rows[1] + 1e-6f) : 1, query_norm = (NORMED ? rsqrt_of(all_rows[2] + 1e-6f) : 1) * softmax_scale;
#pragma unroll
  for (int c = 0; c < VEC; ++c) {
    if (DELTA) written[c] = share * (written[c] - key_norm * all_seen[c]);
    written[c] *= key_norm;
$if not half_state
#pragma unroll
    for (int j = 0; j < OWN; ++j) s[j].at[c] += key[j] * written[c];
$end
  }
$if half_state
#pragma unroll
  for (int j = 0; j < OWN; ++j) {
    if constexpr (KEY_GATES) left = split_exp(gate + key_gates[j]);
#pragma unroll
    for (int c = 0; c < VEC; ++c) s[j].at[c] = from_float<Stored>(left.of(to_float(s[j].at[c])) + key[j] * written[c]);
  }
$end
#pragma unroll
  for (int j = 0; j < OWN; ++j) store_pack(after + j * V, s[j]);
  if (first > 0) return;
#pragma unroll
  for (int i = 0; i < VEC; i += 4) {
    Pack<Element, 4> row_out;
#pragma unroll
    for (int c = 0; c < 4; ++c) row_out.at[c] = from_float<Element>(query_norm * (all_read[i + c] + all_rows[0] * written[i + c]));
    store_pack(out + static_cast<int64_t>(row) * V + column + i, row_out);
  }
}
