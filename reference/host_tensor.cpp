// Host tensors: placement in memory, element access, poison.
#include "reference/host_tensor.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "reference/element.hpp"

namespace ejk::reference {
namespace {

constexpr std::int64_t margin_bytes = 256;  // before and after the elements: catches stores and loads that run past the end

std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

// The outer dims' order from the innermost outward, after the last dim.
std::vector<std::size_t> placing_order(std::size_t rank, bool permuted, Rng* rng) {
  std::vector<std::size_t> outer;
  for (std::size_t i = rank - 1; i-- > 0;) outer.push_back(i);
  if (permuted) rng->shuffle(outer);
  outer.insert(outer.begin(), rank - 1);
  return outer;
}

}  // namespace

std::string Layout::text() const {
  std::string text;
  const std::pair<bool, const char*> traits[] = {
      {padded, "padded"}, {permuted, "permuted"}, {broadcast, "broadcast"}, {unaligned, "unaligned"}, {outputs, "outputs too"}};
  for (const auto& [holds, word] : traits)
    if (holds) text += (text.empty() ? "" : ", ") + std::string(word);
  return text.empty() ? "contiguous" : text;
}

Layout random_layout(Rng& rng) {
  Layout layout;
  layout.padded = rng.chance(0.5);
  layout.permuted = rng.chance(0.4);
  layout.broadcast = rng.chance(0.2);
  layout.unaligned = rng.chance(0.4);
  layout.outputs = rng.chance(0.5);
  return layout;
}

HostTensor::HostTensor(std::string name, DType type, std::vector<std::int64_t> shape, const Layout& layout, Rng* rng)
    : name_(std::move(name)), type_(type), shape_(std::move(shape)) {
  check_shape();
  if (!layout.contiguous() && !rng) throw std::invalid_argument(name_ + ": a layout with gaps needs a random generator");
  place(layout, rng);
  poison();
}

HostTensor::HostTensor(std::string name, DType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides)
    : name_(std::move(name)), type_(type), shape_(std::move(shape)), strides_(std::move(strides)) {
  check_shape();
  if (strides_.size() != shape_.size() || std::any_of(strides_.begin(), strides_.end(), [](auto s) { return s < 0; }))
    throw std::invalid_argument(fmt::format("{}: expected a stride of 0 or more for each dimension", name_));
  reserve(margin_bytes);
  poison();
}

void HostTensor::check_shape() const {
  if (shape_.size() > static_cast<std::size_t>(max_rank))
    throw std::invalid_argument(fmt::format("{}: found {} dimensions, at most {} are possible", name_, shape_.size(), max_rank));
  for (const std::int64_t extent : shape_)
    if (extent < 0) throw std::invalid_argument(fmt::format("{}: found a dimension of size {}, expected 0 or more", name_, extent));
}

HostTensor::HostTensor(std::string name, DType type, std::vector<std::int64_t> shape, std::span<const double> values)
    : HostTensor(std::move(name), type, std::move(shape)) {
  assign(values);
}

void HostTensor::place(const Layout& layout, Rng* rng) {
  strides_ = row_major(shape_);
  if (!layout.contiguous() && !shape_.empty()) {
    const std::size_t rank = shape_.size();
    const std::int64_t frozen = layout.broadcast && rank > 1 ? rng->between(0, static_cast<std::int64_t>(rank) - 2) : -1;
    std::int64_t stride = 1;
    for (const std::size_t dim : placing_order(rank, layout.permuted, rng)) {
      if (static_cast<std::int64_t>(dim) == frozen) {
        strides_[dim] = 0;
        continue;
      }
      strides_[dim] = stride;
      stride *= std::max<std::int64_t>(shape_[dim], 1);
      if (layout.padded) stride += rng->between(0, 9);
    }
  }
  reserve(margin_bytes + (layout.unaligned ? size_of(type_) : std::max<std::int64_t>(layout.alignment, size_of(type_)) % 64));
}

void HostTensor::reserve(std::int64_t start) {
  elements_ = std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
  std::int64_t span = elements_ > 0 ? 1 : 0;
  for (std::size_t i = 0; i < shape_.size() && elements_ > 0; ++i) span += (shape_[i] - 1) * strides_[i];
  start_ = start;
  packed_ = contiguous();
  const std::int64_t bytes = start_ + span * size_of(type_) + margin_bytes;
  memory_.resize(static_cast<std::size_t>((bytes + 63) / 64));
}

bool HostTensor::broadcast() const {
  for (std::size_t i = 0; i < shape_.size(); ++i)
    if (strides_[i] == 0 && shape_[i] > 1) return true;
  return false;
}

bool HostTensor::contiguous() const { return strides_ == row_major(shape_); }

HostTensor HostTensor::copy(std::string name) const {
  HostTensor result = *this;
  result.name_ = std::move(name);
  result.filled_ = true;
  return result;
}

TensorView HostTensor::view() const {
  TensorView view;
  view.data = const_cast<std::byte*>(bytes() + start_);
  view.type = type_;
  view.rank = static_cast<std::int8_t>(shape_.size());
  std::copy(shape_.begin(), shape_.end(), view.shape);
  std::copy(strides_.begin(), strides_.end(), view.strides);
  return view;
}

spec::TensorFacts HostTensor::facts() const {
  const auto address = reinterpret_cast<std::uintptr_t>(data());
  spec::TensorFacts facts;
  facts.type = type_;
  facts.shape = shape_;
  facts.strides = strides_;
  facts.address = address;
  facts.alignment = std::int64_t{1} << std::min(6, std::countr_zero(address));
  if (!is_floating(type_) && contiguous()) facts.host_data = data();
  return facts;
}

std::int64_t HostTensor::offset_of(std::int64_t index) const {
  if (packed_) return start_ + index * size_of(type_);
  std::int64_t offset = 0;
  for (std::size_t i = shape_.size(); i-- > 0;) {
    offset += index % shape_[i] * strides_[i];
    index /= shape_[i];
  }
  return start_ + offset * size_of(type_);
}

template <class Visit>
void HostTensor::each(Visit visit) const {
  if (elements_ == 0) return;
  const std::int64_t row = shape_.empty() ? 1 : shape_.back();
  const std::int64_t step = shape_.empty() ? 0 : strides_.back() * size_of(type_);
  for (std::int64_t first = 0; first < elements_; first += row) {
    std::int64_t offset = offset_of(first);
    for (std::int64_t i = 0; i < row; ++i, offset += step) visit(first + i, offset);
  }
}

double HostTensor::at(std::int64_t index) const { return load_element(type_, bytes() + offset_of(index)); }
void HostTensor::set(std::int64_t index, double value) { store_element(type_, bytes() + offset_of(index), value); }

std::vector<double> HostTensor::values() const {
  std::vector<double> values(static_cast<std::size_t>(elements_));
  each([&](std::int64_t index, std::int64_t offset) { values[static_cast<std::size_t>(index)] = load_element(type_, bytes() + offset); });
  return values;
}

void HostTensor::assign(std::span<const double> values) {
  if (static_cast<std::int64_t>(values.size()) != elements_)
    throw std::invalid_argument(fmt::format("{}: found {} values, expected {}", name_, values.size(), elements_));
  std::byte* memory = bytes();
  each([&](std::int64_t index, std::int64_t offset) { store_element(type_, memory + offset, values[static_cast<std::size_t>(index)]); });
}

std::vector<std::byte> HostTensor::row_major_bytes() const {
  const std::int64_t size = size_of(type_);
  std::vector<std::byte> gathered(static_cast<std::size_t>(elements_ * size));
  each([&](std::int64_t index, std::int64_t offset) {
    std::memcpy(gathered.data() + index * size, bytes() + offset, static_cast<std::size_t>(size));
  });
  return gathered;
}

void HostTensor::assign_bytes(std::span<const std::byte> given) {
  const std::int64_t size = size_of(type_);
  if (static_cast<std::int64_t>(given.size()) != elements_ * size)
    throw std::invalid_argument(fmt::format("{}: found {} bytes, expected {}", name_, given.size(), elements_ * size));
  std::byte* memory = bytes();
  each([&](std::int64_t index, std::int64_t offset) {
    std::memcpy(memory + offset, given.data() + index * size, static_cast<std::size_t>(size));
  });
}

void HostTensor::poison() {
  filled_ = false;
  const std::uint64_t pattern = poison_pattern(type_);
  const auto size = static_cast<std::size_t>(size_of(type_));  // divides 64, and start_ is a multiple of it: the pattern is in phase
  Block filled;
  for (std::size_t i = 0; i < sizeof filled.bytes; i += size) std::memcpy(filled.bytes + i, &pattern, size);
  std::fill(memory_.begin(), memory_.end(), filled);
}

bool HostTensor::poisoned(std::int64_t offset) const {
  const std::uint64_t pattern = poison_pattern(type_);
  return std::memcmp(bytes() + offset, &pattern, static_cast<std::size_t>(size_of(type_))) == 0;
}

std::int64_t HostTensor::first_unwritten() const {
  if (filled_) return -1;
  std::int64_t first = -1;
  each([&](std::int64_t index, std::int64_t offset) {
    if (first < 0 && poisoned(offset)) first = index;
  });
  return first;
}

std::int64_t HostTensor::unwritten() const {
  if (filled_) return 0;
  std::int64_t count = 0;
  each([&](std::int64_t, std::int64_t offset) { count += poisoned(offset); });
  return count;
}

bool HostTensor::surroundings_intact() const {
  HostTensor expected = *this;
  expected.poison();
  std::byte* memory = expected.bytes();
  const auto size = static_cast<std::size_t>(size_of(type_));
  each([&](std::int64_t, std::int64_t offset) { std::memcpy(memory + offset, bytes() + offset, size); });
  return std::memcmp(memory, bytes(), memory_.size() * sizeof(Block)) == 0;
}

}  // namespace ejk::reference
