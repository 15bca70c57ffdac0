// Comparison of outputs with the reference.
#include "reference/compare.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

#include "spec/call/tolerance.hpp"

namespace ejk::reference {
namespace {

constexpr double smallest_scale = 1e-2;  // docs/semantics.md, "Accuracy": values that cancel are judged against this root mean square

double finite_rms(std::span<const double> values) {
  double squares = 0;
  std::int64_t count = 0;
  for (const double value : values)
    if (std::isfinite(value)) {
      squares += value * value;
      ++count;
    }
  return count > 0 ? std::sqrt(squares / static_cast<double>(count)) : 0;
}

// NaN for NaN, infinity for the same infinity.
bool same_special(double found, double expected) { return std::isnan(expected) ? std::isnan(found) : found == expected; }

}  // namespace

std::string index_text(std::span<const std::int64_t> shape, std::int64_t index) {
  std::vector<std::int64_t> indices(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    indices[i] = shape[i] > 0 ? index % shape[i] : 0;
    index /= std::max<std::int64_t>(shape[i], 1);
  }
  std::string text;
  for (const std::int64_t i : indices) text += (text.empty() ? "[" : ", ") + std::to_string(i);
  return text.empty() ? "[]" : text + "]";
}

namespace {

// index_of(i): where the i-th element lies, for messages.
template <class IndexOf>
Comparison judged(const std::string& tensor, std::span<const double> found, std::span<const double> expected, double tolerance,
                  double rounding, IndexOf index_of) {
  Comparison result;
  result.tensor = tensor;
  result.tolerance = tolerance;
  if (found.size() != expected.size()) {
    result.message = fmt::format("{}: found {} elements, the reference has {}", tensor, found.size(), expected.size());
    return result;
  }
  const double scale = std::max({finite_rms(expected), smallest_scale, tolerance > 0 ? rounding / tolerance : 0});
  double squares = 0;
  std::int64_t finite = 0, wrong_special = 0, first_special = -1;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(expected[i]) || !std::isfinite(found[i])) {
      if (same_special(found[i], expected[i])) continue;
      if (wrong_special++ == 0) first_special = static_cast<std::int64_t>(i);
      continue;
    }
    const double difference = std::fabs(found[i] - expected[i]);
    squares += difference * difference;
    ++finite;
    const double relative = difference / std::max(std::fabs(expected[i]), scale);
    if (relative > result.worst || result.worst_index < 0) {
      result.worst = relative;
      result.worst_index = static_cast<std::int64_t>(i);
    }
  }
  result.error = finite > 0 ? std::sqrt(squares / static_cast<double>(finite)) / scale : 0;
  const auto element = [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    return fmt::format("{}{} is {:.9g}, the reference says {:.9g}", tensor, index_of(i), found[at], expected[at]);
  };
  if (wrong_special > 0) {
    result.worst_index = first_special;
    result.message = fmt::format("{} ({} elements wrong in NaN or infinity)", element(first_special), wrong_special);
  } else if (!(result.error <= tolerance)) {
    result.message = fmt::format("{}: relative error {:.3g} is over the tolerance {:.3g}; worst: {}", tensor, result.error, tolerance,
                                 element(result.worst_index));
  } else if (result.worst > element_factor * tolerance) {
    result.message = fmt::format("{}: one element is off by {:.3g} (at most {:.3g}), though the whole is within tolerance",
                                 element(result.worst_index), result.worst, element_factor * tolerance);
  }
  return result;
}

// Elements that nobody wrote and memory that nobody should have written come first.
Comparison with_memory(const HostTensor& output, Comparison result) {
  if (const std::int64_t unwritten = output.unwritten(); unwritten > 0) {
    result.worst_index = output.first_unwritten();
    result.message = fmt::format("{}{} was not written ({} of {} elements)", output.name(), index_text(output.shape(), result.worst_index),
                                 unwritten, output.elements());
  } else if (!output.surroundings_intact()) {
    result.message = fmt::format("{}: memory beside its elements was written", output.name());
  }
  return result;
}

}  // namespace

Comparison compare(const std::string& tensor, std::span<const std::int64_t> shape, std::span<const double> found,
                   std::span<const double> expected, double tolerance, double rounding) {
  return judged(tensor, found, expected, tolerance, rounding, [&](std::int64_t i) { return index_text(shape, i); });
}

Comparison compare(const HostTensor& output, std::span<const double> expected, double tolerance, double rounding) {
  return with_memory(output, compare(output.name(), output.shape(), output.values(), expected, tolerance, rounding));
}

void Sample::add(std::int64_t first, const double* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) places.push_back(first + i);
  expected.insert(expected.end(), values, values + count);
}

Comparison compare(const HostTensor& output, const Sample& sample, double tolerance) {
  std::vector<double> found;
  for (const std::int64_t place : sample.places) found.push_back(output.at(place));
  return with_memory(output, judged(output.name(), found, sample.expected, tolerance, sample.rounding, [&](std::int64_t i) {
                       return index_text(output.shape(), sample.places[static_cast<std::size_t>(i)]);
                     }));
}

double rounding_of(const Values& reference, const std::string& output) {
  const auto found = reference.find(output + " rounding");
  return found == reference.end() || found->second.empty() ? 0 : found->second.front();
}

double tolerance_of(const Call& call, const HostTensor& output) { return spec::tolerance_of(call.binding, output.name(), output.type()); }

}  // namespace ejk::reference
