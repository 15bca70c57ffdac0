// GPU vocabulary of decoding on matrix instructions of a wave: keys as operands straight from memory, values turned in shared memory. Part of a template, which has
// defined before: Element, Cached, D, D16, STEP; and Pages, which says where the keys or values of one sequence and kv head lie.
#pragma once

// Four numbers of a cache as Elements.
static inline Pack<uint32_t, 2> four_of(const Cached* at) {
  if constexpr (sizeof(Cached) == 2) return load_pack<2>(reinterpret_cast<const uint32_t*>(at));
  const Pack<Cached, 4> x = load_pack<4>(at);
  return {{pack_pair<Element>(to_float(x.at[0]), to_float(x.at[1])), pack_pair<Element>(to_float(x.at[2]), to_float(x.at[3]))}};
}

// Dot products of 16 keys, of which this lane has the row `key`.
template <class Queries> static inline Sums multiply_keys(const Cached* key, const Queries& queries) {
  Sums dots = {};
#pragma unroll
  for (int slice = 0; slice < D16 / 16; ++slice) {
    if (slice % 2 == 0) part();
    Operand a = {};
#pragma unroll
    for (int i = 0; i < OPERAND_WORDS; i += 2) {
      const int column = 16 * slice + first_k() + 2 * i;
      if (D != D16 && column >= D) continue;
      const Pack<uint32_t, 2> two = four_of(key + column);
      a.words[i] = two.at[0], a.words[i + 1] = two.at[1];
    }
    multiply<Element>(dots, a, queries.of(slice));
  }
  return dots;
}

// 16 values from `first` on, [feature][key], zeros where a key is hidden.
static inline void copy_values(SharedPointer to, const Pages& values, const VisibleKeys<STEP>& keys, int first) {
#pragma unroll 1
  for (int i = wave_lane(); i < 16 * (D16 / 4); i += WAVE) {
    const int key = i % 16, feature = i / 16 * 4;
    Pack<uint32_t, 2> two = {};
    if (keys.has(first + key) && (D == D16 || feature < D)) two = four_of(values.row(first + key) + feature);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      *shared_at<uint16_t>(to + (feature + j) * TRANSPOSED_PITCH<16> + key * 2) = static_cast<uint16_t>(two.at[j / 2] >> (j % 2 * 16));
  }
}
