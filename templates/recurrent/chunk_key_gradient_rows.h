// GPU vocabulary of the chunked recurrence's gradient with gates of keys: what threads compute number by number, of some keys of a part's tokens.
// Part of backward.chunk_keys.gpu.cu.
#pragma once

// A thread's part of the chunk: its tokens from `first` on, its keys from `key` on.
struct Own {
  int part, first, key;
  bool there;
  Own() : part(thread_x() / KEY_THREADS), first(part * PART), key(thread_x() % KEY_THREADS * OWN_KEYS), there(part < PARTS) {}
};

static inline float query_of(const char* memory, const KeyFlows& flows, int t, int key) {
  return number_of_row(memory, t, key) * (NORMED ? flows.norms.q[t] : 1);
}
static inline float key_of(const char* memory, const KeyFlows& flows, int t, int key) {
  return number_of_row(memory + At::KEY_ROWS, t, key) * (NORMED ? flows.norms.k[t] : 1);
}

// Keys times r, and what they give to the part's end. `factors`: logs, which become what each gate leaves.
static inline void weigh_kept(char* memory, KeyFlows& flows, const Own& own, float (&factors)[PART][OWN_KEYS]) {
#pragma unroll
  for (int j = 0; j < OWN_KEYS; ++j) {
    float left = 0, product = 1;
#pragma unroll
    for (int i = PART - 1; i >= 0; --i) {
      const int t = own.first + i;
      factors[i][j] = exp2_of(bounded_gate(factors[i][j] + flows.token_gates[t]));
      const float k = key_of(memory, flows, t, own.key + j) * product;
      put_piece(memory + At::KEPT, t, own.key + j, k);
      left += k * *sums_of(memory, At::STATE_SUMS, t, own.key + j);
      product *= factors[i][j];
    }
    flows.left[own.part][own.key + j] = left, flows.leaves[own.part][own.key + j] = product;
  }
}
// Queries, and (delta) keys, times p.
static inline void weigh_read(char* memory, const KeyFlows& flows, const Own& own, const float (&factors)[PART][OWN_KEYS]) {
#pragma unroll
  for (int j = 0; j < OWN_KEYS; ++j) {
    float product = 1;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      const int t = own.first + i;
      product *= factors[i][j];
      put_piece(memory + At::READ, t, own.key + j, query_of(memory, flows, t, own.key + j) * product);
      if (DELTA) put_piece(memory + At::READ_KEYS, t, own.key + j, key_of(memory, flows, t, own.key + j) * product);
    }
  }
}

// Of one key: adds pairs of tokens of a part in neighbouring blocks of LEVEL tokens, of rows that read with keys: by what gates leave from the later
// block's start, and to the earlier one's end.
template <int LEVEL> static inline void add_near_level(const float* near, const float (&factor)[PART], const float (&row)[PART], const float (&k)[PART],
                                                       float (&of_row)[PART], float (&of_key)[PART]) {
#pragma unroll
  for (int block = 0; block < PART; block += 2 * LEVEL) {
    float left[LEVEL], earlier[LEVEL], product = 1, sums[LEVEL] = {};
#pragma unroll
    for (int i = LEVEL - 1; i >= 0; --i) left[i] = product, earlier[i] = k[block + i] * product, product *= factor[block + i];
    product = 1;
#pragma unroll
    for (int i = 0; i < LEVEL; ++i) {
      const int t = block + LEVEL + i;
      product *= factor[t];
      const float later = row[t] * product;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < LEVEL; ++j) {
        const float flow = near[(block + j) * PART + t];
        sum += flow * earlier[j], sums[j] += flow * later;
      }
      of_row[t] += sum * product;
    }
#pragma unroll
    for (int j = 0; j < LEVEL; ++j) of_key[block + j] += sums[j] * left[j];
  }
}
// All pairs of a part. Sums come without p (of rows that read) and r.
static inline void add_near(const float* near, const float (&factor)[PART], const float (&row)[PART], const float (&k)[PART],
                            float (&of_row)[PART], float (&of_key)[PART]) {
  add_near_level<8>(near, factor, row, k, of_row, of_key), add_near_level<4>(near, factor, row, k, of_row, of_key);
  add_near_level<2>(near, factor, row, k, of_row, of_key), add_near_level<1>(near, factor, row, k, of_row, of_key);
}
static inline void finish_rows(char* memory, KeyFlows& flows, const Own& own, const float (&factors)[PART][OWN_KEYS],
                               float (&changes)[PART][OWN_KEYS]) {
  const float* near = reinterpret_cast<const float*>(memory + At::NEAR) + own.part * PART * PART;
#pragma unroll
  for (int j = 0; j < OWN_KEYS; ++j) {
    const int key = own.key + j;
    float factor[PART], k[PART], dk[PART], sum = 0;
    {
      float product = 1;
#pragma unroll
      for (int i = PART - 1; i >= 0; --i) {
        factor[i] = factors[i][j], k[i] = key_of(memory, flows, own.first + i, key);
        dk[i] = *sums_of(memory, At::KEY_SUMS, own.first + i, key) * product;
        product *= factor[i];
      }
    }
$if delta
    {
      float of_read[PART], product = 1;
#pragma unroll
      for (int i = 0; i < PART; ++i) {
        product *= factor[i];
        of_read[i] = *sums_of(memory, At::STATE_SUMS, own.first + i, key) * product;
      }
      add_near(reinterpret_cast<const float*>(memory + At::NEAR_KEYS) + own.part * PART * PART, factor, k, k, of_read, dk);
#pragma unroll
      for (int i = 0; i < PART; ++i) {
        changes[i][j] = k[i] * of_read[i];
        *sums_of(memory, At::KEY_SUMS, own.first + i, key) = of_read[i];
      }
    }
    sync_warp();  // keeps the compiler from loading queries before, for which there are no registers
$end
    float q[PART], dq[PART], product = 1;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      product *= factor[i];
      q[i] = query_of(memory, flows, own.first + i, key);
      dq[i] = *sums_of(memory, At::QUERY_SUMS, own.first + i, key) * product;
    }
    add_near(near, factor, q, k, dq, dk);
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      const float itself = near[i * PART + i], change = q[i] * dq[i] - k[i] * dk[i];
      float& of_key = *sums_of(memory, At::KEY_SUMS, own.first + i, key);
      *sums_of(memory, At::QUERY_SUMS, own.first + i, key) = dq[i] + itself * k[i];
      of_key = (DELTA ? of_key : 0) + (dk[i] + itself * q[i]);
      changes[i][j] = DELTA ? changes[i][j] + change : change;
      sum += changes[i][j];
    }
    flows.change[own.part][key] = sum;
  }
}

// Gradients of log gates, to the sums of the state, from what flows past the part's end.
static inline void put_gate_gradients(char* memory, const KeyFlows& flows, const Own& own, const float (&factors)[PART][OWN_KEYS],
                                      const float (&changes)[PART][OWN_KEYS]) {
#pragma unroll
  for (int j = 0; j < OWN_KEYS; ++j) {
    const int key = own.key + j;
    float sum = 0;  // what flows past the chunk's end
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) sum += flows.through[group][key];
#pragma unroll
    for (int part = 0; part < PARTS; ++part) sum *= flows.leaves[part][key];
    float left = 0;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) left = left * flows.leaves[part][key] + flows.left[part][key];
    sum += left;
#pragma unroll
    for (int part = PARTS - 1; part > 0; --part)
      if (part > own.part) sum += flows.change[part][key];
#pragma unroll
    for (int i = PART - 1; i >= 0; --i) {
      sum += changes[i][j];
      *sums_of(memory, At::STATE_SUMS, own.first + i, key) = factors[i][j] < 1e-37f ? 0 : sum;
    }
  }
}

static inline float sum_of_warp(float x) {
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) x += shuffle_xor(x, mask);
  return x;
}

// A row of gradients, from that of the row over its norm; by a warp.
static inline void store_row(const char* tile, const float* sums, float norm, const GradientRows& to, int row, int token, int keys) {
  float along = 0;
  if (NORMED) {
#pragma unroll
    for (int key = 2 * lane(); key < KEYS; key += 2 * WARP) {
      const uint32_t word = *reinterpret_cast<const uint32_t*>(tile + (row * KeyTile::PITCH + key) * 2);
      along += low_of(word) * sums[key] + high_of(word) * sums[key + 1];
    }
    along = sum_of_warp(along) * norm * norm;
  }
#pragma unroll
  for (int key = 2 * lane(); key < KEYS; key += 2 * WARP) {
    float x = sums[key], y = sums[key + 1];
    if (NORMED) {
      const uint32_t word = *reinterpret_cast<const uint32_t*>(tile + (row * KeyTile::PITCH + key) * 2);
      x = norm * (x - low_of(word) * along), y = norm * (y - high_of(word) * along);
    }
    if (key < keys) to.store_two(token + row, key, x, y);
  }
}
