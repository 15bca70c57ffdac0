// Lays out a plan: argument frame, patches, launches, workspace, extents, live requirements.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ejk/label.hpp"
#include "execute/facts.hpp"
#include "execute/fork_gate.hpp"
#include "execute/guard.hpp"
#include "execute/plan.hpp"
#include "record/recorder.hpp"

namespace ejk {
namespace {

// As templates/device/view.h declares it.
struct View {
  void* data;
  std::int64_t rank;
  std::int64_t shape[max_rank];
  std::int64_t strides[max_rank];
};

struct alignas(tensor_map_alignment) TensorMapBytes {
  std::byte bytes[tensor_map_bytes];
};

class Layout {
 public:
  Layout(Plan& plan, const KernelHandle& kernel, std::span<const TensorView* const> tensors)
      : plan_(plan), spec_(*kernel.spec), tensors_(tensors) {}

  void add(const spec::Geometry& geometry) {
    for (const auto& workspace : geometry.workspace) {
      workspaces_.push_back({workspace, plan_.workspace_bytes});
      plan_.workspace_bytes += (workspace.bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
    }
    for (const auto& launch : geometry.launches) add(launch);
    if (plan_.frame.size() > Plan::max_frame)
      throw CodedError(ErrorCode::internal, fmt::format("{}: a call's arguments take {} bytes, more than {}", spec_.kernel,
                                                        plan_.frame.size(), Plan::max_frame));
  }

 private:
  void add(const spec::LaunchGeometry& launch) {
    if (launch.arguments.size() > Plan::max_arguments)
      throw CodedError(ErrorCode::internal,
                       fmt::format("{}: launch {} has more than {} arguments", spec_.kernel, launch.launch->entry, Plan::max_arguments));
    auto& planned = plan_.launches.emplace_back();
    planned.request.entry = plan_.resolved.obtained.module->entry(launch.launch->entry);
    if (!planned.request.entry)
      throw CodedError(ErrorCode::device, fmt::format("{}: the binary has no entry '{}'", plan_.resolved.image.id, launch.launch->entry));
    std::copy_n(launch.grid, 3, planned.request.grid);
    std::copy_n(launch.block, 3, planned.request.block);
    std::copy_n(launch.cluster, 3, planned.request.cluster);
    planned.request.shared_bytes = launch.shared_bytes;
    planned.request.cooperative = launch.launch->cooperative;
    planned.request.overlaps = launch.launch->overlaps;
    planned.request.device = plan_.device;
    for (const auto& argument : launch.arguments) planned.offsets.push_back(place(argument));
  }

  std::uint32_t place(const spec::ArgumentValue& argument) {
    using Kind = spec::Argument::Kind;
    switch (argument.argument->kind) {
      case Kind::pointer:
        return place_pointer(argument.argument->name);
      case Kind::view:
        return place_view(argument.argument->name);
      case Kind::value:
        return place_value(argument);
      case Kind::tensor_map:
        return place_tensor_map(argument);
    }
    throw CodedError(ErrorCode::internal, fmt::format("{}: an argument of an unknown kind", plan_.resolved.image.id));
  }

  std::uint32_t place_pointer(const std::string& name) {
    const auto offset = append<void*>(nullptr);
    if (const auto index = tensor_index(name)) {
      if (tensors_[*index] && tensors_[*index]->given()) patch(FramePatch::Kind::tensor, *index, offset);
      return offset;
    }
    if (is_served(name)) return offset;
    patch(FramePatch::Kind::workspace, 0, offset, static_cast<std::uint64_t>(buffer(name).offset));
    return offset;
  }

  // Encoded here but for the address, which run() puts in. All zeros where the tensor is not given.
  std::uint32_t place_tensor_map(const spec::ArgumentValue& argument) {
    const auto& name = argument.argument->name;
    const auto offset = append(TensorMapBytes{});
    if (const auto index = tensor_index(name)) {
      if (!tensors_[*index] || !tensors_[*index]->given()) return offset;
      const auto& view = *tensors_[*index];
      encode(argument, offset,
             {view.type, view.data, {view.shape, view.shape + view.rank}, {view.strides, view.strides + view.rank}, {}, 0});
      patch(FramePatch::Kind::tensor_map, *index, offset);
      return offset;
    }
    if (is_served(name)) return offset;
    const auto& [size, at] = buffer(name);
    TensorMapRequest request{size.type, nullptr, size.shape, size.shape, {}, 0};
    std::int64_t stride = 1;
    for (std::size_t i = size.shape.size(); i-- > 0; stride *= std::max<std::int64_t>(size.shape[i], 1)) request.strides[i] = stride;
    encode(argument, offset, std::move(request));
    patch(FramePatch::Kind::workspace_map, 0, offset, static_cast<std::uint64_t>(at));
    return offset;
  }

  void encode(const spec::ArgumentValue& argument, std::uint32_t offset, TensorMapRequest request) {
    request.box = argument.box;
    request.swizzle = argument.argument->swizzle;
    request.device = plan_.device;
    TensorMapBytes map{};
    try {
      plan_.backend->encode_tensor_map(request, &map);
    } catch (const DeviceError& error) {
      throw DeviceError(fmt::format("{}: {} [{}] of strides [{}]: {}", plan_.resolved.image.id, argument.argument->name,
                                    fmt::join(request.shape, ", "), fmt::join(request.strides, ", "), error.what()));
    }
    std::memcpy(plan_.frame.data() + offset, &map, sizeof map);
  }

  std::uint32_t place_view(const std::string& name) {
    View view{nullptr, -1, {}, {}};
    const auto index = tensor_index(name);
    const auto* tensor = index ? tensors_[*index] : nullptr;  // none: only the serving kernel has it
    const bool given = tensor && tensor->given();
    if (given) {
      view.rank = tensor->rank;
      std::copy_n(tensor->shape, tensor->rank, view.shape);
      std::copy_n(tensor->strides, tensor->rank, view.strides);
    }
    const auto view_offset = append(view);
    if (given) patch(FramePatch::Kind::tensor, *index, view_offset);
    if (plan_.backend->platform() != "cpu") return view_offset;  // by value
    // The argument is a pointer to the view: the view lies in the frame, and so must be pointed at where the frame is copied to.
    const auto offset = append<void*>(nullptr);
    patch(FramePatch::Kind::view, 0, offset, view_offset);
    return offset;
  }

  std::uint32_t place_value(const spec::ArgumentValue& argument) {
    const auto& attributes = spec_.attributes;
    const auto name = argument.argument->expression.as_name();
    const auto found = std::find_if(attributes.begin(), attributes.end(), [&](const auto& a) { return a.varies && name == a.name; });
    const auto offset = std::visit([&](const auto& v) { return append_value(v); }, argument.value);
    if (found != attributes.end()) {
      const auto kind = std::holds_alternative<double>(argument.value) ? FramePatch::Kind::varying_float
                        : std::holds_alternative<bool>(argument.value) ? FramePatch::Kind::varying_bool
                                                                       : FramePatch::Kind::varying_int;
      patch(kind, static_cast<std::size_t>(found - attributes.begin()), offset);
    }
    return offset;
  }

  std::uint32_t append_value(std::int64_t value) { return append(value); }
  std::uint32_t append_value(bool value) { return append(value); }
  std::uint32_t append_value(double value) { return append(static_cast<float>(value)); }
  std::uint32_t append_value(const std::string&) {
    throw CodedError(ErrorCode::internal, spec_.kernel + ": a string cannot be a launch argument");
  }

  template <class T>
  std::uint32_t append(T value) {
    constexpr std::size_t alignment = std::max<std::size_t>(alignof(T), 8);
    const auto offset = (plan_.frame.size() + alignment - 1) / alignment * alignment;
    plan_.frame.resize(offset + sizeof(T));
    std::memcpy(plan_.frame.data() + offset, &value, sizeof(T));
    return static_cast<std::uint32_t>(offset);
  }

  void patch(FramePatch::Kind kind, std::size_t index, std::uint32_t offset, std::uint64_t bytes = 0) {
    plan_.patches.push_back({kind, static_cast<std::uint16_t>(index), offset, bytes});
  }

  std::optional<std::size_t> tensor_index(const std::string& name) const {
    for (std::size_t i = 0; i < spec_.tensors.size(); ++i)
      if (spec_.tensors[i].name == name) return i;
    return std::nullopt;
  }

  // A tensor that only the kernel has whose variants serve this one: never given.
  bool is_served(const std::string& name) const { return spec_.served_by && spec_.served_by->tensor(name); }

  struct Buffer {
    spec::WorkspaceSize size;
    std::int64_t offset;
  };
  const Buffer& buffer(const std::string& name) const {
    const auto found = std::find_if(workspaces_.begin(), workspaces_.end(), [&](const auto& each) { return each.size.name == name; });
    if (found == workspaces_.end())
      throw CodedError(ErrorCode::internal, fmt::format("{}: no tensor or workspace '{}'", spec_.kernel, name));
    return *found;
  }

  Plan& plan_;
  const spec::Spec& spec_;
  std::span<const TensorView* const> tensors_;
  std::vector<Buffer> workspaces_;
};

std::optional<Extent> extent_of(const TensorView& view, std::size_t index, bool output) {
  Extent extent{static_cast<std::uint16_t>(index), output, 0, size_of(view.type)};
  for (int i = 0; i < view.rank; ++i) {
    if (view.shape[i] == 0) return std::nullopt;
    const auto reach = (view.shape[i] - 1) * view.strides[i] * size_of(view.type);
    (reach < 0 ? extent.low : extent.high) += reach;
  }
  return extent;
}

void add_extents(Plan& plan, const KernelHandle& kernel, std::span<const TensorView* const> tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i] && tensors[i]->given())
      if (const auto extent = extent_of(*tensors[i], i, i >= kernel.inputs)) plan.extents.push_back(*extent);
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

}  // namespace

std::shared_ptr<const Plan> make_plan(const KernelHandle& kernel, std::span<const TensorView* const> tensors,
                                      std::span<const AttributeValue> attributes, Stream stream, const char* config, const PlanKey* key,
                                      bool explain_all) {
  const ForkGate gate;
  auto facts = facts_of(kernel, tensors, attributes);
  const auto& machine = machine_of(kernel, tensors);
  auto plan = std::make_shared<Plan>();
  auto binding = std::make_shared<spec::Binding>(spec::bind(*kernel.spec, std::move(facts)));
  check_tensors(kernel, *binding, tensors, key != nullptr);
  spec::check_live_requirements(*binding);

  const auto invocation = invocation_of(kernel, binding->facts, named(kernel, tensors), machine.probe.fingerprint, stream);
  std::optional<Config> override_config;
  if (config) {
    auto parsed = config_from_json(config);
    if (!parsed) throw CodedError(parsed.error().code, kernel.name + ": " + parsed.error().message);
    override_config = std::move(*parsed);
  }
  plan->resolved = resolve(kernel, *binding, invocation, machine, override_config ? &*override_config : nullptr, explain_all);
  plan->backend = machine.backend;
  plan->device = machine.device;
  plan->check = Library::instance().parts().environment.check && machine.backend->platform() == "cpu";
  plan->binding = std::move(binding);
  if (key) plan->key.assign(key->words, key->words + key->size);
  Layout(*plan, kernel, tensors)
      .add(spec::geometry_of(*plan->resolved.candidate.variant, plan->resolved.arch, *plan->binding, plan->resolved.config));
  add_extents(*plan, kernel, tensors);
  add_live(*plan, kernel, tensors, attributes);
  if (key) record_planned(invocation, machine);
  add_label(*plan, invocation);
  return plan;
}

}  // namespace ejk
