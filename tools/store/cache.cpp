// ejk cache: what the user cache and the packs hold, whether it is sound, pruning the user cache, and why an image is missed.
#include <fmt/format.h>

#include "command_line/command.hpp"
#include "command_line/library_options.hpp"
#include "spec/check/suggest.hpp"
#include "spec/read/byte_size.hpp"
#include "store/cache_actions.hpp"

namespace ejk::tools {
namespace {

struct Action {
  const char* name;
  int (*function)(const Arguments& arguments);
  std::vector<std::string> options;  // beside --store and --json
};

const std::vector<Action>& actions() {
  static const std::vector<Action> list = {{"ls", list_entries, {}},
                                           {"verify", verify_entries, {"repair"}},
                                           {"prune", prune_entries, {"older", "limit", "unused", "all", "dry-run"}},
                                           {"why-miss", why_miss, {"case", "device"}}};
  return list;
}

const Action& action_named(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& action : actions()) {
    if (name == action.name) return action;
    names.emplace_back(action.name);
  }
  throw UsageError(fmt::format("no action '{}'{}", name, spec::suggestion(name, names)));
}

// An option that another action has is a mistake, not something to pass over.
void refuse_options_of_others(const Action& chosen, const Arguments& arguments) {
  for (const auto& action : actions())
    for (const auto& option : action.options)
      if (arguments.has(option) && std::find(chosen.options.begin(), chosen.options.end(), option) == chosen.options.end())
        throw UsageError(fmt::format("--{} is for `ejk cache {}`, not for {}", option, action.name, chosen.name));
}

}  // namespace

std::vector<CachePlace> cache_places() {
  const auto& parts = Library::instance().parts();
  std::vector<CachePlace> result;
  if (parts.places.user) result.push_back({"user cache", parts.places.user->root(), true});
  for (const auto& pack : parts.places.packs) result.push_back({"pack", pack.root(), false});
  return result;
}

std::optional<std::int64_t> size_option(const Arguments& arguments, const std::string& name) {
  if (!arguments.has(name)) return std::nullopt;
  const auto size = spec::parse_byte_size(arguments.text(name));
  if (!size) throw UsageError(fmt::format("--{}: expected a size such as 500MB or 2GiB, found '{}'", name, arguments.text(name)));
  return size;
}

int cache(std::span<const std::string> words) {
  Arguments arguments(
      "cache", "ls [GLOB] | verify [GLOB] | prune [GLOB] WHAT... | why-miss IMAGE | why-miss KERNEL --case NAME",
      "ls: entries of the user cache and the packs. verify: the hashes of every entry; --repair sets bad ones of the user cache aside.\n"
      "prune: removes entries of the user cache (packs are never touched): those that any of --older, --unused and --all names, then, "
      "with\n"
      "--limit, those that no call took for longest. why-miss: what each place has instead of an image, and what differs.\n"
      "GLOB: a shell pattern over image ids or <kernel>/<entry>. Exit code of verify and why-miss: 1 if something is bad, or missed.",
      "ejk cache ls 'flash_attention*'\nejk cache verify --repair\nejk cache prune --older 30 --unused --limit 500MB --dry-run\n"
      "ejk cache why-miss mean_pooling --case minilm.f32\nejk cache why-miss \"$(ejk-gen specs --list | head -n 1)\"");
  arguments.word("ACTION", true).word("GLOB|IMAGE|KERNEL", false);
  arguments.option("case", "NAME", "why-miss: the case of KERNEL whose image is meant, with the config that would be chosen");
  arguments.option("device", "DEVICE", "why-miss: for a case, the device of the call (default cpu)");
  arguments.flag("repair", "verify: set bad entries of the user cache aside; calls build them anew");
  arguments.option("older", "DAYS", "prune: what no call took, and nobody wrote, for so long");
  arguments.flag("unused", "prune: what no call can take: superseded sources, failed builds, bad entries, leftovers of killed processes");
  arguments.option("limit", "SIZE", "prune: until the cache is no larger, e.g. 500MB");
  arguments.flag("all", "prune: everything");
  arguments.flag("dry-run", "prune: say what would go, and remove nothing");
  arguments.list("store", "DIR", "a store to look in first; may be given several times");
  arguments.flag("json", "as JSON");
  if (!arguments.parse(words)) return exit_done;
  const auto& action = action_named(arguments.text("ACTION"));
  refuse_options_of_others(action, arguments);
  for (const auto& store : arguments.texts("store")) throw_if_error(add_store(store));
  return action.function(arguments);
}

}  // namespace ejk::tools
