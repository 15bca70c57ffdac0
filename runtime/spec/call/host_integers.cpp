// Elements of host integer tensors, and the rule over rows of a table.
#include "spec/call/host_integers.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>

namespace ejk::spec {
namespace {

[[noreturn]] void cannot_read(std::string sentence) { throw ExpressionError(std::move(sentence), 0); }

template <class T>
std::int64_t read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<std::int64_t>(value);
}

std::int64_t integer_of(std::span<const Value> values, std::size_t i, std::string_view name) {
  const auto* value = i < values.size() ? std::get_if<std::int64_t>(&values[i]) : nullptr;
  if (!value) cannot_read(fmt::format("outside_rows(): {} must be an integer", name));
  return *value;
}

}  // namespace

HostIntegers::HostIntegers(const NamedData& tensor, std::string_view function, std::size_t rank)
    : facts_(*tensor.facts), data_(tensor.data) {
  const auto& name = tensor.name;
  if (rank != 0 && facts_.shape.size() != rank)
    cannot_read(fmt::format("{}({}): {} has {} dimensions, expected {}", function, name, name, facts_.shape.size(), rank));
  if (facts_.type != DType::i32 && facts_.type != DType::i64 && facts_.type != DType::i8 && facts_.type != DType::u8)
    cannot_read(fmt::format("{}({}): {} has type {}, expected an integer type", function, name, name, name_of(facts_.type)));
  if (!data_ && std::find(facts_.shape.begin(), facts_.shape.end(), 0) == facts_.shape.end())
    cannot_read(fmt::format("{}({}): the data of {} cannot be read here", function, name, name));
}

std::int64_t HostIntegers::read(std::int64_t element) const {
  const auto* at = static_cast<const std::byte*>(data_) + element * size_of(facts_.type);
  switch (facts_.type) {
    case DType::i32:
      return read_as<std::int32_t>(at);
    case DType::i64:
      return read_as<std::int64_t>(at);
    case DType::i8:
      return read_as<std::int8_t>(at);
    default:
      return read_as<std::uint8_t>(at);
  }
}

std::string HostIntegers::outside(std::string_view name, std::int64_t low, std::int64_t high) const {
  const auto& shape = facts_.shape;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return {};
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::int64_t offset = 0;;) {
    if (const auto value = read(offset); value < low || value > high)
      return fmt::format("{}[{}] is {}", name, fmt::join(index, ", "), value);
    std::size_t i = shape.size();
    for (; i > 0; --i) {
      offset += facts_.strides[i - 1];
      if (++index[i - 1] < shape[i - 1]) break;
      offset -= facts_.strides[i - 1] * shape[i - 1];
      index[i - 1] = 0;
    }
    if (i == 0) return {};
  }
}

Value outside_rows(const NamedData& table, const NamedData& counts, std::span<const Value> rest) {
  const HostIntegers entries(table, "outside_rows", 2), lengths(counts, "outside_rows");
  const std::int64_t per = integer_of(rest, 0, "per"), last = integer_of(rest, 1, "last");
  const std::int64_t low = integer_of(rest, 2, "low"), high = integer_of(rest, 3, "high");
  if (per <= 0) cannot_read(fmt::format("outside_rows({}): per must be positive, found {}", table.name, per));
  const std::int64_t rows = rest.size() > 4 ? integer_of(rest, 4, "count") : entries.count();
  for (std::int64_t row = 0; row < std::min({rows, entries.count(), lengths.count()}); ++row) {
    const std::int64_t length = std::max<std::int64_t>(lengths[row], 0);
    const std::int64_t end = std::min(length / per + (length % per > 0), entries.count(1));
    const std::int64_t first = last < 0 || last >= length ? 0 : (length - last) / per;
    for (std::int64_t column = first; column < end; ++column)
      if (const auto entry = entries.at(row, column); entry < low || entry > high)
        return fmt::format("{}[{}, {}] is {}", table.name, row, column, entry);
  }
  return std::string();
}

}  // namespace ejk::spec
