// A sequence a block, a channel a thread: its state is read once, and written once all steps are done.
#include "device/gpu.h"
using Element = ${ctype(E)};

KERNEL(32, 1) scan(${parameters('scan')}) {
  const int64_t b = block_x();
  if (b >= B) return;
  float* state = static_cast<float*>(state_view.data) + b * state_view.strides[0];
  const Element* x = static_cast<const Element*>(x_view.data) + b * x_view.strides[0];
  Element* out = static_cast<Element*>(out_view.data) + b * out_view.strides[0];
  for (int64_t c = thread_x(); c < C; c += 32) {
    float sum = state[c];
    for (int64_t t = 0; t < T; ++t) {
      sum = decay * sum + to_float(x[t * x_view.strides[1] + c]);
      out[t * out_view.strides[1] + c] = from_float<Element>(sum);
    }
    state[c] = sum;
  }
}
