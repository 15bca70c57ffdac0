// Random inputs by fill and type.
#include "reference/data.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

#include "reference/element.hpp"

namespace ejk::reference {
namespace {

constexpr std::int64_t period = 4194301;  // a prime, so that no row of a usual size meets itself again

// Random numbers are slow to make: a large tensor repeats its first ones.
void fill_large(HostTensor& tensor, Rng& rng) {
  const auto size = static_cast<std::size_t>(size_of(tensor.type()));
  auto* data = static_cast<std::byte*>(tensor.data());
  for (std::int64_t i = 0; i < period; ++i) store_element(tensor.type(), data + static_cast<std::size_t>(i) * size, rng.normal());
  for (std::int64_t done = period; done < tensor.elements(); done += period)
    std::memcpy(data + static_cast<std::size_t>(done) * size, data,
                static_cast<std::size_t>(std::min(period, tensor.elements() - done)) * size);
}

void fill_normal(HostTensor& tensor, Rng& rng) {
  if (tensor.elements() > period && tensor.contiguous()) return fill_large(tensor, rng);
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  for (double& value : values) value = rng.normal();
  tensor.assign(values);
}

void fill_boolean(HostTensor& tensor, Rng& rng) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  const std::int64_t row = tensor.shape().empty() ? 1 : tensor.shape().back();
  bool row_is_false = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<std::int64_t>(i) % row == 0) row_is_false = rng.chance(0.1);
    values[i] = !row_is_false && rng.chance(0.8);
  }
  tensor.assign(values);
}

// One row of segment ids. The bounds are fractions, so rows of other lengths made from the same generator state meet the same ids.
struct Run {
  double end;
  std::int64_t id;
};

std::vector<Run> segment_runs(Rng& rng) {
  std::vector<Run> runs;
  double end = 0;
  for (std::int64_t id = 0; end < 1; ++id) {
    end += 0.08 + 0.5 * rng.uniform();
    runs.push_back({std::min(end, 1.0), rng.chance(0.15) ? -1 : id});
  }
  return runs;
}

void fill_segments(HostTensor& tensor, std::uint64_t seed) {
  const std::int64_t length = tensor.shape().empty() ? 1 : tensor.shape().back();
  std::vector<double> values;
  const std::int64_t rows = length > 0 ? tensor.elements() / length : 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    Rng rng = Rng::stream(seed, fmt::format("segments {}", row));  // the same for every tensor of this fill
    const std::vector<Run> runs = segment_runs(rng);
    std::size_t run = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      while (run + 1 < runs.size() && static_cast<double>(i) >= runs[run].end * static_cast<double>(length)) ++run;
      values.push_back(static_cast<double>(runs[run].id));
    }
  }
  tensor.assign(values);
}

void fill_offsets(HostTensor& tensor, std::int64_t tokens, Rng& rng) {
  const std::int64_t count = tensor.elements();
  if (tensor.shape().size() != 1 || count < 1)
    throw std::invalid_argument(fmt::format("{}: offsets need one dimension of 1 or more elements", tensor.name()));
  // Sometimes tokens lie past the last sequence: any number in small calls, few in large ones, whose cost is counted by their shapes.
  const std::int64_t end = rng.chance(0.25) ? rng.between(tokens > 1024 ? tokens - 8 : 0, tokens) : tokens;
  std::vector<double> values{0};
  for (std::int64_t i = 1; i + 1 < count; ++i)
    values.push_back(rng.chance(0.2) ? values[static_cast<std::size_t>(rng.between(0, i - 1))] : static_cast<double>(rng.between(0, end)));
  if (count > 1) values.push_back(static_cast<double>(end));
  std::sort(values.begin(), values.end());
  tensor.assign(values);
}

void fill_counting(HostTensor& tensor) {
  for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, static_cast<double>(size_of(tensor.type()) == 1 ? i % 128 : i));
}

std::int64_t dim_named(const HostTensor& tensor, const std::string& dim, const std::map<std::string, spec::Value>& dims) {
  const auto found = dims.find(dim);
  const std::int64_t* size = found == dims.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  if (!size) throw std::invalid_argument(fmt::format("{}: its fill needs the dim {}, which the case does not give", tensor.name(), dim));
  return *size;
}

}  // namespace

void fill_input(HostTensor& tensor, const spec::TensorSpec& spec, const std::map<std::string, spec::Value>& dims, std::uint64_t seed) {
  Rng rng = Rng::stream(seed, spec.name);
  const std::string offsets = "offsets ";
  if (spec.fill == "segments") return fill_segments(tensor, seed);
  if (spec.fill.starts_with(offsets)) return fill_offsets(tensor, dim_named(tensor, spec.fill.substr(offsets.size()), dims), rng);
  if (!spec.fill.empty())
    throw std::invalid_argument(fmt::format("{}: unknown fill '{}'; known are 'segments' and 'offsets DIM'", spec.name, spec.fill));
  if (is_floating(tensor.type())) return fill_normal(tensor, rng);
  if (tensor.type() == DType::boolean) return fill_boolean(tensor, rng);
  fill_counting(tensor);
}

}  // namespace ejk::reference
