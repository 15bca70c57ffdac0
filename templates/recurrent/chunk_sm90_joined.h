// Hopper vocabulary of the chunked recurrence: the entry that makes the states after segments of a sequence of those of each alone.
#pragma once

// Block number: 1024 numbers of a state: states after segments, those before them included.
KERNEL(256, 1) join_segments(${parameters('join_segments')}) {
  constexpr int NUMBERS = WARPGROUP * KEYS;
  const int row = block_x() / (NUMBERS / 1024), count = static_cast<int>(segments) - 1;
  const float* logs = segment_logs + static_cast<int64_t>(row) * count * HEADS + block_x() % (NUMBERS / 1024) * HEADS / (NUMBERS / 1024);
  float* at = segment_states + static_cast<int64_t>(row) * count * NUMBERS + block_x() % (NUMBERS / 1024) * 1024 + thread_x() * 4;
  let_next_launch_go();
  wait_for_previous_launch();
  Pack<float, 4> state = load_pack<4>(at);
#pragma unroll 4
  for (int i = 1; i < count; ++i) {
    const SplitExp left = split_exp(logs[i * HEADS] * LN_2);
    Pack<float, 4> own = load_pack<4>(at + static_cast<int64_t>(i) * NUMBERS);
#pragma unroll
    for (int j = 0; j < 4; ++j) own.at[j] = state.at[j] * left.base + (state.at[j] * left.rest + own.at[j]);
    store_pack(at + static_cast<int64_t>(i) * NUMBERS, own);
    state = own;
  }
}
