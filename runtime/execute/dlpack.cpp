// DLPack's element types and devices.
#include "execute/dlpack.hpp"

#include <fmt/format.h>

#include "spec/fault.hpp"

namespace ejk {
namespace {

enum Code : std::uint8_t { code_int = 0, code_uint = 1, code_float = 2, code_bfloat = 4, code_bool = 6, code_float8_e4m3fn = 10 };

struct Row {
  DType type;
  DLType dlpack;
};
constexpr Row table[] = {{DType::f32, {code_float, 32}},   {DType::f16, {code_float, 16}},
                         {DType::bf16, {code_bfloat, 16}}, {DType::f64, {code_float, 64}},
                         {DType::i8, {code_int, 8}},       {DType::i32, {code_int, 32}},
                         {DType::i64, {code_int, 64}},     {DType::u8, {code_uint, 8}},
                         {DType::boolean, {code_bool, 8}}, {DType::f8_e4m3, {code_float8_e4m3fn, 8}}};

[[noreturn]] void bad_tensor(const std::string& message) { throw spec::CallError(spec::CallError::Kind::bad_input, message); }

// No memory reaches further from its address than address spaces do: such an offset is a negative number, or none.
std::uint64_t offset_of(const std::string& name, const ejk_tensor& tensor) {
  constexpr std::uint64_t most = std::uint64_t{1} << 57;
  if (tensor.byte_offset >= most || reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset < tensor.byte_offset)
    bad_tensor(fmt::format("{} has a byte_offset of {}, expected one within its memory, below 2^57", name, tensor.byte_offset));
  return tensor.byte_offset;
}

}  // namespace

TensorView view_of(const std::string& name, const ejk_tensor& tensor) {
  if (tensor.rank < 0 || tensor.rank > max_rank)
    bad_tensor(fmt::format("{} has {} dimensions, expected 0 to {}", name, tensor.rank, max_rank));
  if (tensor.rank > 0 && !tensor.shape) bad_tensor(fmt::format("{} has {} dimensions but no shape", name, tensor.rank));
  if (tensor.dtype.lanes != 1) bad_tensor(fmt::format("{} has elements of {} lanes, expected 1", name, tensor.dtype.lanes));
  for (const auto& row : table) {
    if (row.dlpack.code != tensor.dtype.code || row.dlpack.bits != tensor.dtype.bits) continue;
    const std::span shape(tensor.shape, static_cast<std::size_t>(tensor.rank));
    auto* data = tensor.data ? static_cast<char*>(tensor.data) + offset_of(name, tensor) : nullptr;
    auto view = tensor.strides ? TensorView(data, row.type, shape, std::span(tensor.strides, static_cast<std::size_t>(tensor.rank)))
                               : TensorView(data, row.type, shape);
    view.device = {static_cast<DeviceType>(tensor.device.type), tensor.device.index};
    return view;
  }
  bad_tensor(fmt::format("{} has DLPack type (code {}, {} bits), which no kernel takes", name, tensor.dtype.code, tensor.dtype.bits));
}

DLType dlpack_type(DType type) {
  for (const auto& row : table)
    if (row.type == type) return row.dlpack;
  return {code_float, 32};
}

}  // namespace ejk
