// Makes a plan: binds the call, resolves its image, has it laid out, and adds what run() checks.
#include <fmt/format.h>

#include <algorithm>

#include "common/guard.hpp"
#include "ejk/label.hpp"
#include "execute/facts.hpp"
#include "execute/fork_gate.hpp"
#include "execute/gradient_ahead.hpp"
#include "execute/plan.hpp"
#include "execute/plan_layout.hpp"
#include "execute/recording_hook.hpp"

namespace ejk {
namespace {

std::optional<Extent> extent_of(const TensorView& view, std::size_t index, bool written) {
  Extent extent{static_cast<std::uint16_t>(index), written, 0, size_of(view.type)};
  for (int i = 0; i < view.rank; ++i) {
    if (view.shape[i] == 0) return std::nullopt;
    const auto reach = (view.shape[i] - 1) * view.strides[i] * size_of(view.type);
    (reach < 0 ? extent.low : extent.high) += reach;
  }
  return extent;
}

void add_extents(Plan& plan, const KernelHandle& kernel, std::span<const TensorView* const> tensors) {
  for (const bool written : {false, true})  // what is only read comes first: run() looks from the end
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i] && tensors[i]->given() && kernel.spec->tensors[i].written() == written)
        if (const auto extent = extent_of(*tensors[i], i, written)) plan.extents.push_back(*extent);
}

bool reads(const spec::Requirement& requirement, const std::string& tensor) {
  return std::find(requirement.reads.begin(), requirement.reads.end(), tensor) != requirement.reads.end();
}

// Whether a requirement's data can be read: it is given, and on the host, unless `check` makes devices' data readable. Else it is trusted.
bool judgeable(const spec::Requirement& requirement, const KernelHandle& kernel, std::span<const TensorView* const> tensors, bool check) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (reads(requirement, kernel.spec->tensors[i].name) &&
        (!tensors[i] || !tensors[i]->given() || (tensors[i]->device.type != DeviceType::cpu && !check)))
      return false;
  return true;
}

// Requirements whose answer can change under one key: those that read a given host tensor, and those over a varying attribute that is
// given.
void add_live(Plan& plan, const KernelHandle& kernel, std::span<const TensorView* const> tensors,
              std::span<const AttributeValue> attributes) {
  const auto& spec = *kernel.spec;
  const bool check = Library::instance().parts().environment.check;
  for (std::size_t r = 0; r < spec.requirements.size(); ++r) {
    const auto& requirement = spec.requirements[r];
    bool live = false;
    for (std::size_t i = 0; i < tensors.size(); ++i) live |= reads(requirement, spec.tensors[i].name);
    const auto names = requirement.that.names();
    for (std::size_t i = 0; i < attributes.size(); ++i)
      live |= kernel.varies[i] && attributes[i].kind != AttributeValue::Kind::absent && names.contains(spec.attributes[i].name);
    if (live && judgeable(requirement, kernel, tensors, check)) plan.live.push_back(static_cast<std::uint32_t>(r));
  }
}

// What bind() cannot see or leaves open: memory behind every tensor, and every required output.
void check_tensors(const KernelHandle& kernel, const spec::Binding& binding, std::span<const TensorView* const> tensors, bool will_run) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = kernel.spec->tensors[i];
    const bool given = tensors[i] && tensors[i]->given();
    if (will_run && given && !tensors[i]->data && tensors[i]->elements() > 0)
      throw CodedError(ErrorCode::bad_input, fmt::format("{}: {} has no memory: its data pointer is null, but it has {} elements",
                                                         kernel.name, tensor.name, tensors[i]->elements()));
    const auto address = reinterpret_cast<std::uintptr_t>(given ? tensors[i]->data : nullptr);
    const auto size = given ? size_of(tensors[i]->type) : 1;
    if (given && tensors[i]->device.type != DeviceType::cpu && address % static_cast<std::uintptr_t>(size) != 0)
      throw CodedError(ErrorCode::bad_input,
                       fmt::format("{}: {} lies at an address that is no multiple of its element size, {} bytes; {} reads no such memory",
                                   kernel.name, tensor.name, size, name_of(tensors[i]->device)));
    if (!given && tensor.output && !tensor.optional)
      throw CodedError(ErrorCode::bad_input,
                       fmt::format("{}: output {} is missing, {}", kernel.name, tensor.name, expected_output(binding, tensor)));
  }
}

std::map<std::string, TensorView> named(const KernelHandle& kernel, std::span<const TensorView* const> tensors) {
  std::map<std::string, TensorView> result;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i] && tensors[i]->given()) result.emplace(kernel.spec->tensors[i].name, *tensors[i]);
  return result;
}

// EJKERNEL_OPS_STAMP is looked at here, so that it costs calls nothing while it is off. A call whose JSON cannot be written has no label.
void add_label(Plan& plan, const Invocation& invocation) {
  const auto& stamp = Library::instance().parts().environment.stamp;
  if (stamp == "none" || !profiler_ranges().listening()) return;
  const auto text = label(invocation, stamp == "json" ? Stamp::json : Stamp::hash);
  if (!text) return;
  plan.label = *text;
  plan.ranges = &profiler_ranges();
}

// What a call needs no more once it is laid out, and an explanation, which is made anew, does: the source alone is most of a plan.
void slim(Plan& plan) {
  auto& resolved = plan.resolved;
  resolved.image = {resolved.image.kernel, {}, {}, {}, {}, std::move(resolved.image.id), {}, {}, {}, {}, {}};
  resolved.image.source.shrink_to_fit();  // to assign an empty text keeps the old one's memory
  resolved.arch = {};
  resolved.tried = {};
  resolved.awaited_image = {};
  resolved.selection = {};
  resolved.obtained.stages = {};
  resolved.obtained.assembled = {};
  plan.call = nullptr;
  if (plan.live.empty()) plan.binding = nullptr;
  plan.frame.shrink_to_fit();
  plan.patches.shrink_to_fit();
  plan.launches.shrink_to_fit();
  plan.extents.shrink_to_fit();
}

// Two runs of a deterministic call agree bit for bit, which two images need not; a graph would keep the stand-in.
Missing missing_for(const Plan& plan, PlanFor purpose, Stream stream) {
  if (Library::instance().jit() != Jit::background || on_background_thread()) return Missing::wait;
  if (purpose == PlanFor::choice) return Missing::defer;
  const auto& attributes = plan.call->binding()->attributes;
  const auto deterministic = attributes.find("deterministic");
  if (deterministic != attributes.end() && deterministic->second == Value(true)) return Missing::wait;
  const auto& machine = plan.call->machine();
  return machine.backend->capturing(machine.device, stream.handle) ? Missing::wait : Missing::stand_in;
}

}  // namespace

std::shared_ptr<const Plan> make_plan(const KernelHandle& kernel, std::span<const TensorView* const> tensors,
                                      std::span<const AttributeValue> attributes, Stream stream, const Config* config, const PlanKey* key,
                                      PlanFor purpose) {
  const ForkGate gate;
  auto facts = facts_of(kernel, tensors, attributes);
  const auto& machine = machine_of(kernel, tensors);
  auto plan = std::make_shared<Plan>();
  auto binding = std::make_shared<spec::Binding>(spec::bind(*kernel.spec, std::move(facts)));
  check_tensors(kernel, *binding, tensors, key != nullptr);
  spec::check_live_requirements(*binding);

  plan->call = std::make_shared<BoundCall>(
      kernel, machine, binding, invocation_of(kernel, binding->facts, named(kernel, tensors), machine.probe.fingerprint, stream));
  if (key) build_gradient_ahead(plan->call->invocation());
  plan->resolved = resolve(*plan->call, config, purpose == PlanFor::explanation, missing_for(*plan, purpose, stream));
  plan->backend = machine.backend;
  plan->device = machine.device;
  plan->check = Library::instance().parts().environment.check && machine.backend->platform() == "cpu";
  plan->binding = std::move(binding);
  if (key) plan->key.assign(key->words, key->words + key->size);
  lay_out(*plan, kernel, tensors,
          spec::geometry_of(*plan->resolved.candidate.variant, plan->resolved.arch, *plan->binding, plan->resolved.config));
  add_extents(*plan, kernel, tensors);
  add_live(*plan, kernel, tensors, attributes);
  if (key) record_planned(plan->call->invocation(), machine);
  add_label(*plan, plan->call->invocation());
  if (key) slim(*plan);
  return plan;
}

}  // namespace ejk
