// Hopper vocabulary of the chunked recurrence's gradient: rows of packed sequences, which are copied in boxes of 64 tokens. Where a sequence ends
// within a box, what follows in memory is the next one's, or nothing's. So such boxes, the ends, have copies with zeros there; and gradients of their
// rows go to memory by way of such a copy. Part of a template, which has defined KEYS before: features of a row of the copies.
#pragma once

// A box in a tensor or among the ends.
struct PackedBox {
  const TensorMap& map;
  int at[4];
};

// Rows of a sequence. number: its end's among those of all tensors that are kept together.
struct PackedRows {
  const TensorMap &rows, &ends;
  int first, count, number;

  // Of the 64 tokens from the sequence's token number `token` on; past its last token there is a box of zeros, which nothing is stored to.
  PackedBox box(int feature, int head, int token) const {
    const bool whole = token + CHUNK <= count;
    const int outside = 1 << 30;
    return {whole ? rows : ends, {feature, head, whole ? first + token : 0, whole ? 0 : token < count ? number : outside}};
  }
};
// Two chunks, of those that packed sequences may have: a sequence's begin where no others' are. number: among its sequence's.
struct PackedPair {
  int sequence, number, first, count;  // tokens of the sequence: the first, all
  PackedPair(const int32_t* cum_seqlens, int64_t sequences, int pair) : sequence(0), number(0), first(0), count(0) {
    constexpr int TOKENS = 2 * CHUNK;
    int end = static_cast<int>(sequences);  // the sequence looked for is in [sequence, end)
    while (end - sequence > 1) {
      const int middle = (sequence + end) / 2;
      if (cum_seqlens[middle] / TOKENS + middle <= pair) sequence = middle;
      else end = middle;
    }
    first = cum_seqlens[sequence], count = cum_seqlens[sequence + 1] - first, number = pair - (first / TOKENS + sequence);
  }
  bool there() const { return number * 2 * CHUNK < count; }
};

// at: feature, head, token of the sequence; and the sequence, which `from` knows.
static inline void load_tile(uint32_t to, const PackedRows& from, uint32_t barrier, const int (&at)[4], Keep keep = Keep::normal) {
  const PackedBox box = from.box(at[0], at[1], at[2]);
  load_tile(to, box.map, barrier, box.at, keep);
}
static inline void store_tile(const PackedRows& to, const int (&at)[4], uint32_t from) {
  const PackedBox box = to.box(at[0], at[1], at[2]);
  store_tile(box.map, box.at, from);
}

// Block number: a row of a sequence's end, of all tensors.
struct EndRow {
  int sequence, row, first, count;  // first: token of the sequence; count: rows that there are; 0: it has no end
  EndRow(const int32_t* cum_seqlens)
      : sequence(static_cast<int>(block_x()) / CHUNK), row(static_cast<int>(block_x()) % CHUNK), first(cum_seqlens[sequence + 1]), count((first - cum_seqlens[sequence]) % CHUNK) {
    first -= count;
  }
  // Calls use(head, feature, at) for each 8 features; at: their place in the copy of tensor number `tensor`.
  template <class Use> void each_pack(Element* ends, int tensor, int64_t sequences, int64_t heads, Use use) const {
    Element* to = ends + ((tensor * sequences + sequence) * CHUNK + row) * (heads * KEYS);
    for (int i = thread_x() * 8; i < static_cast<int>(heads) * KEYS; i += 128 * 8) use(i / KEYS, i % KEYS, reinterpret_cast<uint32_t*>(to + i));
  }
};
static inline Element* element_at(const View& view, int64_t token, int head, int feature) {
  return static_cast<Element*>(view.data) + token * view.strides[1] + head * view.strides[2] + feature;
}
static inline void take_end(const EndRow& end, const View& from, Element* ends, int tensor, int64_t sequences, int64_t heads) {
  if (end.count == 0) return;
  end.each_pack(ends, tensor, sequences, heads, [&](int head, int feature, uint32_t* to) {
    const bool there = end.row < end.count && feature < from.shape[3];
    store_pack(to, there ? load_pack<4>(reinterpret_cast<const uint32_t*>(element_at(from, end.first + end.row, head, feature))) : Pack<uint32_t, 4>{});
  });
}
static inline void put_end(const EndRow& end, const View& to, Element* ends, int tensor, int64_t sequences, int64_t heads) {
  if (end.row >= end.count) return;
  end.each_pack(ends, tensor, sequences, heads, [&](int head, int feature, const uint32_t* from) {
    if (feature < to.shape[3]) store_pack(reinterpret_cast<uint32_t*>(element_at(to, end.first + end.row, head, feature)), load_pack<4>(from));
  });
}

// A gradient of tokens of no sequence is 0. `block` of AFTER_BLOCKS: each has every so manieth of them.
constexpr int AFTER_BLOCKS = 64;
static inline void clear_after(const View& view, int64_t type, int64_t first, int64_t length, int64_t heads, int block) {
  if (!is_given(view)) return;
  const int64_t features = view.rank > 3 ? view.shape[3] : 1;
  for (int64_t token = first + block; token < length; token += AFTER_BLOCKS)
    for (int64_t i = thread_x(); i < heads * features; i += 128) GradientRow(view, type, 0, token, i / features).store(i % features, 0);
}
constexpr int ELEMENT_TYPE = 2;  // bf16
