// Chain → image → binary that the device takes, with the fall-backs: nearest prebuilt config, the arch's parents, the next variant.
#include "execute/resolve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "common/guard.hpp"
#include "select/events.hpp"

namespace ejk {
namespace {

class Resolver {
 public:
  explicit Resolver(const BoundCall& call) : call_(call), parts_(Library::instance().parts()) {}

  // The image of one exact config; JIT if allowed.
  bool exact(const Completed& completed, bool jit) {
    auto arch = current(*completed.candidate.arch);
    auto image = call_.image(completed);
    if (!jit && being_built(image)) return false;  // by another thread, which the image's door would make us wait for
    store::Tried tried;
    auto obtained = store::obtain(parts_.places, image, arch, *call_.machine().backend, jit_policy(jit), tried);
    if (jit || obtained)
      for (auto& line : tried) result.tried.push_back(image.id + ": " + line);
    if (!obtained) return false;
    if (const auto why_not = why_not_placed(completed, arch, *obtained); !why_not.empty()) {
      unplaced = image.id + ": " + why_not;
      result.tried.push_back(unplaced);
      return false;
    }
    result.candidate = completed.candidate;
    result.arch = std::move(arch);
    result.config = completed.config;
    result.image = std::move(image);
    result.obtained = std::move(*obtained);
    return true;
  }

  // Another config of the same variant and arch that some store holds.
  bool nearest_prebuilt(const Completed& wanted) {
    const auto near = call_.decider().nearest(wanted);
    for (const auto& config : near)
      if (exact({wanted.candidate, config}, false)) return true;
    if (!near.empty())
      result.tried.push_back(fmt::format("{}.{} on {}: none of its {} other configs is in a store", call_.name(),
                                         wanted.candidate.variant->name, wanted.candidate.arch->full_name(), near.size()));
    return false;
  }

  // In the order of spec::Decider::fallbacks.
  bool fall_back(const Completed& chosen) {
    if (nearest_prebuilt(chosen)) return true;
    for (const auto& other : call_.decider().others(chosen))
      if (exact(other, true) || nearest_prebuilt(other)) return true;
    return false;
  }

  // In place of `chosen`, which no store has: what a store has in the order in which a call falls back, else what is compiled sooner.
  // False: nothing of the kind, the call waits.
  bool stand_in(const Completed& chosen) {
    auto image = call_.image(chosen);
    const auto build = build_behind(image, current(*chosen.candidate.arch), *call_.machine().backend, call_.invocation().key());
    if (!build || build->state.load(std::memory_order_acquire) != Build::State::running) return false;
    if (!built_already(chosen) && !compiled_sooner(chosen, image.source.size(), *build)) return false;
    result.awaited = build;
    result.awaited_image = std::move(image.id);
    return true;
  }

  // Leaves everything but a module.
  bool defer(const Completed& chosen) {
    auto image = call_.image(chosen);
    auto arch = current(*chosen.candidate.arch);
    std::string why_not;
    if (!call_.machine().backend->can_compile(arch, why_not)) return false;
    const auto build = build_behind(image, arch, *call_.machine().backend, call_.invocation().key());
    if (!build || build->state.load(std::memory_order_acquire) == Build::State::failed) return false;
    result.candidate = chosen.candidate;
    result.arch = std::move(arch);
    result.config = chosen.config;
    result.image = std::move(image);
    return true;
  }

  Resolved result;
  std::string unplaced;  // the last image that the device has no room for, and why

 private:
  // Of the configs whose images the stores seem to have, by the names of their folders: the source is made of those alone.
  bool built_already(const Completed& chosen) {
    const auto there = images_there();
    const auto try_one = [&](const Completed& other) { return there.contains(call_.image_id(other)) && exact(other, false); };
    const auto try_near = [&](const Completed& wanted) {
      const auto near = there.empty() ? std::vector<spec::Config>() : call_.decider().nearest(wanted);
      return std::ranges::any_of(near, [&](const auto& config) { return try_one({wanted.candidate, config}); });
    };
    if (try_near(chosen)) return true;
    return std::ranges::any_of(call_.decider().others(chosen), [&](const auto& other) { return try_one(other) || try_near(other); });
  }

  std::set<std::string> images_there() const {
    std::set<std::string> ids;
    const auto look = [&](const store::Store& store) {
      std::error_code error;
      const auto kernel = store.root() / call_.handle().spec->server().kernel;
      for (std::filesystem::directory_iterator entry(kernel, error), end; !error && entry != end; entry.increment(error)) {
        const auto name = entry->path().filename().string();
        ids.insert(name.substr(0, name.rfind('-')));  // the hash follows
      }
    };
    if (parts_.places.user) look(*parts_.places.user);
    for (const auto& pack : parts_.places.packs) look(pack);
    return ids;
  }

  // Of other variants the one with the shortest source, where that is much shorter, for compilers take time in proportion to it, about: if
  // it is there before the chosen one.
  bool compiled_sooner(const Completed& chosen, std::size_t source, const Build& awaited) {
    std::optional<Completed> shortest;
    std::size_t least = source * 2 / 3;
    for (const auto& other : call_.decider().others(chosen))
      if (const auto size = call_.image(other).source.size(); size < least) least = size, shortest = other;
    return shortest && is_first(*shortest, awaited) && exact(*shortest, true);
  }

  // Whether the stand-in is there, or is to be compiled here, before what is awaited.
  bool is_first(const Completed& stand_in, const Build& awaited) const {
    if (on_background_thread()) return true;  // its crew may have no other thread to wait for
    const auto& arch = *stand_in.candidate.arch;
    const auto build = build_behind(call_.image(stand_in), current(arch), *call_.machine().backend, call_.invocation().key());
    if (!build) return true;
    const auto runs = [](const Build& each) { return each.state.load(std::memory_order_acquire) == Build::State::running; };
    while (runs(awaited) && runs(*build)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return runs(awaited);
  }

  // Of the launches with clusters, which a part of a device may not have room for.
  std::string why_not_placed(const Completed& completed, const spec::Arch& arch, const store::Obtained& obtained) const {
    const auto& variant = *completed.candidate.variant;
    if (!obtained.module || std::ranges::all_of(variant.launches, [](const auto& launch) { return launch.cluster.empty(); })) return {};
    for (const auto& launch : spec::geometry_of(variant, arch, *call_.binding(), completed.config).launches) {
      LaunchRequest request;
      request.entry = obtained.module->entry(launch.launch->entry);
      request.device = call_.machine().device;
      std::copy_n(launch.grid, 3, request.grid);
      std::copy_n(launch.block, 3, request.block);
      std::copy_n(launch.cluster, 3, request.cluster);
      request.shared_bytes = launch.shared_bytes;
      if (!request.entry) continue;  // said where the call is laid out
      if (auto why_not = call_.machine().backend->why_not_placed(request); !why_not.empty()) return why_not;
    }
    return {};
  }

  spec::Arch current(const spec::Arch& arch) const {
    auto copy = arch;
    if (call_.machine().backend->platform() == "cpu") copy.properties["threads"] = std::int64_t{cpu_threads()};
    return copy;
  }

  store::JitPolicy jit_policy(bool wanted) const {
    if (!wanted) return {false, "only looking for a prebuilt one", {}};
    if (Library::instance().jit() == Jit::off) return {false, "EJKERNEL_JIT=off", {}};
    return {true, {}, [](const std::string& line) { log_line(line); }};
  }

  const BoundCall& call_;
  const Library::Parts& parts_;
};

[[noreturn]] void give_up(const std::string& kernel, const Resolver& resolver) {
  throw CodedError(
      ErrorCode::missing_image,
      fmt::format("{}: no binary for this call, and none could be built. Tried:\n  {}\nBuild the store with `ejk build`, or allow "
                  "compiling (EJKERNEL_JIT not off, and a compiler for it: `ejk info` tells)",
                  kernel, fmt::join(resolver.result.tried, "\n  ")));
}

// "look 0.1 ms, compiler 25 ms, ..., load 1.2 ms; assembler: attend 290 ms"
std::string stages_text(const store::Obtained& obtained) {
  std::string text;
  const auto add = [&](const Stages& stages, const char* before) {
    for (const auto& [name, seconds] : stages) {
      text += fmt::format("{}{} {:.1f} ms", before, name, seconds * 1e3);
      before = ", ";
    }
  };
  add(obtained.stages, "");
  add(obtained.assembled, "; assembler: ");
  return text;
}

void tell_stand_in(const BoundCall& call, const Resolved& resolved) {
  ++Library::counters.stand_ins;
  log_line(fmt::format("{} serves until {} is built", resolved.image.id, resolved.awaited_image));
  if (!events_wanted()) return;
  tell({Event::Kind::stand_in, call.name(), call.invocation().key(), public_config({resolved.candidate, resolved.config}), std::nullopt, 0,
        resolved.image.id + " serves until " + resolved.awaited_image + " is built"});
}

void count(const Resolved& resolved) {
  ++Library::counters.plans;
  if (!resolved.obtained.module) return;
  ++Library::counters.loads;
  if (resolved.obtained.origin == store::Origin::jit && resolved.obtained.seconds > 0)  // 0: loaded already
    count_compiled(resolved.image, resolved.obtained, resolved.tried);
  if (resolved.fallback) {
    ++Library::counters.fallbacks;
    log_line(fmt::format("fell back to {}; tried: {}", resolved.image.id, fmt::join(resolved.tried, "; ")));
  }
}

}  // namespace

void count_compiled(const spec::Image& image, const store::Obtained& obtained, const std::vector<std::string>& tried) {
  if (obtained.origin != store::Origin::jit || obtained.seconds == 0) return;
  ++Library::counters.compiles;
  log_line(fmt::format("compiled {} in {:.2f} s ({})", image.id, obtained.seconds, stages_text(obtained)));
  if (obtained.from == "in memory") log_line(fmt::format("{} is kept nowhere; {}", image.id, fmt::join(tried, "; ")));
  if (const auto& above = obtained.above_limits; !above.empty())
    log_line(fmt::format("{} is used, though it needs more than its variant's limits allow: {}", image.id, above));
}

Resolved resolve(const BoundCall& call, const Config* override_config, bool explain_all, Missing missing) {
  auto selection = call.select(override_config, explain_all);
  std::string reason;
  const auto chosen = call.complete(selection.config, reason);
  if (!chosen) throw CodedError(ErrorCode::internal, call.name() + ": the chosen config cannot be completed: " + reason);
  selection.config = public_config(*chosen);

  Resolver resolver(call);
  const bool behind = missing != Missing::wait && Library::instance().jit() == Jit::background && selection.tier != Tier::override_;
  if (behind && !resolver.exact(*chosen, false) && (missing == Missing::defer ? resolver.defer(*chosen) : resolver.stand_in(*chosen))) {
    if (resolver.result.awaited) tell_stand_in(call, resolver.result);
  } else if (!resolver.exact(*chosen, true)) {
    if (selection.tier == Tier::override_ && !resolver.unplaced.empty()) throw CodedError(ErrorCode::unsupported, resolver.unplaced);
    if (selection.tier == Tier::override_ || !resolver.fall_back(*chosen)) give_up(call.name(), resolver);
    resolver.result.fallback = true;
  }
  resolver.result.selection = std::move(selection);
  count(resolver.result);
  return std::move(resolver.result);
}

}  // namespace ejk
