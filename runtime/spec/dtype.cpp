// Names and sizes of the element types.
#include <array>

#include "ejk/tensor.hpp"

namespace ejk {
namespace {

struct TypeRow {
  DType type;
  std::string_view name;
  std::int64_t bytes;
  bool floating = false;
};

constexpr std::array rows = {
    TypeRow{DType::f32, "f32", 4, true},   TypeRow{DType::f16, "f16", 2, true},
    TypeRow{DType::bf16, "bf16", 2, true}, TypeRow{DType::f64, "f64", 8, true},
    TypeRow{DType::i8, "i8", 1},           TypeRow{DType::i32, "i32", 4},
    TypeRow{DType::i64, "i64", 8},         TypeRow{DType::u8, "u8", 1},
    TypeRow{DType::boolean, "bool", 1},    TypeRow{DType::f8_e4m3, "f8_e4m3", 1, true},
};

constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (static_cast<std::size_t>(rows[i].type) != i) return false;
  return true;
}
static_assert(in_enum_order(), "rows are indexed by the enum's value");

}  // namespace

std::span<const DType> all_dtypes() {
  static constexpr auto all = [] {
    std::array<DType, rows.size()> types{};
    for (std::size_t i = 0; i < rows.size(); ++i) types[i] = rows[i].type;
    return types;
  }();
  return all;
}

bool is_floating(DType type) { return rows.at(static_cast<std::size_t>(type)).floating; }

std::string_view name_of(DType type) { return rows.at(static_cast<std::size_t>(type)).name; }

std::optional<DType> dtype_named(std::string_view name) {
  for (const TypeRow& row : rows)
    if (row.name == name) return row.type;
  return std::nullopt;
}

std::int64_t size_of(DType type) { return rows.at(static_cast<std::size_t>(type)).bytes; }

}  // namespace ejk
