// CPU vocabulary of decoding: where keys and values lie that are in pages. Part of a template, which has defined before: Cached, and Places of BLOCK
// keys (device/attention/decode_rows.h).
#pragma once

// Strides in elements.
struct PageStrides {
  int64_t page, token, head;
};

// Some kv heads of a sequence; `table`: its pages, of `size` tokens each.
struct PagedCache {
  const Cached *keys, *values;  // of the first of the kv heads
  const int32_t* table;
  PageStrides key, value;
  int64_t size;

  // The keys [begin, end) of a head.
  void find(Places& places, int64_t head, int64_t begin, int64_t end) const {
    places.count = end - begin < BLOCK ? end - begin : BLOCK;
    int64_t i = 0, page = begin / size, slot = begin % size;
    for (; i < places.count; ++page, slot = 0) {
      const Cached* k = keys + table[page] * key.page + slot * key.token + head * key.head;
      const Cached* v = values + table[page] * value.page + slot * value.token + head * value.head;
      for (; slot < size && i < places.count; ++slot, ++i, k += key.token, v += value.token) places.key[i] = k, places.value[i] = v;
    }
    places.repeat_last();
  }

  // Of the keys [begin, end) of all heads, token by token, those that come at number `first`.
  void find_ahead(Places& places, int64_t heads, int64_t first, int64_t begin, int64_t end) const {
    const int64_t all = (end - begin) * heads;
    places.count = first >= all ? 0 : all - first < BLOCK ? all - first : BLOCK;
    int64_t i = 0, head = first % heads;
    int64_t page = (begin + first / heads) / size, slot = (begin + first / heads) % size;
    for (; i < places.count; ++page, slot = 0) {
      const Cached *k = keys + table[page] * key.page, *v = values + table[page] * value.page;
      for (; slot < size && i < places.count; ++slot, head = 0)
        for (; head < heads && i < places.count; ++head, ++i)
          places.key[i] = k + slot * key.token + head * key.head, places.value[i] = v + slot * value.token + head * value.head;
    }
  }
};
