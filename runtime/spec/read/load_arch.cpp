// One arch file.
#include <algorithm>

#include "spec/check/suggest.hpp"
#include "spec/read/load_parts.hpp"
#include "spec/read/loader.hpp"

namespace ejk::spec {
namespace {

const std::vector<std::string> platforms = {"cpu", "cuda", "hip", "simt"};

void file_name(const JsonNode& node, std::string_view field) {
  const auto name = node.field(field);
  if (!name || !name->json().is_string()) return;
  if (const auto why = bad_file_name(node.text(field))) name->fault(*why);
}

Arch read_arch(const JsonNode& node) {
  Arch arch;
  if (!node.open("arch")) return arch;
  arch.name = node.text("arch");
  arch.doc = node.text("doc");
  arch.platform = node.text("platform");
  arch.extends = node.text("extends");
  arch.machine = node.text("machine");
  arch.requires_features = load_words(node, "features", "feature");
  for (const JsonNode& flag : node.list("flags"))  // a flag may repeat ("-mllvm", "x", "-mllvm", "y")
    if (const auto text = flag.text()) arch.flags.push_back(*text);
  file_name(node, "arch");
  file_name(node, "extends");
  if (const auto platform = node.field("platform"); platform && platform->json().is_string())
    if (std::find(platforms.begin(), platforms.end(), arch.platform) == platforms.end())
      platform->fault("unknown platform '" + arch.platform + "'" + suggestion(arch.platform, platforms));
  NameTable names;
  for (const auto& [name, value] : node.members("properties")) {
    names.declare(value, name, "property");
    if (const auto scalar = value.scalar()) arch.properties[name] = *scalar;
  }
  return arch;
}

}  // namespace

std::optional<Arch> load_arch(const std::string& file, const std::string& text, std::vector<Fault>& faults) {
  const auto json = parse_json(file, text, faults);
  if (!json) return std::nullopt;
  FileFaults found(file, faults);
  Arch arch = read_arch(JsonNode(*json, "", found));
  arch.file = file;
  found.sort_as_in(*json);
  if (found.any()) return std::nullopt;
  return arch;
}

}  // namespace ejk::spec
