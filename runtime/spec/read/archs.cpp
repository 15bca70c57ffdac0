// Arch files: inheritance, and which of them a variant covers.
#include "spec/read/archs.hpp"

#include <algorithm>
#include <set>

#include "spec/check/suggest.hpp"
#include "spec/read/files.hpp"
#include "spec/read/loader.hpp"

namespace ejk::spec {
namespace {

const Arch* parent_of(const Arch& arch, const std::map<std::string, Arch>& archs) {
  const auto found = arch.extends.empty() ? archs.end() : archs.find(arch.platform + ":" + arch.extends);
  return found == archs.end() ? nullptr : &found->second;
}

// How many archs it extends, directly or not. The archs have no cycles by now.
int depth_of(const Arch& arch, const std::map<std::string, Arch>& archs) {
  int depth = 0;
  for (const Arch* parent = parent_of(arch, archs); parent; parent = parent_of(*parent, archs)) ++depth;
  return depth;
}

// Whether `full_name` is platform:name. Without the string of that: every call's first plan asks this of all archs.
bool is_named(std::string_view platform, std::string_view name, std::string_view full_name) {
  const std::size_t length = platform.size();
  return full_name.size() == length + 1 + name.size() && full_name.starts_with(platform) && full_name[length] == ':' &&
         full_name.ends_with(name);
}

bool is_or_extends(const Arch& arch, std::string_view full_name) {
  return is_named(arch.platform, arch.name, full_name) ||
         std::any_of(arch.ancestors.begin(), arch.ancestors.end(),
                     [&](const std::string& name) { return is_named(arch.platform, name, full_name); });
}

// A platform's name alone does not cover it.
bool by_name_only(const Arch& arch) {
  const auto found = arch.properties.find("by_name");
  return found != arch.properties.end() && found->second == Value(true);
}

bool covers(std::string_view pattern, const Arch& arch) {
  if (!pattern.starts_with(arch.platform)) return false;  // an arch extends its own platform's only
  if (pattern.ends_with('+')) return is_or_extends(arch, pattern.substr(0, pattern.size() - 1));
  return is_named(arch.platform, arch.name, pattern) || (pattern == arch.platform && !by_name_only(arch));
}

// "cpu:a extends b, which extends a" as a fault, once for each arch on the cycle or leading to it.
bool has_cycle(const Arch& arch, const std::map<std::string, Arch>& archs) {
  std::set<std::string> seen;
  for (const Arch* each = &arch; each; each = parent_of(*each, archs))
    if (!seen.insert(each->name).second) return true;
  return false;
}

void inherit(Arch& arch, const Arch& parent) {
  arch.ancestors = {parent.name};
  arch.ancestors.insert(arch.ancestors.end(), parent.ancestors.begin(), parent.ancestors.end());
  std::vector<std::string> features = parent.requires_features;
  for (std::string& own : arch.requires_features)
    if (std::find(features.begin(), features.end(), own) == features.end()) features.push_back(std::move(own));
  arch.requires_features = std::move(features);
  arch.properties.insert(parent.properties.begin(), parent.properties.end());
  if (arch.machine.empty()) arch.machine = parent.machine;
}

void check_parent(const Arch& arch, const std::map<std::string, Arch>& archs, std::vector<Fault>& faults) {
  if (arch.extends.empty()) return;
  if (!parent_of(arch, archs)) {
    std::vector<std::string> known;
    for (const auto& [name, other] : archs)
      if (other.platform == arch.platform && other.name != arch.name) known.push_back(other.name);
    faults.push_back(
        {arch.file, "/extends", "unknown arch '" + arch.platform + ":" + arch.extends + "'" + suggestion(arch.extends, known)});
  } else if (has_cycle(arch, archs)) {
    faults.push_back({arch.file, "/extends", arch.full_name() + " extends " + arch.extends + ", which leads back in a circle"});
  }
}

}  // namespace

std::map<std::string, Arch> resolve_archs(std::vector<Arch> list, std::vector<Fault>& faults) {
  const std::size_t before = faults.size();
  std::map<std::string, Arch> archs;
  for (Arch& arch : list) {
    const auto [place, fresh] = archs.emplace(arch.full_name(), arch);
    if (!fresh) faults.push_back({arch.file, "/arch", "the arch " + arch.full_name() + " is already described in " + place->second.file});
  }
  for (const auto& [name, arch] : archs) check_parent(arch, archs, faults);
  if (faults.size() != before) return archs;
  std::vector<Arch*> order;
  for (auto& [name, arch] : archs) order.push_back(&arch);
  std::stable_sort(order.begin(), order.end(), [&](const Arch* a, const Arch* b) { return depth_of(*a, archs) < depth_of(*b, archs); });
  for (Arch* arch : order)
    if (const Arch* parent = parent_of(*arch, archs)) inherit(*arch, *parent);
  return archs;
}

std::map<std::string, Arch> load_archs(const std::filesystem::path& folder, std::vector<Fault>& faults, std::vector<Fault>& passed_over) {
  std::vector<Arch> archs;
  auto found = json_files(folder);
  for (Fault& each : found.passed_over) passed_over.push_back(std::move(each));
  for (const std::filesystem::path& path : found.files) {
    const std::string file = path.generic_string();
    const auto text = read_text(path, faults);
    std::optional<Arch> arch = text ? load_arch(file, *text, faults) : std::nullopt;
    if (!arch) continue;
    if (arch->name != path.stem().string())
      faults.push_back(
          {file, "/arch", "the arch '" + arch->name + "' is in a file of another name; name the file " + arch->name + ".json"});
    archs.push_back(*std::move(arch));
  }
  return resolve_archs(std::move(archs), faults);
}

std::vector<const Arch*> archs_covered(const std::vector<std::string>& patterns, const std::map<std::string, Arch>& archs) {
  std::vector<const Arch*> covered;
  for (const auto& [name, arch] : archs)
    if (std::any_of(patterns.begin(), patterns.end(), [&arch = arch](const std::string& pattern) { return covers(pattern, arch); }))
      covered.push_back(&arch);
  std::stable_sort(covered.begin(), covered.end(), [](const Arch* a, const Arch* b) { return a->ancestors.size() > b->ancestors.size(); });
  return covered;
}

bool covers_some(const std::string& pattern, const std::map<std::string, Arch>& archs) {
  return std::any_of(archs.begin(), archs.end(), [&](const auto& named) { return covers(pattern, named.second); });
}

}  // namespace ejk::spec
