// The packed call: tensors and attributes by position, as the typed headers made from the specs (ejk/<kernel>.hpp) use it.
// Half a microsecond of host time once a plan exists: no allocation, no lock, no string.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "ejk/export.hpp"
#include "ejk/result.hpp"
#include "ejk/tensor.hpp"

namespace ejk {

// The caller's stream or queue; null: the device's default. The CPU works on the calling thread and returns when the work is done.
struct Stream {
  void* handle = nullptr;
};

struct AttributeValue {
  enum class Kind : std::uint8_t { absent, boolean, integer, floating, string };
  Kind kind = Kind::absent;
  union {
    bool boolean;
    std::int64_t integer = 0;
    double floating;
    const char* string;  // must outlive the call
  };

  template <class T>
  static AttributeValue of(T value) {
    AttributeValue result;
    if constexpr (std::is_same_v<T, bool>) {
      result.kind = Kind::boolean;
      result.boolean = value;
    } else if constexpr (std::is_integral_v<T>) {
      result.kind = Kind::integer;
      result.integer = value;
    } else if constexpr (std::is_floating_point_v<T>) {
      result.kind = Kind::floating;
      result.floating = value;
    } else {
      result.kind = Kind::string;
      result.string = value;
    }
    return result;
  }
  template <class T>
  static AttributeValue of(const std::optional<T>& value) {
    return value ? of(*value) : AttributeValue{};
  }
};

// The caller's scratch for one call, on its device and aligned to 256 bytes, at least what choose() says; without memory ejk takes its own.
struct Workspace {
  void* memory = nullptr;
  std::int64_t bytes = 0;
};

class KernelHandle;

// nullptr: no such kernel in any store; call() with nullptr says so and lists the kernels there are. Keep the handle: it never dies.
EJK_API const KernelHandle* find_kernel(const char* name) noexcept;

// tensors: the spec's inputs, then its outputs, in the spec's order; nullptr or a view that is not given() = absent.
// attributes: in the spec's order. config: an override as JSON, {"variant": ..., "arch": ..., "block_m": ...}, all optional; or nullptr.
// Nothing is written if an error is returned before the launch. All tensors lie on one device. Rules about data (offsets that must not
// decrease) are judged where it lies on the host; on another device it is trusted.
EJK_API Status call(const KernelHandle* kernel, std::span<const TensorView* const> tensors, std::span<const AttributeValue> attributes,
                    Stream stream = {}, const char* config = nullptr, Workspace workspace = {}) noexcept;

// All that the first such call does before it launches: validates, chooses, compiles, loads. Data is not read on a device.
EJK_API Status make_ready(const KernelHandle* kernel, std::span<const TensorView* const> tensors,
                          std::span<const AttributeValue> attributes, Stream stream = {}, const char* config = nullptr) noexcept;

// The same for tensors on the host, allocating each required output that is absent, and each optional one whose bit is set in
// wanted_outputs (bit i: the spec's i-th output). Tensors on a device: an absent output is an error. Returns the spec's outputs in order;
// those given or not wanted are empty tensors.
EJK_API Result<std::vector<Tensor>> call_allocating(const KernelHandle* kernel, std::span<const TensorView* const> tensors,
                                                    std::uint64_t wanted_outputs, std::span<const AttributeValue> attributes,
                                                    Stream stream = {}, const char* config = nullptr) noexcept;

}  // namespace ejk
