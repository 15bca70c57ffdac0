// A sequence a work item: its state is read once, and written once all steps are done.
#include "device/cpu.h"
using Element = ${ctype(E)};

static void scan(${parameters('scan')}, const Group& group) {
  const int64_t b = group.x;
  float* state = static_cast<float*>(state_view.data) + b * state_view.strides[0];
  const Element* x = static_cast<const Element*>(x_view.data) + b * x_view.strides[0];
  Element* out = static_cast<Element*>(out_view.data) + b * out_view.strides[0];
  for (int64_t c = 0; c < C; ++c) {
    float sum = state[c];
    for (int64_t t = 0; t < T; ++t) {
      sum = decay * sum + to_float(x[t * x_view.strides[1] + c]);
      out[t * out_view.strides[1] + c] = from_float<Element>(sum);
    }
    state[c] = sum;
  }
}
