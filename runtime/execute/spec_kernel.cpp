// Candidates, completion of configs, and the Kernel interface of a spec.
#include "execute/spec_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "execute/facts.hpp"
#include "execute/guard.hpp"
#include "spec/expression/no_names.hpp"

namespace ejk {
namespace {

std::vector<const spec::Variant*> by_priority(const spec::Spec& spec) {
  std::vector<const spec::Variant*> variants;
  for (const auto& variant : spec.variants) variants.push_back(&variant);
  std::stable_sort(variants.begin(), variants.end(), [](const auto* a, const auto* b) { return a->priority > b->priority; });
  return variants;
}

// What an Invocation says, bound; and the machine it runs on.
struct Bound {
  spec::Binding binding;
  const Machine* machine;
};

Bound bound(const KernelHandle& handle, const Invocation& invocation) {
  const auto arguments = positional(handle, invocation.tensors, invocation.attributes);
  return {spec::bind(*handle.spec, facts_of(handle, arguments.tensors, arguments.attributes)), &machine_of(handle, arguments.tensors)};
}

bool knows_parameters(const spec::Variant& variant, const Config& config) {
  return std::all_of(config.values.begin(), config.values.end(), [&](const auto& entry) {
    return std::any_of(variant.config.begin(), variant.config.end(), [&](const auto& p) { return p.name == entry.first; });
  });
}

std::string known_parameters(const std::vector<Candidate>& candidates) {
  std::set<std::string> lines;
  for (const auto& candidate : candidates) {
    std::string names;
    for (const auto& parameter : candidate.variant->config) names += (names.empty() ? "" : ", ") + parameter.name;
    lines.insert(candidate.variant->name + ": " + (names.empty() ? "none" : names));
  }
  return fmt::format("{}", fmt::join(lines, "; "));
}

// Of memory that the call has as an input.
bool is_other_name(const spec::Spec& spec, const std::string& name) {
  const auto* output = spec.output(name);
  return output && !output->updates.empty() && output->updates != name;
}

// Whether the attribute chooses the type of a tensor that is given, which says the same.
bool told_by_a_tensor(const spec::Spec& spec, const spec::Attribute& attribute, const Invocation& call) {
  return attribute.type == spec::AttributeType::string &&
         std::any_of(spec.tensors.begin(), spec.tensors.end(), [&](const spec::TensorSpec& tensor) {
           return tensor.type == attribute.fallback.text() && call.tensors.contains(tensor.name);
         });
}

// Of an attribute whose default depends on nothing.
Value default_of(const spec::Attribute& attribute) {
  auto value = attribute.fallback.evaluate(spec::NoNames());
  if (const auto* number = std::get_if<std::int64_t>(&value); number && attribute.type == spec::AttributeType::floating)
    return static_cast<double>(*number);
  return value;
}

// Why no candidate takes a config: the reason of the candidate that came closest to taking it, the first of those.
struct Reason {
  enum Closeness { refused, arch, parameter, value };  // each passed the tests before it
  Closeness closeness = refused;
  std::string text;
  void offer(Closeness found, std::string why, bool replace = false) {
    if (!text.empty() && found <= closeness && !replace) return;
    closeness = found;
    text = std::move(why);
  }
};

// The candidate's heuristic config with the given values put in.
std::optional<spec::Config> filled(const Candidate& candidate, const spec::Binding& binding, const Config& config) {
  auto result = spec::heuristic_config(*candidate.variant, *candidate.arch, binding);
  if (!result && config.values.size() != candidate.variant->config.size()) return std::nullopt;
  if (!result) {
    result.emplace();
    for (const auto& parameter : candidate.variant->config) result->emplace_back(parameter.name, config.values.at(parameter.name));
  }
  for (auto& [name, value] : *result)
    if (const auto given = config.values.find(name); given != config.values.end()) value = given->second;
  return result;
}

}  // namespace

Candidates candidates_of(const spec::Spec& spec, const Machine& machine, const spec::Binding& binding, const std::string& named_arch) {
  Candidates result;
  for (const auto* variant : by_priority(spec)) {
    std::string reason = fmt::format("none of its archs ({}) runs here", fmt::join(variant->archs, ", "));
    bool eligible = false;
    for (const auto* listed : Library::instance().parts().catalogue.archs_of(*variant)) {
      const auto* arch = machine.arch(listed->full_name());
      if (!arch || (arch->tests_only() && arch->full_name() != named_arch)) continue;
      if (const auto clause = spec::refusal(*variant, *arch, binding)) {
        reason = "supports: " + *clause;
        continue;
      }
      result.eligible.push_back({variant, arch});
      eligible = true;
    }
    if (!eligible) result.refusals.push_back({variant->name, reason});
  }
  return result;
}

std::optional<Completed> complete(const spec::Spec& spec, const Machine& machine, const spec::Binding& binding, const Config& config,
                                  std::string& reason) {
  const auto candidates = candidates_of(spec, machine, binding, config.arch);
  Reason best;
  best.offer(Reason::refused, "no variant supports this call here");
  if (!config.variant.empty() && !spec.variant(config.variant))
    best.offer(Reason::refused, fmt::format("no variant '{}'", config.variant), true);
  for (const auto& refusal : candidates.refusals)
    if (refusal.variant == config.variant)
      best.offer(Reason::refused, fmt::format("variant '{}' refuses this call: {}", refusal.variant, refusal.reason), true);
  for (const auto& candidate : candidates.eligible) {
    if (!config.variant.empty() && candidate.variant->name != config.variant) continue;
    if (!config.arch.empty() && candidate.arch->full_name() != config.arch && candidate.arch->name != config.arch) {
      best.offer(Reason::arch, fmt::format("arch '{}' does not run here or is none of the variant's", config.arch));
      continue;
    }
    if (!knows_parameters(*candidate.variant, config)) {
      best.offer(Reason::parameter, "unknown parameter; the variants' are " + known_parameters(candidates.eligible));
      continue;
    }
    auto full = filled(candidate, binding, config);
    if (!full) {
      best.offer(Reason::value,
                 fmt::format("variant '{}' has no heuristic for this call: give all of its parameters", candidate.variant->name));
      continue;
    }
    if (const auto clause = spec::invalid_clause(*candidate.variant, *candidate.arch, binding, *full)) {
      best.offer(Reason::value, fmt::format("variant '{}' on {}: {}", candidate.variant->name, candidate.arch->full_name(), *clause));
      continue;
    }
    return Completed{candidate, std::move(*full)};
  }
  reason = best.text;
  return std::nullopt;
}

std::optional<spec::Config> valid_heuristic(const Candidate& candidate, const spec::Binding& binding) {
  auto wanted = spec::heuristic_config(*candidate.variant, *candidate.arch, binding);
  if (!wanted || !spec::invalid_clause(*candidate.variant, *candidate.arch, binding, *wanted)) return wanted;
  const auto space = spec::config_space(*candidate.variant, *candidate.arch, binding);
  const auto difference = [&](const spec::Config& config) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < config.size(); ++i) count += config[i].second != (*wanted)[i].second;
    return count;
  };
  const auto nearest =
      std::min_element(space.begin(), space.end(), [&](const auto& a, const auto& b) { return difference(a) < difference(b); });
  return nearest == space.end() ? std::nullopt : std::optional(*nearest);
}

Config public_config(const Candidate& candidate, const spec::Config& config) {
  Config result{candidate.variant->name, candidate.arch->full_name(), {}};
  for (const auto& [name, value] : config) result.values.emplace(name, value);
  return result;
}

std::vector<Config> SpecKernel::config_space(const Invocation& invocation) const {
  try {
    const auto call = bound(handle_, invocation);
    std::vector<Config> space;
    for (const auto& candidate : candidates_of(*handle_.spec, *call.machine, call.binding).eligible)
      for (const auto& config : spec::config_space(*candidate.variant, *candidate.arch, call.binding))
        space.push_back(public_config(candidate, config));
    return space;
  } catch (const std::exception&) {
    return {};  // an illegal call has no configs; run() says what is wrong with it
  }
}

Result<Config> SpecKernel::heuristic_cfg(const Invocation& invocation) const {
  return guarded([&]() -> Result<Config> {
    const auto call = bound(handle_, invocation);
    const auto candidates = candidates_of(*handle_.spec, *call.machine, call.binding);
    for (const auto& candidate : candidates.eligible)
      if (const auto config = valid_heuristic(candidate, call.binding)) return public_config(candidate, *config);
    std::string text = handle_.name + ": no variant takes this call";
    for (const auto& refusal : candidates.refusals) text += fmt::format("\n  {}: {}", refusal.variant, refusal.reason);
    return Error{ErrorCode::unsupported, text};
  });
}

Invocation SpecKernel::canonical(const Invocation& invocation) const {
  auto result = invocation;
  std::erase_if(result.tensors, [](const auto& entry) { return !entry.second.given(); });
  std::erase_if(result.tensors, [&](const auto& entry) { return is_other_name(*handle_.spec, entry.first); });
  result.varying.clear();
  for (const auto& attribute : handle_.spec->attributes) {
    if (attribute.varies) result.varying.push_back(attribute.name);
    const auto given = result.attributes.find(attribute.name);
    if (given == result.attributes.end()) continue;
    if (const auto* number = std::get_if<std::int64_t>(&given->second); number && attribute.type == spec::AttributeType::floating)
      given->second = static_cast<double>(*number);
    const auto& fallback = attribute.fallback;
    const bool fixed = fallback && fallback.names().empty() && fallback.subjects().empty();
    if ((fixed && given->second == default_of(attribute)) || told_by_a_tensor(*handle_.spec, attribute, result))
      result.attributes.erase(given);
  }
  if (result.device.empty()) {
    try {
      result.device = machine_of(handle_, positional(handle_, result.tensors, {}).tensors).probe.fingerprint;
    } catch (const std::exception&) {  // an illegal call has no device; run() says what is wrong with it
    }
  }
  return result;
}

Result<std::string> SpecKernel::source_hash(const Invocation& invocation, const Config& config) const {
  return guarded([&]() -> Result<std::string> {
    const auto call = bound(handle_, invocation);
    std::string reason;
    const auto completed = complete(*handle_.spec, *call.machine, call.binding, config, reason);
    if (!completed) return Error{ErrorCode::unsupported, handle_.name + ": " + reason};
    const auto& catalogue = Library::instance().parts().catalogue;
    const auto& arch = *catalogue.arch(completed->candidate.arch->full_name());  // as its file says: the same text on every machine
    return spec::make_image(*handle_.spec, *completed->candidate.variant, arch, call.binding, completed->config, catalogue.templates())
        .hash;
  });
}

Status SpecKernel::run(const Invocation& invocation, const Config& config) const {
  return guarded([&]() -> Status {
    const auto arguments = positional(handle_, invocation.tensors, invocation.attributes);
    const auto text = to_json(config);
    return call(&handle_, arguments.tensors, arguments.attributes, invocation.stream, text.c_str());
  });
}

std::string SpecKernel::invalid_reason(const Invocation& invocation, const Config& config) const {
  const auto call = bound(handle_, invocation);
  std::string reason;
  return complete(*handle_.spec, *call.machine, call.binding, config, reason) ? "" : reason;
}

}  // namespace ejk
