// Records are judged as a call would judge them: the config must be valid, and the winner's source what it was when it was measured.
#include "generator/tuned.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <map>

#include "spec/choose/measured.hpp"

namespace ejk::generator {
namespace {

using namespace spec;

// nullopt: the spec has no such variant or parameter any more.
std::optional<Completed> placed_of(const Catalogue& catalogue, const Spec& spec, const MeasuredConfig& config) {
  Completed placed{{spec.variant(config.variant), catalogue.arch(config.arch)}, {}};
  const auto& [variant, arch] = placed.candidate;
  if (!variant || !arch || variant->config.size() != config.values.size()) return std::nullopt;
  for (const auto& parameter : variant->config) {
    const auto value = config.values.find(parameter.name);
    if (value == config.values.end()) return std::nullopt;
    placed.config.emplace_back(parameter.name, value->second);
  }
  return placed;
}

const Arch* deepest(const Catalogue& catalogue, const std::vector<std::pair<Completed, double>>& times) {
  const Arch* best = nullptr;
  for (const auto& [placed, us] : times)
    if (const auto* arch = placed.candidate.arch; !best || archs_below(catalogue, arch).size() > archs_below(catalogue, best).size())
      best = arch;
  return best;
}

// "" or why the record does not count; an empty call: its arch is none of those asked for.
std::string read_call(const Catalogue& catalogue, const MeasuredCall& measured, const std::vector<const Arch*>& archs, TunedCall& call) {
  auto spec = catalogue.kernel(measured.kernel);
  if (!spec) return fmt::format("no kernel '{}'", measured.kernel);
  const auto winner = placed_of(catalogue, *spec, measured.configs.front());
  if (!winner) return "the spec has no such config any more";
  const auto& [variant, arch] = winner->candidate;
  if (std::find(archs.begin(), archs.end(), arch) == archs.end()) return "";
  call.binding = std::make_shared<Binding>(bind(*spec, measured.facts));
  std::string reason;
  const auto& first = measured.configs.front();
  if (!Decider(catalogue, *call.binding, {arch}).complete({first.variant, arch->full_name(), first.values}, reason)) return reason;
  const auto image = make_image(*spec, *variant, *arch, *call.binding, winner->config, catalogue.templates());
  if (image.hash != measured.source) return "its winner's source has changed since it was measured";
  for (const auto& config : measured.configs)
    if (auto placed = placed_of(catalogue, *spec, config)) call.times.emplace_back(std::move(*placed), config.us);
  call.name = measured.name;
  call.place = "tuned/" + measured.place;
  call.arch = deepest(catalogue, call.times);
  call.spec = std::move(spec);
  return "";
}

}  // namespace

std::vector<const Arch*> archs_below(const Catalogue& catalogue, const Arch* arch) {
  std::vector<const Arch*> archs;
  for (; arch; arch = arch->platform == "cpu" && !arch->extends.empty() ? catalogue.arch("cpu:" + arch->extends) : nullptr)
    archs.push_back(arch);
  return archs;
}

std::vector<TunedCall> tuned_calls(const Catalogue& catalogue, const Options& options, const std::vector<const Arch*>& archs,
                                   std::vector<std::string>& skipped) {
  std::vector<TunedCall> calls;
  std::map<std::string, std::size_t> by_key;  // of rows of one call that count, the later is taken
  for (const auto& measured : read_measured(options.specs / "tuned", skipped)) {
    TunedCall call;
    std::string why;
    try {
      why = read_call(catalogue, measured, archs, call);
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (!why.empty()) {
      skipped.push_back(measured.place + ": " + why);
    } else if (call.spec) {
      const auto [known, fresh] = by_key.emplace(measured.key, calls.size());
      if (fresh)
        calls.push_back(std::move(call));
      else
        calls[known->second] = std::move(call);
    }
  }
  return calls;
}

}  // namespace ejk::generator
