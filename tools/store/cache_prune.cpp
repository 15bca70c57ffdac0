// ejk cache prune: what goes from the user cache, and why.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backends/process/owner.hpp"
#include "command_line/command.hpp"
#include "command_line/library_options.hpp"
#include "command_line/table.hpp"
#include "store/cache_actions.hpp"
#include "store/cache_entries.hpp"
#include "store/files.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

struct Doomed {
  CacheEntry entry;
  std::string why;
};

std::string why_unused(const CacheEntry& entry) {
  if (entry.superseded) return "superseded by a newer source";
  return entry.kind == CacheEntry::Kind::image ? "" : kind_text(entry.kind);
}

// "" or why the entry goes.
std::string why_gone(const CacheEntry& entry, const Arguments& arguments, double days) {
  if (entry.in_use) return "";
  if (arguments.has("all")) return "--all";
  if (const auto why = why_unused(entry); arguments.has("unused") && !why.empty()) return why;
  if (arguments.has("older") && entry.idle_days > days) return fmt::format("not taken for {:.1f} days", entry.idle_days);
  return "";
}

// Out of what is kept, those that no call took for longest, until the rest is no larger than the limit.
void keep_within(std::vector<CacheEntry> kept, std::int64_t limit, std::vector<Doomed>& doomed) {
  std::int64_t total = 0;
  for (const auto& entry : kept) total += static_cast<std::int64_t>(entry.bytes);
  std::stable_sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) {
    return std::pair(a.kind == CacheEntry::Kind::image, -a.idle_days) < std::pair(b.kind == CacheEntry::Kind::image, -b.idle_days);
  });
  for (const auto& entry : kept) {
    if (total <= limit) return;
    if (entry.in_use) continue;
    total -= static_cast<std::int64_t>(entry.bytes);
    doomed.push_back({entry, "above --limit"});
  }
}

std::vector<Doomed> doomed_entries(const fs::path& root, const Arguments& arguments) {
  const double days = arguments.number("older", 0, 0, 1e6);
  const auto limit = size_option(arguments, "limit");
  std::vector<Doomed> doomed;
  std::vector<CacheEntry> kept;
  for (auto& entry : entries_of(root, arguments.text("GLOB|IMAGE|KERNEL", "*"))) {
    if (auto why = why_gone(entry, arguments, days); !why.empty())
      doomed.push_back({std::move(entry), std::move(why)});
    else
      kept.push_back(std::move(entry));
  }
  if (limit) keep_within(std::move(kept), *limit, doomed);
  return doomed;
}

// Out of sight in one step, then removed: no reader meets half an entry, and what a kill leaves is taken for a dead process's folder.
void remove_entry(const CacheEntry& entry) {
  std::error_code error;
  const auto hidden = entry.path.parent_path() / owned_name(store::temporary_prefix);
  fs::rename(entry.path, hidden, error);
  if (error == std::errc::no_such_file_or_directory) return;  // another prune was faster
  if (error) throw std::runtime_error(fmt::format("{} cannot be removed: {}", entry.path.string(), error.message()));
  fs::remove_all(hidden, error);
}

}  // namespace

int prune_entries(const Arguments& arguments) {
  if (!arguments.has("all") && !arguments.has("older") && !arguments.has("unused") && !arguments.has("limit"))
    throw UsageError("prune: say what: --older DAYS, --unused, --limit SIZE or --all");
  const auto& places = Library::instance().parts().places;
  if (!places.user) throw UsageError("prune: there is no user cache: " + places.why_no_user);
  const bool dry = arguments.has("dry-run");
  auto listed = ordered_json::array();
  double bytes = 0;
  for (const auto& [entry, why] : doomed_entries(places.user->root(), arguments)) {
    if (!dry) remove_entry(entry);
    const auto size = static_cast<double>(entry.bytes);
    bytes += size;
    listed.push_back({{"entry", entry.kernel + "/" + entry.name}, {"bytes", entry.bytes}, {"why", why}});
    if (!arguments.has("json"))
      fmt::print("{} {}/{} ({}): {}\n", dry ? "would remove" : "removed", entry.kernel, entry.name, bytes_text(size), why);
  }
  if (arguments.has("json"))
    fmt::print("{}\n", ordered_json{{"removed", listed.size()}, {"bytes", bytes}, {"dry_run", dry}, {"entries", listed}}.dump(2));
  else
    fmt::print("{}: {} entries {}, {}\n", places.user->root().string(), listed.size(), dry ? "would be removed" : "removed",
               bytes_text(bytes));
  return exit_done;
}

}  // namespace ejk::tools
