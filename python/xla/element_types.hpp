// Element types by their names in ejk, in DLPack and in XLA's FFI.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

#include "xla/ffi/api/c_api.h"

namespace ejk::xla {

struct ElementType {
  const char* name;
  std::uint8_t code, bits;  // DLPack's
  int xla;
};

inline constexpr ElementType element_types[] = {{"f32", 2, 32, XLA_FFI_DataType_F32},   {"f16", 2, 16, XLA_FFI_DataType_F16},
                                                {"bf16", 4, 16, XLA_FFI_DataType_BF16}, {"f64", 2, 64, XLA_FFI_DataType_F64},
                                                {"i8", 0, 8, XLA_FFI_DataType_S8},      {"i32", 0, 32, XLA_FFI_DataType_S32},
                                                {"i64", 0, 64, XLA_FFI_DataType_S64},   {"u8", 1, 8, XLA_FFI_DataType_U8},
                                                {"bool", 6, 8, XLA_FFI_DataType_PRED},  {"f8_e4m3", 10, 8, XLA_FFI_DataType_F8E4M3FN}};

inline const ElementType& element_type(const std::string& name) {
  for (const auto& type : element_types)
    if (name == type.name) return type;
  throw std::runtime_error("'" + name + "' is no element type");
}

inline std::string element_name(int xla) {
  for (const auto& type : element_types)
    if (xla == type.xla) return type.name;
  return "XLA's type " + std::to_string(xla);
}

}  // namespace ejk::xla
