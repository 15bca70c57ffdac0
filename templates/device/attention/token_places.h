// CPU vocabulary of decoding: where keys and values lie that are views [batch, tokens, kv heads, features]. Part of a template, which has defined
// before: Element, and Places of BLOCK keys (device/attention/decode_rows.h).
#pragma once

// Some kv heads of a row of the batch.
struct Cache {
  const Element *keys, *values;
  int64_t key_token, key_head, value_token, value_head;

  // The keys [begin, end) of a head.
  void find(Places& places, int64_t head, int64_t begin, int64_t end) const {
    places.count = end - begin < BLOCK ? end - begin : BLOCK;
    for (int64_t i = 0; i < places.count; ++i) {
      places.key[i] = keys + head * key_head + (begin + i) * key_token;
      places.value[i] = values + head * value_head + (begin + i) * value_token;
    }
    places.repeat_last();
  }

  // Of the keys [begin, end) of all heads, in the order of memory, those that come at number `first`.
  void find_ahead(Places& places, int64_t heads, int64_t first, int64_t begin, int64_t end) const {
    const int64_t all = (end - begin) * heads;
    places.count = first >= all ? 0 : all - first < BLOCK ? all - first : BLOCK;
    int64_t key = begin + first / heads, head = first % heads;
    for (int64_t i = 0; i < places.count; ++i) {
      places.key[i] = keys + head * key_head + key * key_token;
      places.value[i] = values + head * value_head + key * value_token;
      if (++head == heads) head = 0, ++key;
    }
  }
};
