// CPU vocabulary of mla_decode: where the keys of a tile lie. Part of a template, which has defined before: Cached, R, BLOCK; and
// LatentKeys.
#pragma once

// Where the next keys of a range lie, BLOCK at most; entries of a list that are none are left out.
struct KeyPlaces {
  LatentRow at[BLOCK];
  int64_t key[BLOCK];  // their numbers
  int64_t count, end;  // the number after the last that was looked at

  void find(const LatentKeys& keys, int64_t begin, int64_t last) {
    count = 0;
    for (end = begin; end < last && count < BLOCK; ++end) {
      at[count] = keys[end], key[count] = end;
      if (at[count].latent) ++count;
    }
  }

  // Asks for the bytes that KEYS keys from `first` on have from feature d on, a line each.
  template <int KEYS>
  inline __attribute__((always_inline)) void ask_for(int64_t first, int64_t d) const {
    constexpr int64_t LINE = 64 / static_cast<int64_t>(sizeof(Cached));
    if (d % LINE != 0 || first + KEYS > count) return;
#pragma GCC unroll 64
    for (int t = 0; t < KEYS; ++t) {
      const LatentRow& row = at[first + t];
      __builtin_prefetch(d < R ? row.latent + d : row.rope + (d - R), 0, 2);
    }
  }
};
