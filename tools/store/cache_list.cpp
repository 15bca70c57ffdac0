// ejk cache ls and verify.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "command_line/command.hpp"
#include "command_line/table.hpp"
#include "store/cache_actions.hpp"
#include "store/cache_entries.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;

std::string remark(const CacheEntry& entry) {
  if (entry.superseded) return "superseded by a newer source";
  return entry.in_use ? "its process lives" : "";
}

ordered_json json_of(const CacheEntry& entry) {
  return {{"entry", entry.kernel + "/" + entry.name},
          {"kind", kind_text(entry.kind)},
          {"id", entry.id},
          {"bytes", entry.bytes},
          {"age_days", entry.age_days},
          {"idle_days", entry.idle_days},
          {"superseded", entry.superseded}};
}

std::string pattern_of(const Arguments& arguments) { return arguments.text("GLOB|IMAGE|KERNEL", "*"); }

}  // namespace

int list_entries(const Arguments& arguments) {
  auto all = ordered_json::array();
  for (const auto& place : cache_places()) {
    const auto entries = entries_of(place.root, pattern_of(arguments));
    double bytes = 0;
    Table table({{"entry"}, {"kind"}, {"size", Align::right}, {"written", Align::right}, {"taken", Align::right}, {"remark"}});
    auto listed = ordered_json::array();
    for (const auto& entry : entries) {
      bytes += static_cast<double>(entry.bytes);
      table.row({entry.kernel + "/" + entry.name, kind_text(entry.kind), bytes_text(static_cast<double>(entry.bytes)),
                 fmt::format("{:.1f} d", entry.age_days), fmt::format("{:.1f} d", entry.idle_days), remark(entry)});
      listed.push_back(json_of(entry));
    }
    all.push_back({{"role", place.role}, {"path", place.root.string()}, {"bytes", bytes}, {"entries", std::move(listed)}});
    if (arguments.has("json")) continue;
    fmt::print("{} {}: {} entries, {}\n", place.role, place.root.string(), entries.size(), bytes_text(bytes));
    if (!entries.empty()) fmt::print("{}", table.text("  "));
  }
  if (arguments.has("json")) fmt::print("{}\n", all.dump(2));
  return exit_done;
}

namespace {

void set_aside(const std::filesystem::path& root, const CacheEntry& entry) {
  std::string ignored;
  if (const auto kernel = store::Store(root, true).folder_of(entry.kernel, ignored)) store::set_entry_aside(*kernel, entry.name);
}

}  // namespace

int verify_entries(const Arguments& arguments) {
  std::size_t sound = 0, repaired = 0;
  auto faults = ordered_json::array();
  for (const auto& place : cache_places())
    for (const auto& entry : entries_of(place.root, pattern_of(arguments))) {
      if (entry.kind != CacheEntry::Kind::image && entry.kind != CacheEntry::Kind::failed) continue;
      const auto fault = fault_of(entry);
      if (fault.empty()) {
        ++sound;
        continue;
      }
      const bool repair = arguments.has("repair") && place.writable;
      if (repair) set_aside(place.root, entry);
      repaired += repair;
      faults.push_back({{"place", place.role}, {"path", entry.path.string()}, {"fault", fault}, {"set_aside", repair}});
      if (!arguments.has("json")) fmt::print("BAD {}: {}{}\n", entry.path.string(), fault, repair ? "; set aside" : "");
    }
  if (arguments.has("json"))
    fmt::print("{}\n", ordered_json{{"sound", sound}, {"repaired", repaired}, {"faults", faults}}.dump(2));
  else
    fmt::print("{} entries are sound, {} are not{}\n", sound, faults.size(),
               repaired ? fmt::format("; {} set aside, to be built anew by the next call", repaired) : "");
  return faults.size() == repaired ? exit_done : exit_failed;
}

}  // namespace ejk::tools
