// A caller's mask as [B, H, Sq, Sk], of which one row or head may serve all.
#pragma once
#include <string>

#include "helpers/host_tensors.hpp"

namespace ejk::helpers {

class DenseMask {
 public:
  // [B, H, Sq, Sk], [B, Sq, Sk] or [Sq, Sk] of bool.
  DenseMask(const TensorView& view, const char* name) : view_(view) {
    check(view, name, DType::boolean, 2, 4);
    for (int d = 0; d < 4; ++d) {
      const int from = d >= 2 ? view.rank - 4 + d : d == 0 && view.rank > 2 ? 0 : d == 1 && view.rank == 4 ? 1 : -1;
      shape_[d] = from < 0 ? 1 : view.shape[from];
      strides_[d] = from < 0 || shape_[d] == 1 ? 0 : view.strides[from];
    }
  }
  std::int64_t batch() const { return shape_[0]; }
  std::int64_t heads() const { return shape_[1]; }
  std::int64_t q_len() const { return shape_[2]; }
  std::int64_t kv_len() const { return shape_[3]; }
  std::string sizes() const { return fmt::format("[{}, {}, {}, {}]", shape_[0], shape_[1], shape_[2], shape_[3]); }
  bool at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return static_cast<const std::uint8_t*>(view_.data)[b * strides_[0] + h * strides_[1] + i * strides_[2] + j * strides_[3]] != 0;
  }

 private:
  TensorView view_;
  std::int64_t shape_[4], strides_[4];
};

}  // namespace ejk::helpers
