// What a tensor map says about a box: tiles only, elements next to each other, no interleave; outside the tensor are zeros.
#include "emulator/ptx/memory/tensor_map.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ejk::ptx {
namespace {

struct MapType {
  std::string_view name;
  std::uint32_t bytes;
};
// By CUtensorMapDataType; the last four are f32 whose subnormals or low digits do not count, and are copied as f32.
constexpr MapType map_types[] = {{"u8", 1},  {"u16", 2}, {"u32", 4},  {"s32", 4}, {"u64", 8}, {"s64", 8}, {"f16", 2},
                                 {"f32", 4}, {"f64", 8}, {"bf16", 2}, {"f32", 4}, {"f32", 4}, {"f32", 4}};

constexpr std::uint32_t most_columns = 256, most_box_bytes = 1u << 20;  // which is more than shared memory has

[[noreturn]] void bad_map(const std::string& what) { throw Fault("tensor map: " + what); }

}  // namespace

Box::Box(const TensorMap& map, int rank, const std::array<std::int32_t, 5>& at) : map_(map), at_(at), rank_(rank) {
  if (map.magic != tensor_map_magic) bad_map(fmt::format("it begins with {:#x}, expected one that the driver has encoded", map.magic));
  if (map.rank != rank) bad_map(fmt::format("it is of {} dimensions, the instruction of {}", map.rank, rank));
  if (map.type >= std::size(map_types)) bad_map(fmt::format("element type {}, expected 0 to {}", map.type, std::size(map_types) - 1));
  if (map.swizzle > 3) bad_map(fmt::format("swizzle {}, expected 0 to 3", map.swizzle));
  type_ = map_types[map.type].name;
  element_ = map_types[map.type].bytes;
  columns_ = map.box[0];
  std::uint64_t rows = 1;
  for (int dim = 0; dim < rank; ++dim) {
    if (!map.box[dim] || map.box[dim] > most_columns)
      bad_map(fmt::format("a box of {} in dimension {}, expected 1 to 256", map.box[dim], dim));
    if (dim) rows *= map.box[dim];
  }
  if (rows * columns_ * element_ > most_box_bytes) bad_map(fmt::format("a box of {} rows of {} elements does not fit", rows, columns_));
  rows_ = static_cast<std::uint32_t>(rows);
  swizzle_.width = map.swizzle ? 16u << map.swizzle : 0;
  if (row_bytes() % 16) bad_map(fmt::format("a box's row has {} bytes, expected a multiple of 16", row_bytes()));
  if (swizzle_.width && row_bytes() > swizzle_.width)
    bad_map(fmt::format("a box's row has {} bytes, expected at most the swizzle's {}", row_bytes(), swizzle_.width));
}

Box::Range Box::range(int dim) const {
  const std::int64_t at = at_[dim], extent = std::int64_t{map_.extents_less_1[dim]} + 1, box = map_.box[dim];
  const auto first = std::clamp<std::int64_t>(-at, 0, box), end = std::clamp<std::int64_t>(extent - at, first, box);
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end)};
}

std::uint64_t Box::address_of(const std::array<std::uint32_t, 5>& in_box) const {
  auto address = map_.address;
  for (int dim = 0; dim < rank_; ++dim) address += static_cast<std::uint64_t>(std::int64_t{at_[dim]} + in_box[dim]) * stride(dim);
  return address;
}

void Box::check(Grid& grid) const {
  std::array<std::uint32_t, 5> first{}, last{};
  for (int dim = 0; dim < rank_; ++dim) {
    const auto inside = range(dim);
    if (inside.first == inside.end) return;
    first[dim] = inside.first;
    last[dim] = inside.end - 1;
  }
  const auto begin = address_of(first);
  try {
    grid.global_at(begin, address_of(last) + element_ - begin, element_);
  } catch (Fault& fault) {
    fault.words = "box of a tensor: " + fault.words;
    throw;
  }
}

BoxRow Box::row(std::uint32_t number) const {
  std::array<std::uint32_t, 5> in_box{};
  auto rest = number;
  const auto columns = range(0);
  BoxRow row{number, columns.first, columns.end, nullptr};
  for (int dim = 1; dim < rank_; ++dim) {
    in_box[dim] = rest % map_.box[dim];
    rest /= map_.box[dim];
    const auto inside = range(dim);
    if (in_box[dim] < inside.first || in_box[dim] >= inside.end) row.first = row.end = 0;
  }
  in_box[0] = row.first;
  if (row.first < row.end) row.memory = reinterpret_cast<char*>(address_of(in_box));
  return row;
}

}  // namespace ejk::ptx
