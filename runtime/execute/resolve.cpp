// Chain → image → binary, with the fall-backs: nearest prebuilt config, the arch's parents, the next variant.
#include "execute/resolve.hpp"

#include <fmt/format.h>

#include "common/guard.hpp"

namespace ejk {
namespace {

class Resolver {
 public:
  explicit Resolver(const BoundCall& call) : call_(call), parts_(Library::instance().parts()) {}

  // The image of one exact config; JIT if allowed.
  bool exact(const Completed& completed, bool jit) {
    auto arch = current(*completed.candidate.arch);
    auto image = call_.image(completed);
    store::Tried tried;
    auto obtained = store::obtain(parts_.places, image, arch, *call_.machine().backend, jit_policy(jit), tried);
    if (jit || obtained)
      for (auto& line : tried) result.tried.push_back(image.id + ": " + line);
    if (!obtained) return false;
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

  Resolved result;

 private:
  spec::Arch current(const spec::Arch& arch) const {
    auto copy = arch;
    if (call_.machine().backend->platform() == "cpu") copy.properties["threads"] = std::int64_t{cpu_threads()};
    return copy;
  }

  store::JitPolicy jit_policy(bool wanted) const {
    if (!wanted) return {false, "only looking for a prebuilt one", {}};
    if (!parts_.environment.jit) return {false, "EJKERNEL_JIT=off", {}};
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

void count(const Resolved& resolved) {
  ++Library::counters.plans;
  ++Library::counters.loads;
  if (resolved.obtained.origin == store::Origin::jit && resolved.obtained.seconds > 0) {  // 0: loaded already
    ++Library::counters.compiles;
    log_line(fmt::format("compiled {} in {:.2f} s ({})", resolved.image.id, resolved.obtained.seconds, stages_text(resolved.obtained)));
    if (resolved.obtained.from == "in memory")
      log_line(fmt::format("{} is kept nowhere; {}", resolved.image.id, fmt::join(resolved.tried, "; ")));
    if (const auto& above = resolved.obtained.above_limits; !above.empty())
      log_line(fmt::format("{} is used, though it needs more than its variant's limits allow: {}", resolved.image.id, above));
  }
  if (resolved.fallback) {
    ++Library::counters.fallbacks;
    log_line(fmt::format("fell back to {}; tried: {}", resolved.image.id, fmt::join(resolved.tried, "; ")));
  }
}

}  // namespace

Resolved resolve(const BoundCall& call, const Config* override_config, bool explain_all) {
  auto selection = call.select(override_config, explain_all);
  std::string reason;
  const auto chosen = call.complete(selection.config, reason);
  if (!chosen) throw CodedError(ErrorCode::internal, call.name() + ": the chosen config cannot be completed: " + reason);
  selection.config = public_config(*chosen);

  Resolver resolver(call);
  if (!resolver.exact(*chosen, true)) {
    if (selection.tier == Tier::override_ || !resolver.fall_back(*chosen)) give_up(call.name(), resolver);
    resolver.result.fallback = true;
  }
  resolver.result.selection = std::move(selection);
  count(resolver.result);
  return std::move(resolver.result);
}

}  // namespace ejk
