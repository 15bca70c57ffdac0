// Hopper vocabulary of the chunked recurrence's gradient: rows of packed sequences, which are copied in boxes of 64 tokens. Where a sequence ends
// within a box, what follows in memory is the next one's, or nothing's. So such boxes, the ends, have copies with zeros there; and gradients of their
// rows go to memory by way of such a copy. REVERSED: all boxes are copied so, in the order in which tokens are met. Part of a template, which has
// defined KEYS before, features of a row of the copies; and TOGETHER: sequences have so many chunks each, or twice as many, and so on.
#pragma once

constexpr bool REVERSED = ${reversed};
constexpr int TOGETHER_TOKENS = TOGETHER * CHUNK;

// A sequence's tokens in its row of the batch, and its chunks among those of all, of which a sequence may have more than it needs.
struct PackedSequence {
  int row, first, count, chunks, before;
  PackedSequence(const int32_t* cum_seqlens, int sequence, int64_t length)
      : row(REVERSED && !cum_seqlens ? sequence : 0), first(REVERSED && !cum_seqlens ? 0 : cum_seqlens[sequence]),
        count(REVERSED && !cum_seqlens ? static_cast<int>(length) : cum_seqlens[sequence + 1] - first),
        chunks((count + TOGETHER_TOKENS - 1) / TOGETHER_TOKENS * TOGETHER),
        before(REVERSED && !cum_seqlens ? sequence * chunks : (first / TOGETHER_TOKENS + sequence) * TOGETHER) {}
};
static inline int packed_sequence_of(const int32_t* cum_seqlens, int64_t sequences, int chunk, int64_t length) {
  const int group = chunk / TOGETHER;
  if (REVERSED && !cum_seqlens) return group / static_cast<int>((length + TOGETHER_TOKENS - 1) / TOGETHER_TOKENS);
  int low = 0, high = static_cast<int>(sequences);  // the one looked for is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (cum_seqlens[middle] / TOGETHER_TOKENS + middle <= group) low = middle;
    else high = middle;
  }
  return low;
}
// A chunk of all. number: among its sequence's.
struct PackedChunk {
  int sequence, number;
  PackedSequence of;
  PackedChunk(const int32_t* cum_seqlens, int64_t sequences, int chunk, int64_t length)
      : sequence(packed_sequence_of(cum_seqlens, sequences, chunk, length)), number(chunk), of(cum_seqlens, sequence, length) {
    number -= of.before;
  }
  bool there() const { return number * CHUNK < of.count; }
};

// A box in a tensor or among the copies.
struct PackedBox {
  const TensorMap& map;
  int at[4];
};

// Rows of a sequence. number: its first copy's among those of all tensors that are kept together.
struct PackedRows {
  const TensorMap &rows, &copies;
  int first, count, number;

  // boxes: those of a tensor that may have copies.
  static PackedRows of(const TensorMap& rows, const TensorMap& copies, int tensor, int64_t boxes, int sequence, int first, int count, int before) {
    return {rows, copies, first, count, tensor * static_cast<int>(boxes) + (REVERSED ? before : sequence)};
  }
  // Of the 64 tokens from the sequence's token number `token` on; past its last token there is a box of zeros, which nothing is stored to.
  PackedBox box(int feature, int head, int token) const {
    const int outside = 1 << 30;
    if (REVERSED) return {copies, {feature, head, 0, token < count ? number + token / CHUNK : outside}};
    const bool whole = token + CHUNK <= count;
    return {whole ? rows : copies, {feature, head, whole ? first + token : 0, whole ? 0 : token < count ? number : outside}};
  }
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

// Block number: a row of a box that has a copy, of all tensors.
struct CopiedRow {
  int box, row;
  int64_t sequence, token;  // of the batch; -1: there is none
  bool copied;              // the box is
  CopiedRow(const int32_t* cum_seqlens, int64_t sequences, int64_t length)
      : box(static_cast<int>(block_x()) / CHUNK), row(static_cast<int>(block_x()) % CHUNK), sequence(0), token(-1), copied(false) {
    if (REVERSED) {
      const PackedChunk chunk(cum_seqlens, sequences, box, length);
      const int met = chunk.number * CHUNK + row;
      copied = chunk.there(), sequence = chunk.of.row;
      if (met < chunk.of.count) token = chunk.of.first + chunk.of.count - 1 - met;
    } else {
      const PackedSequence of(cum_seqlens, box, length);
      const int end = of.count % CHUNK;
      copied = end > 0;
      if (row < end) token = of.first + of.count - end + row;
    }
  }
  // Calls use(head, feature, at) for each 8 features; at: their place in the copy of tensor number `tensor`.
  template <class Use> void each_pack(Element* copies, int tensor, int64_t boxes, int64_t heads, Use use) const {
    Element* to = copies + ((tensor * boxes + box) * CHUNK + row) * (heads * KEYS);
    for (int i = thread_x() * 8; i < static_cast<int>(heads) * KEYS; i += 128 * 8) use(i / KEYS, i % KEYS, reinterpret_cast<uint32_t*>(to + i));
  }
  uint32_t* at(const View& view, int head, int feature) const {
    return reinterpret_cast<uint32_t*>(static_cast<Element*>(view.data) + sequence * view.strides[0] + token * view.strides[1] + head * view.strides[2] + feature);
  }
};
static inline void take_row(const CopiedRow& row, const View& from, void* copies, int tensor, int64_t boxes, int64_t heads) {
  if (!row.copied) return;
  row.each_pack(static_cast<Element*>(copies), tensor, boxes, heads, [&](int head, int feature, uint32_t* to) {
    const bool there = row.token >= 0 && feature < from.shape[3];
    store_pack(to, there ? load_pack<4>(static_cast<const uint32_t*>(row.at(from, head, feature))) : Pack<uint32_t, 4>{});
  });
}
static inline void put_row(const CopiedRow& row, const View& to, void* copies, int tensor, int64_t boxes, int64_t heads) {
  if (row.token < 0) return;
  row.each_pack(static_cast<Element*>(copies), tensor, boxes, heads, [&](int head, int feature, const uint32_t* from) {
    if (feature < to.shape[3]) store_pack(row.at(to, head, feature), load_pack<4>(from));
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
