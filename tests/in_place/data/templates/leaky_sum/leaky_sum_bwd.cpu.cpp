// A sequence a work item, from its last step to its first.
#include "device/cpu.h"
using Element = ${ctype(E)};

static void scan(${parameters('scan')}, const Group& group) {
  const int64_t b = group.x;
  const float* end = static_cast<const float*>(dfinal_state_view.data) + b * dfinal_state_view.strides[0];
  const Element* dout = static_cast<const Element*>(dout_view.data) + b * dout_view.strides[0];
  Element* dx = static_cast<Element*>(dx_view.data) + b * dx_view.strides[0];
  for (int64_t c = 0; c < C; ++c) {
    float sum = end[c];
    for (int64_t t = T - 1; t >= 0; --t) {
      sum += to_float(dout[t * dout_view.strides[1] + c]);
      dx[t * dx_view.strides[1] + c] = from_float<Element>(sum);
      sum *= decay;
    }
    if (is_given(dstate_view)) static_cast<float*>(dstate_view.data)[b * dstate_view.strides[0] + c] = sum;
  }
}
