// Chain → image → binary, with the fall-backs: nearest prebuilt config, the arch's parents, the next variant.
#include "execute/resolve.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "execute/guard.hpp"
#include "spec/choose/fallbacks.hpp"

namespace ejk {
namespace {

class Resolver {
 public:
  Resolver(const KernelHandle& kernel, const spec::Binding& binding, const Machine& machine)
      : kernel_(kernel), binding_(binding), machine_(machine), parts_(Library::instance().parts()) {}

  // The image of one exact config; JIT if allowed.
  bool exact(const Candidate& candidate, const spec::Config& config, bool jit) {
    auto arch = current(*candidate.arch);
    // Rendered with the arch as its file says, never as measured here: an image is the same text on every machine.
    const auto& written = *parts_.catalogue.arch(candidate.arch->full_name());
    auto image = spec::make_image(*kernel_.spec, *candidate.variant, written, binding_, config, parts_.catalogue.templates());
    store::Tried tried;
    auto obtained = store::obtain(parts_.places, image, arch, *machine_.backend, jit_policy(jit), tried);
    if (jit || obtained)
      for (auto& line : tried) result.tried.push_back(image.id + ": " + line);
    if (!obtained) return false;
    result.candidate = candidate;
    result.arch = std::move(arch);
    result.config = config;
    result.image = std::move(image);
    result.obtained = std::move(*obtained);
    return true;
  }

  // Another config of the same variant and arch that some store holds, the ones that differ in the fewest parameters first.
  bool nearest_prebuilt(const Candidate& candidate, const spec::Config& wanted) {
    const auto space = spec::nearest_first(spec::config_space(*candidate.variant, *candidate.arch, binding_), wanted);
    for (const auto& config : space)
      if (exact(candidate, config, false)) return true;
    if (!space.empty())
      result.tried.push_back(fmt::format("{}.{} on {}: none of its {} other configs is in a store", kernel_.name, candidate.variant->name,
                                         candidate.arch->full_name(), space.size()));
    return false;
  }

  Resolved result;

 private:
  spec::Arch current(const spec::Arch& arch) const {
    auto copy = arch;
    if (machine_.backend->platform() == "cpu") copy.properties["threads"] = std::int64_t{cpu_threads()};
    return copy;
  }

  store::JitPolicy jit_policy(bool wanted) const {
    if (!wanted) return {false, "only looking for a prebuilt one", {}};
    if (!parts_.environment.jit) return {false, "EJKERNEL_JIT=off", {}};
    return {true, {}, [](const std::string& line) { log_line(line); }};
  }

  const KernelHandle& kernel_;
  const spec::Binding& binding_;
  const Machine& machine_;
  const Library::Parts& parts_;
};

[[noreturn]] void give_up(const KernelHandle& kernel, const Resolver& resolver) {
  throw CodedError(
      ErrorCode::missing_image,
      fmt::format("{}: no binary for this call, and none could be built. Tried:\n  {}\nBuild the store with `ejk build`, or allow "
                  "compiling (EJKERNEL_JIT not off, and a compiler for it: `ejk info` tells)",
                  kernel.name, fmt::join(resolver.result.tried, "\n  ")));
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

Resolved resolve(const KernelHandle& kernel, const spec::Binding& binding, const Invocation& invocation, const Machine& machine,
                 const Config* override_config, bool explain_all) {
  auto selection = Library::instance().parts().chain->select(*kernel.kernel, invocation, override_config, explain_all);
  if (!selection) throw CodedError(selection.error().code, selection.error().message);
  std::string reason;
  const auto chosen = complete(*kernel.spec, machine, binding, selection->config, reason);
  if (!chosen) throw CodedError(ErrorCode::internal, kernel.name + ": the chosen config cannot be completed: " + reason);
  selection->config = public_config(chosen->candidate, chosen->config);

  Resolver resolver(kernel, binding, machine);
  bool found = resolver.exact(chosen->candidate, chosen->config, true);
  if (!found && selection->tier == Tier::override_) give_up(kernel, resolver);
  if (!found) {
    found = resolver.nearest_prebuilt(chosen->candidate, chosen->config);
    for (const auto& candidate : candidates_of(*kernel.spec, machine, binding).eligible) {
      if (found) break;
      if (candidate.variant == chosen->candidate.variant && candidate.arch == chosen->candidate.arch) continue;
      const auto config = valid_heuristic(candidate, binding);
      if (!config) continue;
      found = resolver.exact(candidate, *config, true) || resolver.nearest_prebuilt(candidate, *config);
    }
    resolver.result.fallback = found;
  }
  if (!found) give_up(kernel, resolver);
  resolver.result.selection = std::move(*selection);
  count(resolver.result);
  return std::move(resolver.result);
}

}  // namespace ejk
