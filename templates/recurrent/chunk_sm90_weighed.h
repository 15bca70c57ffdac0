// Hopper vocabulary of the chunked recurrence with gates of keys: which rows a block has, and how a state decays. After chunk_prepare.h.
#pragma once

// Block number: slice % slices of a head of a sequence.
struct Row {
  int sequence, head, value_head, column, count;  // column: the first of 128

  Row(const View& values, int64_t heads, int64_t slices) : count(static_cast<int>(values.shape[1])) {
    const int item = static_cast<int>(static_cast<uint32_t>(block_x()) / static_cast<uint32_t>(slices)), all_heads = static_cast<int>(heads);
    column = (block_x() - item * static_cast<int>(slices)) * 128;
    sequence = item / all_heads, head = item - sequence * all_heads;
    value_head = head / (all_heads / static_cast<int>(values.shape[2]));
  }
  int chunks() const { return (count + CHUNK - 1) / CHUNK; }
};

// state = decay state + taken, with a decay for each key.
static inline void add_to_decayed(Column& state, int box, const Columns& taken, const float* decays) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const Pack<float, 2> decay = load_pack<2>(decays + 64 * box + 8 * j + lane() % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& x = state[32 * box + 4 * j + i];
      x = x * base_of(decay.at[i % 2]) + (x * decay.at[i % 2] + taken[4 * j + i]);
    }
  }
}
