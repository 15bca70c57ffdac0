// GPU vocabulary: the exchange of a recurrent layer's states: a ring of RING steps, whose places are cleared when they are read. Needs
// rnn/rnn_fragments.h, or what stands for it, before it.
//
// A block that has all states of a step knows that all blocks are done with those of the step before. So at step s each thread clears what
// it sent for step s - 2. It calls order_exchange at every PERIOD-th step. A place that was cleared at step s is looked at again at step s +
// RING - 2: by then the thread that cleared it has called order_exchange, at s + PERIOD - 1 at the latest, and who looks has called it,
// too, behind a look at what that thread sent later, at s + 2 PERIOD - 1 at the latest.
#pragma once

constexpr int RING = 32, PERIOD = 8;

// Where in a panel: [chunk][row][feature of the chunk], a word for WORD_FEATURES of them.
struct PanelPlace {
  int row, feature;  // the word's first
  explicit PanelPlace(int word) : row(word / CHUNK_WORDS % ROWS), feature(word / CHUNK_WORDS / ROWS * CHUNK + word % CHUNK_WORDS * WORD_FEATURES) {}
  static int of(int row, int feature) { return (feature / CHUNK * ROWS + row) * CHUNK_WORDS + feature % CHUNK / WORD_FEATURES; }
};

// The word for features that begin with these two; f32 has the first alone.
template <class E = Element> static inline uint32_t word_of(float first, float second) {
  if constexpr (sizeof(E) == 2)
    return pack_pair<E>(first, second);
  else
    return __builtin_bit_cast(uint32_t, first);
}
// What a unit sends to a panel, at the place of its first feature, and clears there.
static inline void send_unit(uint32_t* to, float first, float second) {
  send(to, sendable(word_of(first, second)));
  if constexpr (WORD_FEATURES == 1) send(to + PanelPlace::of(0, 1), sendable(word_of(second, second)));
}
static inline void clear_unit(uint32_t* at) {
  clear(at);
  if constexpr (WORD_FEATURES == 1) clear(at + PanelPlace::of(0, 1));
}

// A part's panels of all steps.
struct Panels {
  uint32_t* first;
  int a_step, number;  // panels of a step, and which of them
  uint32_t* at(int step) const { return first + static_cast<int64_t>(step % RING * a_step + number) * PANEL_WORDS; }
  static bool clears(int step) { return step >= 2; }
  static int cleared_by(int step) { return step - 2; }
  static bool orders(int step) { return step % PERIOD == PERIOD - 1; }
};

#include "rnn/rnn_state_in.h"
