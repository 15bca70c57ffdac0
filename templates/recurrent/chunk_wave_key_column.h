// GPU vocabulary of the chunked recurrence's gradients with gates of keys, on matrix instructions of a wave: a lane's key of a part of a chunk.
// Part of backward.chunk_keys_wave.gpu.cu.
//
// A wave has 16 keys. Of each of them 32 lanes have one of the chunk's two parts of 16 tokens; the others of a wave of 64 have none. Products of
// matrices, these lanes and global memory meet in shared memory, in numbers of tokens by keys that a wave keeps to itself: between memory and
// registers go few numbers at a time, as addresses of all of them would take registers that there are not.
//
// BACK: tokens are met from the last on, and a gradient's state decays by a token's gate after the token has written to it and read it.
#pragma once

static inline bool has_part() { return wave_lane() < 2 * PART; }
static inline int own_part() { return wave_lane() / 16 % 2; }

static inline void hold(float& x) {
  int bits = __builtin_bit_cast(int, x);
  hold(bits);
  x = __builtin_bit_cast(float, bits);
}

struct WaveNumbers {
  static constexpr int PITCH = PART + 1;
  float at[CHUNK][PITCH], logs[2][PART];  // logs: sums of a part's gates

  void load(Sums (&to)[TILES]) const {
#pragma unroll
    for (int c = 0; c < TILES; ++c)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) to[c].at[i] = at[16 * c + matrix_row(i)][matrix_column()];
  }
  void store(const Sums (&from)[TILES]) {
#pragma unroll
    for (int c = 0; c < TILES; ++c)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) at[16 * c + matrix_row(i)][matrix_column()] = from[c].at[i];
  }
  // Those of the lane's key and part, PITCH apart. Their address is made here, not kept from chunk to chunk.
  float* own() {
    int first = PART * own_part();
    hold(first);
    return &at[first][matrix_column()];
  }
  void load_own(float (&to)[PART]) {
    const float* from = own();
#pragma unroll
    for (int i = 0; i < PART; ++i) to[i] = from[i * PITCH];
  }
  void store_own(const float (&from)[PART]) {
    float* to = own();
#pragma unroll
    for (int i = 0; i < PART; ++i) to[i * PITCH] = from[i];
  }
  // Number i of them becomes change(i, number), of one token after the other.
  template <class Change> void change_own(Change change) {
    float* numbers = own();
#pragma unroll 1
    for (int first = 0; first < PART; first += 4) {
      float x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = change(first + i, numbers[(first + i) * PITCH]);
#pragma unroll
      for (int i = 0; i < 4; ++i) numbers[(first + i) * PITCH] = x[i];
    }
  }
};

// Gates of a head's keys, in the order in which tokens are met.
struct KeyGateRows {
  const void* data;
  int64_t stride;
  int type, keys;

  KeyGateRows(const View& view, int64_t type, const Tokens& tokens, int64_t head, int64_t start, bool reverse)
      : stride(reverse ? -view.strides[1] : view.strides[1]), type(static_cast<int>(type)), keys(static_cast<int>(view.shape[3] - start)) {
    const int64_t first = reverse ? tokens.end - 1 : tokens.first;
    data = static_cast<const char*>(view.data) +
           (tokens.row * view.strides[0] + first * view.strides[1] + head * view.strides[2] + start) * (type == 0 ? 4 : 2);
  }
  float at(int token, int key) const { return number_at(data, type, token * stride + key); }
};

// Products of tokens that read, t, and that write, s: the block of the first part's pairs, that of both parts', that of the second part's.
struct PairProducts {
  static constexpr int BLOCK = PART * PART + 8;
  float blocks[PAIR_BLOCKS][BLOCK];  // [s][t]

  const float* of_part(int part) const { return blocks[2 * part]; }
  void put(int block, const Sums& x) {
#pragma unroll
    for (int i = 0; i < SUMS; ++i) blocks[block][matrix_row(i) * PART + matrix_column()] = x.at[i];
  }
  Sums far() const {
    Sums x;
#pragma unroll
    for (int i = 0; i < SUMS; ++i) x.at[i] = blocks[1][matrix_row(i) * PART + matrix_column()];
    return x;
  }
};

// A lane's number of `rows`, of a token before `end`.
static inline float column_at(const ValueRows& rows, int token, int end) {
  const int column = 16 * wave() + matrix_column();
  return token < end && column < rows.columns ? to_float(rows.first[static_cast<int64_t>(token) * rows.stride + column]) : 0;
}

template <bool BACK> struct KeyColumn {
  float factors[PART], values[PART], sums[PART];  // what gates leave; what tokens write; what they read
  uint32_t closed;                                // bits of tokens whose gate leaves nothing

  // From token `first` on, times `factor` and (l2_norm) factors of rows.
  void load_values(const ValueRows& rows, int first, int end, const float* norms, float factor, WaveNumbers& numbers) {
    numbers.change_own([&](int i, float) { return column_at(rows, first + i, end) * (NORMED ? norms[i] * factor : factor); });
    numbers.load_own(values);
  }
  void load_gates(const KeyGateRows& gates, const float* token_gates, int first, int end, WaveNumbers& numbers) {
    const int key = 16 * wave() + matrix_column();
    float sum = 0;
    uint32_t none = 0;
    numbers.change_own([&](int i, float) {
      const float all = (first + i < end && key < gates.keys ? gates.at(first + i, key) : 0) + token_gates[i], log = bounded_gate(all);
      if (all < -3.4e38f) none |= 1u << i;
      sum += log;
      return exp2_of(log);
    });
    numbers.load_own(factors);
    numbers.logs[own_part()][matrix_column()] = sum;
    closed = none;
  }
  // What pairs of tokens of the part give, without a token's own; products [s][t].
  void add_near(const float* products) {
#pragma unroll
    for (int i = 0; i < PART; ++i) sums[i] = 0;
#pragma unroll
    for (int s = 0; s < PART; ++s) {
      part();
      float left = values[s];
      hold(left);
#pragma unroll
      for (int t = s + 1; t < PART; ++t) {
        left *= factors[BACK ? t - 1 : t];
        sums[t] += products[s * PART + t] * left;
        hold(sums[t]);
      }
    }
  }
  // What is left at the part's end of what its tokens write.
  void put_left(WaveNumbers& numbers) const {
    float *to = numbers.own(), left = 1;
#pragma unroll
    for (int i = PART - 1; i >= 0; --i) {
      if (BACK) left *= factors[i];
      to[i * WaveNumbers::PITCH] = values[i] * left;
      if (!BACK) left *= factors[i];
    }
  }
  // Besides, what tokens read of the state at the part's start, times what gates leave of it; all times `scale`.
  void add_read(WaveNumbers& numbers, float scale) {
    const float* read = numbers.own();
    float left = 1;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      if (!BACK) left *= factors[i];
      sums[i] = (sums[i] + left * read[i * WaveNumbers::PITCH]) * scale;
      if (BACK) left *= factors[i];
    }
  }
  // The same with tokens' own.
  void put_gradients(const float* products, float scale, WaveNumbers& numbers) const {
    float* to = numbers.own();
#pragma unroll
    for (int i = 0; i < PART; ++i) to[i * WaveNumbers::PITCH] = sums[i] + products[i * PART + i] * values[i] * scale;
  }
};
