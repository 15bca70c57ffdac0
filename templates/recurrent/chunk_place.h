// GPU vocabulary of the chunked recurrence, all chunks at once: which chunk, or which part of a sequence, a block has, and what is needed of
// a chunk's gates and rows' norms. Part of a template, which has defined WAYS before.
#pragma once

using StateKeyRows = ChunkRows<Element, KEYS, STATE_THREADS>;
using StateValueRows = ChunkRows<Element, STATE_COLUMNS, STATE_THREADS>;
using StateValueTile = StateValueRows::Place;

// Divisions are of 32 bits: those of 64 are slow.
static inline uint32_t divided(int64_t x, int64_t by) { return static_cast<uint32_t>(x) / static_cast<uint32_t>(by); }

// Block number: a chunk of a head.
struct ChunkPlace {
  uint32_t chunk, head;
  int64_t sequence;
  Tokens tokens;
  int count, token;  // tokens of the sequence; the chunk's first. token >= count: there is no such chunk

  ChunkPlace(const int32_t* cum_seqlens, int64_t sequences, int64_t heads, int64_t length)
      : chunk(divided(block_x(), heads)),
        head(static_cast<uint32_t>(block_x()) - chunk * static_cast<uint32_t>(heads)),
        sequence(sequence_of_chunk(cum_seqlens, sequences, chunk, length)),
        tokens(cum_seqlens, sequences, sequence, length),
        count(sequence < sequences ? static_cast<int>(tokens.end - tokens.first) : 0),
        token(static_cast<int>(chunk - chunks_before(cum_seqlens, tokens, sequence, length)) * CHUNK) {}
};

// Block number: of two ways number % 2 (1: gradients, from the last chunk to the first), slice of a head of a sequence.
struct StateItem {
  uint32_t sequence, head;
  int start;  // its first column
  bool back;

  StateItem(int64_t slices, int64_t heads) : back(WAYS == 2 && block_x() % 2 == 1) {
    const uint32_t item = divided(block_x(), WAYS), row = divided(item, slices);
    sequence = divided(row, heads), head = row - sequence * static_cast<uint32_t>(heads);
    start = static_cast<int>(item - row * static_cast<uint32_t>(slices)) * STATE_COLUMNS;
  }
};

struct alignas(16) ChunkNumbers {
  Gates gates;
$if narrow and delta
  float inverse_unit, pair_unit;  // one over the units of the delta rule's inverse and of pairs' weights
$end
$if normed
  Norms norms;
  float query_norm(int t) const { return norms.q[t]; }
  float key_norm(int t) const { return norms.k[t]; }
$elif dual  // ssd: steps are factors of keys
  float query_norm(int) const { return 1; }
  float key_norm(int t) const { return gates.beta[t]; }
$else
  float query_norm(int) const { return 1; }
  float key_norm(int) const { return 1; }
$end
};
constexpr int NUMBERS_BYTES = static_cast<int>(sizeof(ChunkNumbers));
static_assert(NUMBERS_BYTES == 4 * ${numbers}, "the spec has another size");

// Starts copying a chunk's numbers to shared memory.
template <int COPIERS> static inline void copy_numbers_async(SharedPointer to, const ChunkNumbers* from) {
#pragma unroll 1
  for (int i = thread_x(); i < NUMBERS_BYTES / 16; i += COPIERS)
    copy_async_16(to + 16 * i, reinterpret_cast<const char*>(from) + 16 * i, true);
}
