// Hopper vocabulary of the chunked recurrence with gates of keys and the delta rule: a thread's rows of a chunk's queries and keys, and what its
// gates leave of them. Part of chunk_sm90_key_delta_prepare.h, which has defined how many warps and threads prepare a chunk before.
#pragma once

// A thread's numbers: of two keys of a part's tokens.
struct OwnRows {
  float gates[PART][2];
  uint32_t queries[PART], keys[PART];
  int part, key, first;

  void set(int warp) { part = warp / KEY_WARPS, first = part * PART, key = warp % KEY_WARPS * WARP_KEYS + 2 * lane(); }
  // What is computed of the numbers from here on is computed anew: unpacked and weighed they do not fit in registers.
  void forget() {
#pragma unroll
    for (int i = 0; i < PART; ++i)
      asm("" : "+r"(queries[i]), "+r"(keys[i]), "+f"(gates[i][0]), "+f"(gates[i][1]));
  }
  // All of them to a place of the warp's, and from there to another warp.
  void put(float* place) const {
#pragma unroll
    for (int i = 0; i < PART; ++i)
      store_pack(place + 4 * (i * WARP + lane()), Pack<float, 4>{gates[i][0], gates[i][1], __builtin_bit_cast(float, queries[i]), __builtin_bit_cast(float, keys[i])});
  }
  void take(const float* place) {
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      const auto x = load_pack<4>(place + 4 * (i * WARP + lane()));
      gates[i][0] = x.at[0], gates[i][1] = x.at[1], queries[i] = __builtin_bit_cast(uint32_t, x.at[2]), keys[i] = __builtin_bit_cast(uint32_t, x.at[3]);
    }
  }
  // What follows loads rows from `token` on, of `count`; reversed: tokens are met from the sequence's last one on.
  int64_t row_of(const Tokens& tokens, int token, bool reversed) const { return reversed ? tokens.end - 1 - token - first : token + first; }
  // Two neighbours at a time, where they lie so; T: of the gates.
  template <class T> bool load_gates_of(const View& view, const Tokens& tokens, int64_t head, int token, int count, bool reversed) {
    const T* at = static_cast<const T*>(view.data) + tokens.row * view.strides[0] + row_of(tokens, token, reversed) * view.strides[1] + head * view.strides[2] + key;
    if ((reinterpret_cast<uint64_t>(view.data) % (2 * sizeof(T))) != 0 || (view.strides[0] | view.strides[1] | view.strides[2]) % 2 != 0) return false;
    const int there = key < view.shape[3] ? count - token - first : 0;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      Pack<T, 2> x = {};
      if (i < there) x = load_pack<2>(at);
      gates[i][0] = to_float(x.at[0]), gates[i][1] = to_float(x.at[1]);
      at += reversed ? -view.strides[1] : view.strides[1];
    }
    return true;
  }
  void load_gates(const View& view, int64_t type, const Tokens& tokens, int64_t head, int token, int count, bool reversed = false) {
    if constexpr (F32_GATES) {
      if (load_gates_of<float>(view, tokens, head, token, count, reversed)) return;
      const float* at = static_cast<const float*>(view.data) + tokens.row * view.strides[0] + row_of(tokens, token, reversed) * view.strides[1] + head * view.strides[2] + key;
      load_key_gates(gates, at, reversed ? -view.strides[1] : view.strides[1], count - token - first, static_cast<int>(view.shape[3]) - key);
      return;
    }
    const bool loaded = type == 0 ? load_gates_of<float>(view, tokens, head, token, count, reversed)
                        : type == 1 ? load_gates_of<half>(view, tokens, head, token, count, reversed) : load_gates_of<bfloat16>(view, tokens, head, token, count, reversed);
    if (!loaded) load_key_gates(gates, view, type, tokens, head, token + first, count, key, reversed);
  }
  // Sums of a token's gates to rows of keys, of which the first is at `to`.
  void store_gates(float* to, int64_t stride, const float* of_tokens) const {
    to += first * stride + key;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      const float more = of_tokens[first + i];
      store_pack(to, Pack<float, 2>{gates[i][0] + more, gates[i][1] + more});
      to += stride;
    }
  }
  void load(uint32_t (&to)[PART], const View& view, const Tokens& tokens, int64_t head, int64_t heads, int token, int count, bool reversed = false) const {
    const Numbers<Element> rows(view, tokens, head, heads, key);
    const int there = key < view.shape[3] ? count - token - first : 0;
    const Element* at = rows.data + (row_of(tokens, token, reversed) - (reversed ? tokens.first : 0)) * rows.stride;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      to[i] = i < there ? *reinterpret_cast<const uint32_t*>(at) : 0;
      at += reversed ? -rows.stride : rows.stride;
    }
  }
};

// A run of tokens of one block: the later ones' queries and keys, from the block's start on, where `left` is; or the earlier ones' keys.
template <int COUNT, class Put> static inline void weigh_later(const OwnRows& own, int from, float (&left)[2], Put put) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    left[0] += own.gates[from + i][0], left[1] += own.gates[from + i][1];
    put(i, exp2_of(left[0]), exp2_of(left[1]));
  }
}
template <int COUNT, class Put> static inline void weigh_earlier(const OwnRows& own, int from, float (&left)[2], Put put) {
#pragma unroll
  for (int i = COUNT - 1; i >= 0; --i) {
    put(i, exp2_of(left[0]), exp2_of(left[1]));
    left[0] += own.gates[from + i][0], left[1] += own.gates[from + i][1];
  }
}
