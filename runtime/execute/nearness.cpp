// Nearness of two calls of a spec's kernel, told from their keys: equal but for sizes that belong to dims of "tuning": {"nearest": ...}.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "backends/thread_table.hpp"
#include "execute/spec_kernel.hpp"

namespace ejk {
namespace {

using nlohmann::json;

class Comparison {
 public:
  explicit Comparison(const spec::Spec& spec) : spec_(spec) {}

  bool comparable(const json& here, const json& measured) {
    for (const char* field : {"kernel", "device"})
      if (here.value(field, "") != measured.value(field, "")) return false;
    return attributes(here.at("attributes"), measured.at("attributes")) && tensors(here.at("tensors"), measured.at("tensors"));
  }

  Nearness nearness() const {
    Nearness result;
    for (const auto& [name, sizes] : differences_) {
      result.distance += std::abs(std::log2(static_cast<double>(sizes.first)) - std::log2(static_cast<double>(sizes.second)));
      result.measured += fmt::format("{}{}={} (here {})", result.measured.empty() ? "" : " ", name, sizes.second, sizes.first);
    }
    return result;
  }

 private:
  bool is_nearest(const std::string& name) const {
    return std::find(spec_.nearest.begin(), spec_.nearest.end(), name) != spec_.nearest.end();
  }

  // Two sizes of one name. What is 0 or less is off or empty, and so not near to anything else.
  bool note(const std::string& name, std::int64_t here, std::int64_t measured) {
    if (here == measured) return true;
    if (here <= 0 || measured <= 0) return false;
    differences_.emplace(name, std::pair(here, measured));
    return true;
  }

  bool attributes(const json& here, const json& measured) {
    if (here.size() != measured.size()) return false;
    for (const auto& [name, value] : here.items()) {
      const auto other = measured.find(name);
      if (other == measured.end()) return false;
      if (*other == value) continue;
      if (!is_nearest(name) || !value.is_number_integer() || !other->is_number_integer()) return false;
      if (!note(name, value.get<std::int64_t>(), other->get<std::int64_t>())) return false;
    }
    return true;
  }

  // Each is [type, shape] or, if it is not contiguous, [type, shape, strides].
  bool tensors(const json& here, const json& measured) {
    if (here.size() != measured.size()) return false;
    for (const auto& [name, value] : here.items()) {
      const auto other = measured.find(name);
      const auto* tensor = spec_.tensor(name);
      if (other == measured.end() || !tensor) return false;
      if (*other == value) continue;
      if (other->size() != value.size() || other->at(0) != value.at(0)) return false;
      if (value.size() > 2 && value.at(2).back() != other->at(2).back()) return false;  // strides: both strided, alike in the last dim
      if (!shape(*tensor, value.at(1), other->at(1))) return false;
    }
    return true;
  }

  bool shape(const spec::TensorSpec& tensor, const json& here, const json& measured) {
    if (here.size() != measured.size()) return false;
    for (std::size_t axis = 0; axis < here.size(); ++axis) {
      const auto a = here[axis].get<std::int64_t>(), b = measured[axis].get<std::int64_t>();
      if (a == b) continue;
      const auto name = nearest_of(tensor, here.size(), axis);
      if (name.empty() || !note(name, a, b)) return false;
    }
    return true;
  }

  // What an axis is called if it may differ: its dim, or the extent as written where it is made of one.
  std::string nearest_of(const spec::TensorSpec& tensor, std::size_t rank, std::size_t axis) const {
    for (const auto& shape : tensor.shapes) {
      if (!shape.fits(rank)) continue;
      const auto& extent = shape.extent_of(axis, rank);
      if (!extent.dim.empty()) {
        if (is_nearest(extent.dim)) return extent.dim;
        continue;
      }
      const auto names = extent.expression.names();
      if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return is_nearest(name); })) return extent.text;
    }
    return {};
  }

  const spec::Spec& spec_;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> differences_;  // name → here, measured
};

// One call is compared with many measurements: its key is parsed once.
const json& parsed(const std::string& key) {
  struct Last {
    std::string key;
    json object;
  };
  auto& last = of_thread<Last>();
  if (last.key != key) last = {key, json::parse(key, nullptr, false)};
  return last.object;
}

}  // namespace

std::optional<Nearness> SpecKernel::nearness(const std::string& key, const std::string& measured_key) const {
  if (handle_.spec->nearest.empty()) return std::nullopt;
  const auto& here = parsed(key);
  const auto measured = json::parse(measured_key, nullptr, false);
  if (!here.is_object() || !measured.is_object()) return std::nullopt;
  try {
    Comparison comparison(*handle_.spec);
    if (!comparison.comparable(here, measured)) return std::nullopt;
    return comparison.nearness();
  } catch (const json::exception&) {
    return std::nullopt;  // a key of another form
  }
}

}  // namespace ejk
