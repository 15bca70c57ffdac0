// GPU vocabulary: the exchange of a recurrent layer's states: a ring of 2 * PERIOD steps, whose places are cleared half a ring at a time.
// Needs rnn/rnn_fragments.h before it.
//
// A block that has all states of a step knows that all blocks are done with those of the step before. So at step m * PERIOD + 1 each thread
// clears what it sent into the half of the steps (m - 1) * PERIOD .. m * PERIOD - 1. Those places are looked at again from step (m + 1) *
// PERIOD on: by then every thread has called order_exchange behind its clearing, and again behind a look that came later.
#pragma once

constexpr int PERIOD = 16;

// Where in a panel: [chunk][row][feature of the chunk], a word for two features.
struct PanelPlace {
  int row, feature;  // the word's first
  explicit PanelPlace(int word) : row(word / CHUNK_WORDS % ROWS), feature(word / CHUNK_WORDS / ROWS * CHUNK + word % CHUNK_WORDS * 2) {}
  static int of(int row, int feature) { return (feature / CHUNK * ROWS + row) * CHUNK_WORDS + feature % CHUNK / 2; }
};

// A part's panels of all steps.
struct Panels {
  uint32_t* first;
  int a_step, number;  // panels of a step, and which of them
  uint32_t* at(int step) const { return first + static_cast<int64_t>(step % (2 * PERIOD) * a_step + number) * PANEL_WORDS; }
  static bool clears(int step) { return step % PERIOD == 1 && step > PERIOD; }
  static bool sees_cleared(int step) { return step % PERIOD == PERIOD / 2; }
};

static inline float* state_in(const View& view, int64_t direction, int64_t row, int64_t feature) {
  return static_cast<float*>(view.data) + direction * view.strides[0] + row * view.strides[1] + feature;
}
