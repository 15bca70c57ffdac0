// What reading and writing safetensors files share: the names of element types, and errors that name the file.
#pragma once
#include <fmt/format.h>

#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "reference/host_tensor.hpp"

namespace ejk::tools {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian; bytes are copied as they are");

struct SafetensorsType {
  const char* name;
  DType type;
};
inline constexpr SafetensorsType safetensors_types[] = {
    {"F64", DType::f64}, {"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16},    {"I64", DType::i64},
    {"I32", DType::i32}, {"I8", DType::i8},   {"U8", DType::u8},   {"BOOL", DType::boolean}, {"F8_E4M3", DType::f8_e4m3}};

[[noreturn]] inline void fail(const std::filesystem::path& path, const std::string& sentence) {
  throw std::runtime_error(path.string() + ": " + sentence);
}

}  // namespace ejk::tools
