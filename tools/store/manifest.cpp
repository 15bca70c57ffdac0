// Reading manifest.json and the sources it names, and kernels.lock.
#include "store/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "command_line/arguments.hpp"
#include "spec/render/source_hash.hpp"
#include "store/files.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t longest_manifest = std::size_t{1} << 30, longest_source = std::size_t{1} << 26;

std::string read_with_advice(const fs::path& path, std::size_t limit, const char* advice) {
  std::string why;
  auto bytes = store::read_file(path, limit, why);
  if (!bytes) throw UsageError(fmt::format("{}: {}. {}", path.string(), why, advice));
  return std::move(*bytes);
}

spec::Value value_of(const ordered_json& node) {
  if (node.is_boolean()) return node.get<bool>();
  if (node.is_number_integer()) return node.get<std::int64_t>();
  if (node.is_number()) return node.get<double>();
  return node.get<std::string>();
}

std::vector<std::pair<std::string, spec::Value>> named_values(const ordered_json& object) {
  std::vector<std::pair<std::string, spec::Value>> result;
  for (const auto& [name, node] : object.items()) result.emplace_back(name, value_of(node));
  return result;
}

spec::Image image_of(const ordered_json& entry) {
  spec::Image image;
  image.id = entry.at("id").get<std::string>();
  image.kernel = entry.at("kernel").get<std::string>();
  image.variant = entry.at("variant").get<std::string>();
  image.arch = entry.at("arch").get<std::string>();
  image.file = entry.at("file").get<std::string>();
  image.hash = entry.at("hash").get<std::string>();
  image.flags = entry.at("flags").get<std::vector<std::string>>();
  image.specialisation = named_values(entry.at("specialisation"));
  image.config = named_values(entry.at("config"));
  for (const auto& [name, value] : entry.at("limits").items()) image.limits.emplace_back(name, value.get<std::int64_t>());
  return image;
}

void read_source(spec::Image& image, const fs::path& generated) {
  const auto path = generated / "src" / image.file;
  image.source = read_with_advice(path, longest_source, "Run ejk-gen again");
  const auto found = spec::source_hash(image.source);
  if (found != image.hash)
    throw UsageError(fmt::format("{}: the source's hash is {}, but the manifest says {}: it was edited or half written. Run ejk-gen again",
                                 path.string(), found, image.hash));
}

}  // namespace

std::vector<store::BuildItem> read_manifest(const fs::path& generated, const spec::Catalogue& catalogue, const std::string& select) {
  const auto path = generated / "manifest.json";
  const auto text = read_with_advice(path, longest_manifest, "Make it with `ejk-gen SPECS --out FOLDER`");
  std::vector<store::BuildItem> items;
  try {
    const auto manifest = ordered_json::parse(text);
    if (manifest.at("schema") != 1)
      throw UsageError(fmt::format("{}: expected schema 1, found {}", path.string(), manifest.at("schema").dump()));
    for (const auto& entry : manifest.at("images")) {
      auto image = image_of(entry);
      if (!matches(select, image.id)) continue;
      const auto* arch = catalogue.arch(image.arch);
      if (!arch)
        throw UsageError(fmt::format("{}: image {} is for {}, an arch the specs do not have", path.string(), image.id, image.arch));
      read_source(image, generated);
      items.push_back({std::move(image), arch});
    }
  } catch (const nlohmann::json::exception& e) {
    throw UsageError(fmt::format("{}: not a manifest of ejk-gen: {}", path.string(), e.what()));
  }
  if (items.empty() && select != "*") throw UsageError(fmt::format("--select '{}': no image of {} has such an id", select, path.string()));
  return items;
}

void keep_other_than(std::vector<store::BuildItem>& items, const fs::path& lock) {
  const auto text = read_with_advice(lock, longest_manifest, "Take an earlier one with `git show REVISION:generated/kernels.lock`");
  std::set<std::string_view> had;  // whole lines
  std::size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++number;
    if (std::count(line.begin(), line.end(), ' ') != 1)
      throw UsageError(
          fmt::format("{}:{}: expected '<id> <hash>' as in kernels.lock, found '{}'", lock.string(), number, line.substr(0, 80)));
    had.insert(line);
  }
  std::erase_if(items, [&](const auto& item) { return had.contains(item.image.id + ' ' + item.image.hash); });
}

}  // namespace ejk::tools
