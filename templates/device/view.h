// Vocabulary of every backend: strided tensors. Needs the integer types of a backend's own header before it.
#pragma once

// A strided tensor as the caller gave it: `view(x)` in a launch's args.
struct View {
  void* data;
  int64_t rank;
  int64_t shape[8];
  int64_t strides[8];  // elements
};

static inline bool is_given(const View& view) { return view.rank >= 0; }
