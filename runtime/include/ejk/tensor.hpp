// Element types, strided tensor views (laid out as DLPack means them) and tensors that own host memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "ejk/export.hpp"

namespace ejk {

// f8_e4m3: 4 exponent and 3 mantissa bits, no infinity, 0x7f and 0xff are NaN, largest 448 (also called e4m3fn).
enum class DType : std::uint8_t { f32, f16, bf16, f64, i8, i32, i64, u8, boolean, f8_e4m3 };

EJK_API std::string_view name_of(DType type);                     // "f32", "bf16", "bool"
EJK_API std::optional<DType> dtype_named(std::string_view name);  // inverse of name_of
EJK_API std::int64_t size_of(DType type);                         // bytes an element
EJK_API bool is_floating(DType type);
EJK_API std::span<const DType> all_dtypes();  // in the enum's order

// DLPack's device numbers.
enum class DeviceType : std::int32_t { cpu = 1, cuda = 2, rocm = 10, extension = 12 };
struct Device {
  DeviceType type = DeviceType::cpu;
  std::int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr int max_rank = 8;

// A view of memory somebody else owns. Shape and strides are in elements, outermost first; stride 0 broadcasts.
// A default-made view means "not given".
struct EJK_API TensorView {
  void* data = nullptr;
  DType type = DType::f32;
  std::int8_t rank = -1;  // -1: not given
  Device device;
  std::int64_t shape[max_rank] = {};
  std::int64_t strides[max_rank] = {};

  TensorView() = default;
  TensorView(void* data, DType type, std::span<const std::int64_t> shape);  // contiguous, row-major
  TensorView(void* data, DType type, std::initializer_list<std::int64_t> shape);
  TensorView(void* data, DType type, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);
  bool given() const { return rank >= 0; }
  std::int64_t elements() const;
};

// Host memory, 64-byte aligned, contiguous, with its view. Throws std::bad_alloc where there is not so much.
class EJK_API Tensor {
 public:
  Tensor() = default;
  Tensor(DType type, std::span<const std::int64_t> shape);  // not initialised
  Tensor(DType type, std::initializer_list<std::int64_t> shape);
  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  template <class T>
  T* data() const {
    return static_cast<T*>(view_.data);
  }

 private:
  std::shared_ptr<std::byte> memory_;
  TensorView view_;
};

}  // namespace ejk
