// ejk cache: what the user cache and the packs hold, whether it is sound, and pruning the user cache.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "arguments.hpp"
#include "cache_entries.hpp"
#include "cache_miss.hpp"
#include "command.hpp"
#include "library_options.hpp"
#include "spec/suggest.hpp"
#include "table.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

struct Place {
  std::string role;
  fs::path root;
};

std::vector<Place> places() {
  const auto& parts = Library::instance().parts();
  std::vector<Place> result;
  if (parts.places.user) result.push_back({"user cache", parts.places.user->root()});
  for (const auto& pack : parts.places.packs) result.push_back({"pack", pack.root()});
  return result;
}

const char* kind_text(CacheEntry::Kind kind) {
  switch (kind) {
    case CacheEntry::Kind::image:
      return "image";
    case CacheEntry::Kind::failed:
      return "failed build";
    case CacheEntry::Kind::aside:
      return "set aside";
    case CacheEntry::Kind::leftover:
      return "leftover";
  }
  return "";
}

int list(const Arguments& arguments) {
  auto all = ordered_json::array();
  for (const auto& place : places()) {
    const auto entries = entries_of(place.root);
    double bytes = 0;
    Table table({{"entry"}, {"kind"}, {"size", Align::right}, {"age", Align::right}});
    auto listed = ordered_json::array();
    for (const auto& entry : entries) {
      bytes += static_cast<double>(entry.bytes);
      table.row({entry.kernel + "/" + entry.name, kind_text(entry.kind), bytes_text(static_cast<double>(entry.bytes)),
                 fmt::format("{:.1f} d", entry.age_days)});
      listed.push_back({{"entry", entry.kernel + "/" + entry.name},
                        {"kind", kind_text(entry.kind)},
                        {"bytes", entry.bytes},
                        {"age_days", entry.age_days}});
    }
    all.push_back({{"role", place.role}, {"path", place.root.string()}, {"bytes", bytes}, {"entries", std::move(listed)}});
    if (arguments.has("json")) continue;
    fmt::print("{} {}: {} entries, {}\n", place.role, place.root.string(), entries.size(), bytes_text(bytes));
    if (!entries.empty()) fmt::print("{}", table.text("  "));
  }
  if (arguments.has("json")) fmt::print("{}\n", all.dump(2));
  return exit_done;
}

int verify_entries(const Arguments& arguments) {
  std::size_t sound = 0;
  auto faults = ordered_json::array();
  for (const auto& place : places())
    for (const auto& entry : entries_of(place.root)) {
      if (entry.kind != CacheEntry::Kind::image) continue;
      const auto fault = fault_of(entry);
      if (fault.empty()) {
        ++sound;
        continue;
      }
      faults.push_back({{"place", place.role}, {"path", entry.path.string()}, {"fault", fault}});
      if (!arguments.has("json")) fmt::print("BAD {}: {}\n", entry.path.string(), fault);
    }
  if (arguments.has("json"))
    fmt::print("{}\n", ordered_json{{"sound", sound}, {"faults", faults}}.dump(2));
  else
    fmt::print("{} images are sound, {} are not\n", sound, faults.size());
  return faults.empty() ? exit_done : exit_failed;
}

// Out of sight in one step, then removed: no reader meets half an entry.
void remove_entry(const CacheEntry& entry) {
  std::error_code error;
  const auto hidden = entry.path.parent_path() / ("." + entry.name + ".pruned");
  fs::rename(entry.path, hidden, error);
  if (error) throw std::runtime_error(fmt::format("{} cannot be removed: {}", entry.path.string(), error.message()));
  fs::remove_all(hidden, error);
}

int prune(const Arguments& arguments) {
  if (arguments.has("all") == arguments.has("older-than")) throw UsageError("prune: say what: --older-than DAYS or --all");
  const double days = arguments.number("older-than", 0, 0, 1e6);
  const auto& places = Library::instance().parts().places;
  if (!places.user) throw UsageError("prune: there is no user cache: " + places.why_no_user);
  std::size_t removed = 0;
  double bytes = 0;
  for (const auto& entry : entries_of(places.user->root())) {
    if (!arguments.has("all") && entry.age_days <= days) continue;
    remove_entry(entry);
    if (!arguments.has("json")) fmt::print("removed {}/{} ({})\n", entry.kernel, entry.name, bytes_text(static_cast<double>(entry.bytes)));
    bytes += static_cast<double>(entry.bytes);
    ++removed;
  }
  if (arguments.has("json"))
    fmt::print("{}\n", ordered_json{{"removed", removed}, {"bytes", bytes}}.dump(2));
  else
    fmt::print("{}: {} entries removed, {}\n", places.user->root().string(), removed, bytes_text(bytes));
  return exit_done;
}

int miss(const Arguments& arguments) {
  if (!arguments.has("IMAGE")) throw UsageError("why-miss: name the image, as `ejk-gen --list` prints it");
  return why_miss(arguments.text("IMAGE"));
}

struct Action {
  const char* name;
  int (*function)(const Arguments& arguments);
};
constexpr Action actions[] = {{"ls", list}, {"verify", verify_entries}, {"prune", prune}, {"why-miss", miss}};

}  // namespace

int cache(std::span<const std::string> words) {
  Arguments arguments("cache", "ls | verify | prune (--older-than DAYS | --all) | why-miss IMAGE",
                      "ls: entries of the user cache and the packs. verify: the hashes of every entry. prune: removes entries of the user "
                      "cache (packs are\n"
                      "never touched). why-miss: what each place has instead of an image, and what differs.",
                      "ejk cache ls\nejk cache verify --json\nejk cache prune --older-than 30\nejk cache why-miss \"$(ejk-gen "
                      "specs --list | head -n 1)\"");
  arguments.word("ACTION", true).word("IMAGE", false);
  arguments.option("older-than", "DAYS", "prune: entries written longer ago");
  arguments.flag("all", "prune: everything");
  arguments.list("store", "DIR", "a store to look in first; may be given several times");
  arguments.flag("json", "as JSON (not why-miss)");
  if (!arguments.parse(words)) return exit_done;
  const auto name = arguments.text("ACTION");
  std::vector<std::string> names;
  for (const auto& action : actions) {
    names.emplace_back(action.name);
    if (name != action.name) continue;
    if (arguments.has("IMAGE") && name != "why-miss")
      throw UsageError(fmt::format("{}: one word too many: '{}'", name, arguments.text("IMAGE")));
    for (const auto& store : arguments.texts("store")) throw_if_error(add_store(store));
    return action.function(arguments);
  }
  throw UsageError(fmt::format("no action '{}'{}", name, spec::suggestion(name, names)));
}

}  // namespace ejk::tools
