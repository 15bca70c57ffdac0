// Candidates by rank, configs by nearness.
#include "spec/choose/decider.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace ejk::spec {
namespace {

std::vector<const Variant*> all_of(const Spec& spec) {
  std::vector<const Variant*> variants;
  for (const auto& variant : spec.variants) variants.push_back(&variant);
  return variants;
}

// Calls on CPUs need no variants of GPUs: they may stay unread.
std::vector<const Variant*> variants_for(const std::vector<const Arch*>& archs, const Spec& spec) {
  const bool cpus = std::ranges::all_of(archs, [](const Arch* arch) { return arch->platform == "cpu"; });
  return cpus ? spec.variants.ready() : all_of(spec);
}

std::vector<const Variant*> by_priority(std::vector<const Variant*> variants) {
  std::stable_sort(variants.begin(), variants.end(), [](const auto* a, const auto* b) { return a->priority > b->priority; });
  return variants;
}

bool is_named(const Arch& arch, std::string_view name) { return name == arch.name || name == arch.full_name(); }

bool knows_parameters(const Variant& variant, const std::map<std::string, Value>& values) {
  return std::ranges::all_of(values, [&](const auto& entry) {
    return std::ranges::any_of(variant.config, [&](const auto& parameter) { return parameter.name == entry.first; });
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

// Why no candidate takes a request: the reason of the candidate that came closest to taking it, the first of those.
struct Reason {
  enum Closeness { refused, arch, parameter, value };  // each passed the tests before it
  Closeness closeness = refused;
  std::string text;
  void offer(Closeness found, std::string why) {
    if (found <= closeness) return;
    closeness = found;
    text = std::move(why);
  }
};

std::size_t differences(const Config& a, const Config& b) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) count += a[i].second != b[i].second;
  return count;
}

// The configs but `wanted`, those that differ from it in the fewest parameters first.
std::vector<Config> nearest_first(std::vector<Config> configs, const Config& wanted) {
  std::erase(configs, wanted);
  std::ranges::stable_sort(configs, {}, [&](const Config& config) { return differences(config, wanted); });
  return configs;
}

bool has_all(const Config& config, const std::map<std::string, Value>& fixed) {
  return std::ranges::all_of(config, [&](const auto& parameter) {
    const auto given = fixed.find(parameter.first);
    return given == fixed.end() || given->second == parameter.second;
  });
}

// `wanted`, or if it is not valid the valid config with the fixed values that differs from it in the fewest parameters.
std::optional<Config> nearest_valid(const Candidate& candidate, const Binding& binding, Config wanted,
                                    const std::map<std::string, Value>& fixed, std::string& broken) {
  const auto& [variant, arch] = candidate;
  const auto clause = invalid_clause(*variant, *arch, binding, wanted);
  if (!clause) return wanted;
  broken = *clause;
  if (fixed.size() == variant->config.size()) return std::nullopt;
  std::optional<Config> best;
  std::size_t least = 0;
  for (auto& config : config_space(*variant, *arch, binding)) {
    const auto difference = differences(config, wanted);
    if (!has_all(config, fixed) || (best && difference >= least)) continue;
    best = std::move(config);
    least = difference;
  }
  return best;
}

}  // namespace

std::optional<Config> valid_heuristic(const Candidate& candidate, const Binding& binding) {
  auto wanted = heuristic_config(*candidate.variant, *candidate.arch, binding);
  std::string broken;
  return wanted ? nearest_valid(candidate, binding, *std::move(wanted), {}, broken) : std::nullopt;
}

Decider::Decider(const Catalogue& catalogue, const Binding& binding, std::vector<const Arch*> archs)
    : catalogue_(catalogue), binding_(binding), archs_(std::move(archs)), variants_(by_priority(variants_for(archs_, *binding.spec))) {}

Decider::Listing& Decider::listing(std::string_view named_arch) {
  const auto is_for_tests = [&](const Arch* arch) { return arch->tests_only() && arch->full_name() == named_arch; };
  if (!named_arch.empty() && std::ranges::none_of(archs_, is_for_tests)) named_arch = {};
  return listings_[std::string(named_arch)];
}

std::optional<Refusal> Decider::judge(const Variant& variant, std::string_view named_arch, std::vector<Candidate>& eligible) const {
  std::string reason;
  const auto before = eligible.size();
  for (const auto* listed : catalogue_.archs_of(variant)) {
    const auto here =
        std::ranges::find_if(archs_, [&](const Arch* arch) { return arch->name == listed->name && arch->platform == listed->platform; });
    if (here == archs_.end() || ((*here)->tests_only() && (*here)->full_name() != named_arch)) continue;
    if (const auto clause = refusal(variant, **here, binding_)) {
      reason = "supports: " + *clause;
      continue;
    }
    eligible.push_back({&variant, *here});
  }
  if (eligible.size() > before) return std::nullopt;
  if (reason.empty()) reason = fmt::format("none of its archs ({}) runs here", fmt::join(variant.archs, ", "));
  return Refusal{variant.name, std::move(reason)};
}

const Candidate* Decider::at(Listing& listing, std::size_t index, std::string_view named_arch) {
  while (index >= listing.eligible.size() && listing.judged < variants_.size())
    judge(*variants_[listing.judged++], named_arch, listing.eligible);
  return index < listing.eligible.size() ? &listing.eligible[index] : nullptr;
}

const std::vector<Candidate>& Decider::eligible(std::string_view named_arch) {
  auto& all = listing(named_arch);
  at(all, SIZE_MAX, named_arch);
  return all.eligible;
}

const std::vector<Refusal>& Decider::refusals(std::string_view named_arch) {
  auto& refusals = listing(named_arch).refusals;
  if (refusals) return *refusals;
  refusals.emplace();
  std::vector<Candidate> eligible;
  for (const auto* variant : by_priority(all_of(*binding_.spec)))
    if (auto refusal = judge(*variant, named_arch, eligible)) refusals->push_back(*std::move(refusal));
  return *refusals;
}

const std::optional<Config>& Decider::wanted(const Candidate& candidate) {
  for (const auto& [known, config] : heuristics_)
    if (known == candidate) return config;
  return heuristics_.emplace_back(candidate, heuristic_config(*candidate.variant, *candidate.arch, binding_)).second;
}

// The heuristic's config with the request's values put in, or of these alone.
std::optional<Config> Decider::filled(const Candidate& candidate, const Request& request) {
  auto result = wanted(candidate);
  if (!result && request.values.size() != candidate.variant->config.size()) return std::nullopt;
  if (!result) {
    result.emplace();
    for (const auto& parameter : candidate.variant->config) result->emplace_back(parameter.name, request.values.at(parameter.name));
  }
  for (auto& [name, value] : *result)
    if (const auto given = request.values.find(name); given != request.values.end()) value = given->second;
  return result;
}

std::optional<Completed> Decider::heuristic(const std::function<bool(const Candidate&)>& among) {
  auto& all = listing({});
  std::string broken;
  for (std::size_t i = 0; at(all, i, {}); ++i) {
    const auto candidate = all.eligible[i];
    if (among && !among(candidate)) continue;
    const auto& rule = wanted(candidate);
    if (!rule) continue;
    if (auto config = nearest_valid(candidate, binding_, *rule, {}, broken)) return Completed{candidate, *std::move(config)};
  }
  return std::nullopt;
}

std::optional<Completed> Decider::complete(const Request& request, std::string& reason) {
  auto& all = listing(request.arch);
  Reason best;
  for (std::size_t i = 0; at(all, i, request.arch); ++i) {
    const auto candidate = all.eligible[i];
    const auto& [variant, arch] = candidate;
    if (!request.variant.empty() && variant->name != request.variant) continue;
    if (!request.arch.empty() && !is_named(*arch, request.arch)) {
      best.offer(Reason::arch, fmt::format("arch '{}' does not run here or is none of the variant's", request.arch));
      continue;
    }
    if (!knows_parameters(*variant, request.values)) {
      best.offer(Reason::parameter, "unknown parameter; the variants' are " + known_parameters(eligible(request.arch)));
      continue;
    }
    auto full = filled(candidate, request);
    if (!full) {
      best.offer(Reason::value, fmt::format("variant '{}' has no heuristic for this call: give all of its parameters", variant->name));
      continue;
    }
    std::string broken;
    if (auto config = nearest_valid(candidate, binding_, *std::move(full), request.values, broken))
      return Completed{candidate, *std::move(config)};
    best.offer(Reason::value, fmt::format("variant '{}' on {}: {}", variant->name, arch->full_name(), broken));
  }
  reason = best.text.empty() ? why_none(request) : std::move(best.text);
  return std::nullopt;
}

// Of a request whose variant is not there, or refuses the call.
std::string Decider::why_none(const Request& request) {
  if (request.variant.empty()) return "no variant supports this call here";
  if (!binding_.spec->variant(request.variant)) return fmt::format("no variant '{}'", request.variant);
  for (const auto& [variant, reason] : refusals(request.arch))
    if (variant == request.variant) return fmt::format("variant '{}' refuses this call: {}", variant, reason);
  return "no variant supports this call here";
}

std::vector<Completed> Decider::space() {
  std::vector<Completed> all;
  for (const auto& candidate : eligible())
    for (auto& config : config_space(*candidate.variant, *candidate.arch, binding_)) all.push_back({candidate, std::move(config)});
  return all;
}

std::vector<Config> Decider::nearest(const Completed& chosen) const {
  return nearest_first(config_space(*chosen.candidate.variant, *chosen.candidate.arch, binding_), chosen.config);
}

std::vector<Completed> Decider::others(const Completed& chosen) {
  std::vector<Completed> others;
  std::string broken;
  for (const auto& candidate : eligible()) {
    if (candidate == chosen.candidate) continue;
    const auto& rule = wanted(candidate);
    if (!rule) continue;
    if (auto config = nearest_valid(candidate, binding_, *rule, {}, broken)) others.push_back({candidate, *std::move(config)});
  }
  return others;
}

std::vector<Completed> Decider::fallbacks(const Completed& chosen, const ConfigsOf& configs_of) {
  std::vector<Completed> order;
  const auto add_nearest = [&](const Completed& of) {
    auto configs = configs_of ? nearest_first(configs_of(of.candidate), of.config) : nearest(of);
    for (auto& config : configs) order.push_back({of.candidate, std::move(config)});
  };
  add_nearest(chosen);
  for (auto& other : others(chosen)) {
    order.push_back(other);
    add_nearest(other);
  }
  return order;
}

}  // namespace ejk::spec
