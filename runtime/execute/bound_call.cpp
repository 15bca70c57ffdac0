// Judgements are kept: the chain asks whether a config serves the call, and then resolve() asks how.
#include "execute/bound_call.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/guard.hpp"
#include "execute/spec_kernel.hpp"

namespace ejk {
namespace {

constexpr std::size_t most_judged = 64;  // a search through a space must not make a long list

std::vector<const spec::Arch*> archs_of(const Machine& machine) {
  std::vector<const spec::Arch*> archs;
  for (const auto& arch : machine.archs) archs.push_back(&arch);
  return archs;
}

}  // namespace

spec::Decider decider_of(const Machine& machine, const spec::Binding& binding) {
  return {Library::instance().parts().catalogue, binding, archs_of(machine)};
}

Config public_config(const Completed& completed) {
  Config result{completed.candidate.variant->name, completed.candidate.arch->full_name(), {}};
  for (const auto& [name, value] : completed.config) result.values.emplace(name, value);
  return result;
}

BoundCall::BoundCall(const KernelHandle& handle, std::shared_ptr<const Machine> machine, std::shared_ptr<const spec::Binding> binding,
                     Invocation invocation)
    : handle_(handle),
      machine_(std::move(machine)),
      binding_(std::move(binding)),
      invocation_(std::move(invocation)),
      decider_(decider_of(*machine_, *binding_)) {}

BoundCall::BoundCall(const KernelHandle& handle, const Machine& machine, std::shared_ptr<const spec::Binding> binding,
                     Invocation invocation)
    : BoundCall(handle, std::shared_ptr<const Machine>(std::shared_ptr<void>(), &machine), std::move(binding), std::move(invocation)) {}

std::vector<Config> BoundCall::config_space(const Invocation&) const {
  std::vector<Config> space;
  for (const auto& completed : decider_.space()) space.push_back(public_config(completed));
  return space;
}

Result<Config> BoundCall::heuristic_cfg(const Invocation&) const {
  return guarded([&]() -> Result<Config> {
    if (auto chosen = decider_.heuristic()) {
      auto config = public_config(*chosen);
      judged_.push_back(std::make_unique<Judged>(Judged{config, std::move(chosen), {}}));
      return config;
    }
    std::string text = handle_.name + ": no variant takes this call";
    for (const auto& refusal : decider_.refusals()) text += fmt::format("\n  {}: {}", refusal.variant, refusal.reason);
    return Error{ErrorCode::unsupported, text};
  });
}

Status BoundCall::run(const Invocation& invocation, const Config& config) const { return handle_.kernel->run(invocation, config); }

const BoundCall::Judged& BoundCall::judged(const Config& config) const {
  for (const auto& known : judged_)
    if (known->config == config) return *known;
  if (judged_.size() >= most_judged) judged_.clear();
  auto fresh = std::make_unique<Judged>(Judged{config, {}, {}});
  fresh->completed = decider_.complete({config.variant, config.arch, config.values}, fresh->reason);
  return *judged_.emplace_back(std::move(fresh));
}

std::string BoundCall::invalid_reason(const Invocation&, const Config& config) const {
  const auto& answer = judged(config);
  return answer.completed ? "" : answer.reason;
}

std::optional<Completed> BoundCall::complete(const Config& config, std::string& reason) const {
  const auto& answer = judged(config);
  reason = answer.reason;
  return answer.completed;
}

Completed BoundCall::completed(const Config& config) const {
  std::string reason;
  if (auto full = complete(config, reason)) return *std::move(full);
  throw CodedError(ErrorCode::bad_input, fmt::format("{}: {} cannot serve this call: {}", handle_.name, to_json(config), reason));
}

Invocation BoundCall::canonical(const Invocation& invocation) const { return handle_.kernel->canonical(invocation); }

Result<std::string> BoundCall::source_hash(const Invocation&, const Config& config) const {
  return guarded([&]() -> Result<std::string> {
    std::string reason;
    const auto full = complete(config, reason);
    if (!full) return Error{ErrorCode::unsupported, handle_.name + ": " + reason};
    return image(*full).hash;
  });
}

Result<std::string> BoundCall::code_hash(const Invocation&, const Config& config) const {
  return guarded([&]() -> Result<std::string> {
    auto& backend = *machine_->backend;
    return Library::instance().parts().places.code_of(image(config), backend.source_extension(), backend.binary_extension());
  });
}

std::optional<Nearness> BoundCall::nearness(const std::string& key, const std::string& measured_key) const {
  return handle_.kernel->nearness(key, measured_key);
}

Result<Gradient> BoundCall::gradient(const Invocation& invocation) const { return handle_.kernel->gradient(invocation); }

Selection BoundCall::select(const Config* override_config, bool explain_all) const {
  auto selection = Library::instance().parts().chain->select(*this, invocation_, override_config, explain_all);
  if (!selection) throw CodedError(selection.error().code, selection.error().message);
  return *std::move(selection);
}

std::string BoundCall::image_id(const Completed& completed) const {
  spec::VariantScope scope(*completed.candidate.variant, *completed.candidate.arch, *binding_);
  scope.set_config(completed.config);
  return spec::image_id(scope, completed.config);
}

// Kept, because a record's source is compared with that of the image which is then taken.
spec::Image BoundCall::image(const Completed& completed) const {
  if (rendered_ && rendered_->first == completed) return rendered_->second;
  auto image = spec::make_image(*handle_.spec, *completed.candidate.variant, *completed.candidate.arch, *binding_, completed.config,
                                Library::instance().parts().catalogue.templates());
  rendered_.emplace(completed, image);
  return image;
}

}  // namespace ejk
