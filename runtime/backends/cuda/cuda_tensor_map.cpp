// From a strided view, outermost extent first, to the driver's arguments, innermost first.
#include "backends/cuda/cuda_tensor_map.hpp"

#include <fmt/format.h>

#include <optional>

namespace ejk::cuda {
namespace {

constexpr int most_dims = 5;
constexpr std::int64_t longest_box = 256, longest_extent = std::int64_t{1} << 32, longest_stride = std::int64_t{1} << 40;
constexpr std::int64_t unit = 16;  // bytes: of addresses, strides and a box's innermost row
constexpr int no_interleave = 0, promote_to_128_bytes = 2, fill_with_zeros = 0;

// CUtensorMapDataType; elements are copied, never converted, but out-of-bounds ones are filled by type.
std::optional<int> type_code(DType type) {
  switch (type) {
    case DType::f32:
      return 7;
    case DType::f16:
      return 6;
    case DType::bf16:
      return 9;
    case DType::f64:
      return 8;
    case DType::i32:
      return 3;
    case DType::i64:
      return 5;
    case DType::i8:
    case DType::u8:
    case DType::f8_e4m3:
    case DType::boolean:
      return 0;
    default:
      return std::nullopt;
  }
}

int swizzle_code(std::int64_t bytes) { return bytes == 32 ? 1 : bytes == 64 ? 2 : bytes == 128 ? 3 : 0; }

class Encoder {
 public:
  explicit Encoder(const TensorMapRequest& request) : request_(request), rank_(static_cast<int>(request.shape.size())) {}

  Result run(const DriverFunctions& call, TensorMap* map) {
    check_rank();
    const auto type = type_code(request_.type);
    if (!type) fail("elements of its type are not supported");
    if (reinterpret_cast<std::uintptr_t>(request_.address) % unit) fail("its address must be a multiple of 16 bytes");
    for (int i = 0; i < rank_; ++i) dimension(i);
    const auto row = static_cast<std::int64_t>(box_[0]) * element_;
    if (row % unit) fail(fmt::format("a box's row is {} bytes, expected a multiple of 16", row));
    if (request_.swizzle && row > request_.swizzle) fail(fmt::format("a box's row is {} bytes, more than the swizzle", row));
    return call.encode_tiled(map, *type, static_cast<std::uint32_t>(rank_), request_.address, extents_, strides_, box_, steps_,
                             no_interleave, swizzle_code(request_.swizzle), promote_to_128_bytes, fill_with_zeros);
  }

 private:
  [[noreturn]] void fail(const std::string& sentence) const { throw DeviceError("tensor map: " + sentence); }

  void check_rank() const {
    if (rank_ < 1 || rank_ > most_dims) fail(fmt::format("a tensor of {} dims, expected 1 to {}", rank_, most_dims));
    if (request_.box.size() != request_.shape.size())
      fail(fmt::format("a box of {} extents for a tensor of {} dims", request_.box.size(), rank_));
  }

  // The i-th dim from the innermost. The stride of a dim of one element says nothing; the driver wants a legal one.
  void dimension(int i) {
    const auto from = static_cast<std::size_t>(rank_ - 1 - i);
    const auto extent = request_.shape[from], box = request_.box[from];
    const auto stride = request_.strides[from] * element_;
    if (extent < 1 || extent > longest_extent) fail(fmt::format("dim {} has {} elements, expected 1 to 2^32", from, extent));
    if (box < 1 || box > longest_box) fail(fmt::format("the box has {} elements in dim {}, expected 1 to {}", box, from, longest_box));
    if (i == 0 && extent > 1 && stride != element_) fail("the elements of its last dim must lie side by side");
    if (i > 0 && extent > 1 && (stride < 0 || stride % unit || stride >= longest_stride))
      fail(fmt::format("dim {} has a stride of {} bytes, expected a multiple of 16, from 0 up to 2^40", from, stride));
    extents_[i] = static_cast<std::uint64_t>(extent);
    if (i > 0) strides_[i - 1] = extent > 1 ? static_cast<std::uint64_t>(stride) : unit;
    box_[i] = static_cast<std::uint32_t>(box);
    steps_[i] = 1;
  }

  const TensorMapRequest& request_;
  const int rank_;
  const std::int64_t element_ = size_of(request_.type);
  std::uint64_t extents_[most_dims] = {}, strides_[most_dims] = {};
  std::uint32_t box_[most_dims] = {}, steps_[most_dims] = {};
};

}  // namespace

void encode_tensor_map(Platform& platform, const TensorMapRequest& request, void* map) {
  if (platform.count() == 0) throw DeviceError("tensor map: " + platform.why_not());
  const CurrentDevice current(platform.call, platform.device(request.device));  // the driver refuses without a context
  if (const auto result = Encoder(request).run(platform.call, static_cast<TensorMap*>(map)))
    throw DeviceError("cuTensorMapEncodeTiled: " + error_words(platform.driver, result));
}

void set_tensor_map_address(Platform& platform, int device, void* map, void* address) {
  const CurrentDevice current(platform.call, platform.device(device));
  if (const auto result = platform.call.replace_address(static_cast<TensorMap*>(map), address))
    throw DeviceError(fmt::format("cuTensorMapReplaceAddress to {}: {}", address, error_words(platform.driver, result)));
}

}  // namespace ejk::cuda
