#include "helpers/host_tensors.hpp"

namespace ejk::helpers {

void check(const TensorView& view, const char* name, DType type, int least_rank, int most_rank) {
  if (!view.given()) refuse(fmt::format("{} is not given", name));
  if (view.device.type != DeviceType::cpu) refuse(fmt::format("{} is on a device; expected host memory", name));
  if (view.type != type) refuse(fmt::format("{} has type {}, expected {}", name, name_of(view.type), name_of(type)));
  if (view.rank < least_rank || view.rank > most_rank) {
    const std::string wanted = least_rank == most_rank ? fmt::format("{}", least_rank) : fmt::format("{} to {}", least_rank, most_rank);
    refuse(fmt::format("{} has {} dimensions, expected {}", name, static_cast<int>(view.rank), wanted));
  }
  for (int d = 0; d < view.rank; ++d)
    if (view.shape[d] < 0) refuse(fmt::format("{} has {} in dimension {}, expected 0 or more", name, view.shape[d], d));
}

void check_size(std::int64_t value, const char* name, std::int64_t least) {
  if (value < least || value > 0x7fffffff) refuse(fmt::format("{} is {}; expected {} to 2^31 - 1", name, value, least));
}

std::vector<std::int32_t> offsets_of(const TensorView& cum_seqlens, const char* name) {
  check(cum_seqlens, name, DType::i32, 1, 1);
  auto offsets = elements<std::int32_t>(cum_seqlens);
  if (offsets.empty()) refuse(fmt::format("{} is empty; expected N + 1 offsets, [0] for no sequence", name));
  if (offsets[0] != 0) refuse(fmt::format("{} begins with {}; expected 0", name, offsets[0]));
  for (std::size_t i = 1; i < offsets.size(); ++i)
    if (offsets[i] < offsets[i - 1]) refuse(fmt::format("{} falls from {} to {} at [{}]", name, offsets[i - 1], offsets[i], i));
  return offsets;
}

}  // namespace ejk::helpers
