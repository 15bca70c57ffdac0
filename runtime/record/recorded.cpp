// A recorded call as a JSON line and back, sets of them, and files of such lines.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <sstream>

#include "describe/invocation.hpp"
#include "describe/values.hpp"
#include "record/recorder.hpp"
#include "store/files.hpp"

namespace ejk {
namespace {

using nlohmann::json;

json line_of(const RecordedInvocation& recorded, bool with_count) {
  auto object = json_of(recorded.invocation);
  if (!recorded.alignment.empty()) object["alignment"] = recorded.alignment;
  if (!recorded.archs.empty()) object["archs"] = recorded.archs;
  for (const auto& [name, value] : recorded.properties) object["properties"][name] = json_of(value, "property '" + name + "'");
  if (with_count && recorded.count != 1) object["count"] = recorded.count;
  return object;
}

void read_alignment(const json& node, RecordedInvocation& recorded, const std::string& what) {
  for (const auto& [name, value] : values_from(node, what + ": 'alignment'")) {
    const auto* bytes = std::get_if<std::int64_t>(&value);
    if (!bytes || *bytes < 1 || *bytes >= whole_alignment || !std::has_single_bit(static_cast<std::uint64_t>(*bytes)))
      refuse(fmt::format("{}: the alignment of '{}' must be 1, 2, 4, ... 32; found {}", what, name, node[name].dump()));
    if (!recorded.invocation.tensors.contains(name)) refuse(fmt::format("{}: 'alignment' names no tensor of the call: '{}'", what, name));
    recorded.alignment.emplace(name, *bytes);
  }
}

void read_archs(const json& node, RecordedInvocation& recorded, const std::string& what) {
  if (!node.is_array() || !std::all_of(node.begin(), node.end(), [](const auto& arch) { return arch.is_string(); }))
    refuse(fmt::format("{}: 'archs' must be a list of names; found {}", what, node.dump()));
  recorded.archs = node.get<std::vector<std::string>>();
}

RecordedInvocation recorded_from(const json& object, const std::string& what) {
  RecordedInvocation recorded;
  recorded.invocation = invocation_from(object, what);
  for (const auto& [name, node] : object.items()) {
    if (name == "alignment") {
      read_alignment(node, recorded, what);
    } else if (name == "archs") {
      read_archs(node, recorded, what);
    } else if (name == "properties") {
      recorded.properties = values_from(node, what + ": 'properties'");
    } else if (name == "count") {
      if (!node.is_number_integer() || node.get<std::int64_t>() < 1)
        refuse(fmt::format("{}: 'count' must be an integer of 1 or more; found {}", what, node.dump()));
      recorded.count = node.get<std::uint64_t>();
    } else if (name != "kernel" && name != "device" && name != "tensors" && name != "attributes") {
      refuse(
          fmt::format("{}: no field '{}'; expected kernel, device, tensors, attributes, alignment, archs, properties, count", what, name));
    }
  }
  return recorded;
}

}  // namespace

void RecordedSet::add(const RecordedInvocation& recorded) {
  const auto [place, fresh] = index_.emplace(line_of(recorded, false).dump(), list_.size());
  if (fresh)
    list_.push_back(recorded);
  else
    list_[place->second].count += recorded.count;
}

Result<std::string> to_json(const RecordedInvocation& recorded) {
  return guarded([&]() -> Result<std::string> { return dumped(line_of(recorded, true), "a call"); });
}

Result<RecordedInvocation> recorded_from_json(std::string_view line) {
  return guarded([&]() -> Result<RecordedInvocation> { return recorded_from(parse_json(line, "recorded call"), "recorded call"); });
}

Result<Recorded> get_invocations(const std::string& file) {
  return guarded([&]() -> Result<Recorded> {
    std::string why_not;
    auto text = store::read_file(file, store::lines_limit, why_not);
    if (!text) return Error{ErrorCode::io, "cannot read the recorded calls of " + why_not};
    std::istringstream stream(std::move(*text));
    RecordedSet set;
    Recorded result;
    std::string line;
    for (std::size_t number = 1; std::getline(stream, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const auto place = fmt::format("{}:{}", file, number);
      try {
        set.add(recorded_from(parse_json(line, place), place));
      } catch (const CodedError& fault) {
        result.skipped.emplace_back(fault.what());
      }
    }
    result.invocations = set.list();
    return result;
  });
}

}  // namespace ejk
