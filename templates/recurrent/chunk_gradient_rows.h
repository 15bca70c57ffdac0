// GPU vocabulary of the chunked recurrence's gradient: where a head's gradients of rows go. Part of a template, which has defined
// SHARED_HEADS before, and (delta) ValueTile, COLUMNS, THREADS.
#pragma once

// Rows of a gradient of one head, in the order in which tokens are met: of elements, or (heads are added up later) of floats.
struct GradientRows {
  void* first;
  int64_t stride;

  GradientRows(const View& view, float* sums, const Tokens& tokens, int64_t head, int64_t heads, bool reverse) {
    const int64_t token = reverse ? tokens.end - 1 : tokens.first;
    if (SHARED_HEADS) {
      stride = heads * view.shape[3];
      first = sums + (tokens.row * view.shape[1] + token) * stride + head * view.shape[3];
    } else {
      stride = view.strides[1];
      first = static_cast<Element*>(view.data) + tokens.row * view.strides[0] + token * stride + head * view.strides[2];
    }
    if (reverse) stride = -stride;
  }
  void store_two(int64_t token, int64_t feature, float x, float y) const {
    if (SHARED_HEADS) store_pack(static_cast<float*>(first) + token * stride + feature, Pack<float, 2>{x, y});
    else *reinterpret_cast<uint32_t*>(static_cast<Element*>(first) + token * stride + feature) = pack_pair<Element>(x, y);
  }
};
$if delta

// With the delta rule a value's gradient is beta times that of what its token writes; tiles of some columns, in parts.
template <int PART_COUNT, class Beta>
static inline void store_value_gradients(const char* tiles, const GradientRows& to, int token, int count, int start, int values, Beta beta) {
#pragma unroll 2
  for (int i = thread_x(); i < CHUNK * COLUMNS / 2; i += THREADS) {
    const int row = i / (COLUMNS / 2), column = i % (COLUMNS / 2) * 2;
    if (token + row >= count || start + column >= values) continue;
    float x = 0, y = 0;
#pragma unroll
    for (int part = 0; part < PART_COUNT; ++part) {
      const uint32_t word = *reinterpret_cast<const uint32_t*>(tiles + part * ValueTile::BYTES + (row * ValueTile::PITCH + column) * 2);
      x += low_of(word), y += high_of(word);
    }
    to.store_two(token + row, start + column, beta(row${narrow ? ', column' : ''}) * x, beta(row${narrow ? ', column' : ''}) * y);
  }
}
$end
