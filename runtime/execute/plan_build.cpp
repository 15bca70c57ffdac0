// Lays out a plan: argument frame, patches, launches, workspace, extents, live requirements.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/guard.hpp"
#include "ejk/label.hpp"
#include "execute/facts.hpp"
#include "execute/fork_gate.hpp"
#include "execute/gradient_ahead.hpp"
#include "execute/plan.hpp"
#include "execute/recording_hook.hpp"

namespace ejk {
namespace {

// As templates/device/view.h declares it.
struct View {
  void* data;
  std::int64_t rank;
  std::int64_t shape[max_rank];
  std::int64_t strides[max_rank];
};

// As templates/device/tile/grid_barrier.h declares it for GPUs.
struct GridBarrier {
  void* word;
  std::uint32_t blocks;
};

bool takes_barrier(const spec::Launch& launch) {
  return std::ranges::any_of(launch.arguments, [](const auto& each) { return each.kind == spec::Argument::Kind::grid_barrier; });
}

struct alignas(tensor_map_alignment) TensorMapBytes {
  std::byte bytes[tensor_map_bytes];
};

class Layout {
 public:
  Layout(Plan& plan, const KernelHandle& kernel, std::span<const TensorView* const> tensors)
      : plan_(plan), spec_(*kernel.spec), tensors_(tensors) {}

  void add(const spec::Geometry& geometry) {
    for (const bool zero : {true, false}) {  // what must be 0 lies together, so that one memset serves it all
      for (const auto& workspace : geometry.workspace)
        if (workspace.zero == zero) add(workspace);
      if (zero) next_barrier_ = plan_.workspace_bytes;
      for (const auto& launch : geometry.launches)
        if (zero && takes_barrier(*launch.launch) && !plan_.backend->grid_barrier())
          add({"", sizeof(std::uint32_t), DType::i32, {1}, true});
    }
    for (const auto& launch : geometry.launches) add(launch);
    if (plan_.frame.size() > Plan::max_frame)
      throw CodedError(ErrorCode::internal, fmt::format("{}: a call's arguments take {} bytes, more than {}", spec_.kernel,
                                                        plan_.frame.size(), Plan::max_frame));
  }

 private:
  void add(const spec::WorkspaceSize& workspace) {
    workspaces_.push_back({workspace, plan_.workspace_bytes});
    if (workspace.zero && workspace.bytes) plan_.zero_bytes = plan_.workspace_bytes + workspace.bytes;
    plan_.workspace_bytes += (workspace.bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
  }

  void add(const spec::LaunchGeometry& launch) {
    if (launch.arguments.size() > Plan::max_arguments)
      throw CodedError(ErrorCode::internal,
                       fmt::format("{}: launch {} has more than {} arguments", spec_.kernel, launch.launch->entry, Plan::max_arguments));
    auto& planned = plan_.launches.emplace_back();
    const auto& module = plan_.resolved.obtained.module;  // none: a choice, whose image is being built
    planned.request.entry = module ? module->entry(launch.launch->entry) : nullptr;
    if (module && !planned.request.entry)
      throw CodedError(ErrorCode::device, fmt::format("{}: the binary has no entry '{}'", plan_.resolved.image.id, launch.launch->entry));
    std::copy_n(launch.grid, 3, planned.request.grid);
    std::copy_n(launch.block, 3, planned.request.block);
    std::copy_n(launch.cluster, 3, planned.request.cluster);
    planned.request.shared_bytes = launch.shared_bytes;
    planned.request.cooperative = launch.launch->cooperative;
    planned.request.overlaps = launch.launch->overlaps;
    planned.request.device = plan_.device;
    planned.request.name = launch.launch->entry.c_str();  // lives as long as the image's variant
    planned.repeat = launch.repeat;
    if (planned.request.cooperative && module) check_resident(planned.request, *launch.launch);
    for (const auto& argument : launch.arguments) {
      planned.offsets.push_back(place(argument));
      if (argument.argument->kind == spec::Argument::Kind::step) planned.step = planned.offsets.back();
    }
  }

  void check_resident(const LaunchRequest& request, const spec::Launch& launch) {
    const auto blocks = request.grid[0] * request.grid[1] * request.grid[2], fit = plan_.backend->resident_blocks(request);
    if (blocks <= fit) return;
    const bool cpu = plan_.backend->platform() == "cpu";
    const auto what = cpu ? fmt::format("{} work items with {} bytes of scratch each", blocks, request.shared_bytes)
                          : fmt::format("{} blocks of {} threads with {} bytes of dynamic shared memory", blocks,
                                        request.block[0] * request.block[1] * request.block[2], request.shared_bytes);
    throw CodedError(ErrorCode::unsupported,
                     fmt::format("{}: the cooperative launch {} has {}, which wait for each other, so all must be resident at once; {}:{} "
                                 "holds {}: make its grid that small{}",
                                 plan_.resolved.image.id, launch.entry, what, plan_.backend->platform(), plan_.device, fit,
                                 cpu ? "" : ", or its blocks smaller"));
  }

  // A word of zeros in the workspace, unless the backend has barriers of its own.
  std::uint32_t place_barrier(const LaunchRequest& request) {
    if (const auto* own = plan_.backend->grid_barrier()) return append(own);
    const auto offset = append(GridBarrier{nullptr, static_cast<std::uint32_t>(request.grid[0] * request.grid[1] * request.grid[2])});
    patch(FramePatch::Kind::workspace, 0, offset, static_cast<std::uint64_t>(next_barrier_));
    next_barrier_ += workspace_alignment;
    return offset;
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
      case Kind::step:
        return append(std::int64_t{0});
      case Kind::grid_barrier:
        return place_barrier(plan_.launches.back().request);
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
    const auto& name = argument.mapped;
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
      throw DeviceError(fmt::format("{}: {} [{}] of strides [{}]: {}", plan_.resolved.image.id, argument.mapped,
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
  std::int64_t next_barrier_ = 0;  // where in the workspace the word of the next launch that takes one is
};

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

template <class T>
std::size_t bytes_of(const std::vector<T>& vector) {
  return vector.capacity() * sizeof(T);
}

std::size_t bytes_of(const spec::Binding& binding) {
  constexpr std::size_t node = 48;  // of a map, beside its value: links, colour, malloc's own
  std::size_t bytes = sizeof binding;
  for (const auto& [name, facts] : binding.facts.tensors)
    bytes += node + sizeof name + sizeof facts + bytes_of(facts.shape) + bytes_of(facts.strides) + 2 * sizeof(void*);
  const auto values = binding.facts.attributes.size() + binding.attributes.size();
  bytes +=
      values * (node + sizeof(std::string) + sizeof(Value)) + binding.dims.size() * (node + sizeof(std::string) + sizeof(std::int64_t));
  for (const auto& [name, type] : binding.types) bytes += node + sizeof name + sizeof type;
  for (const auto& [name, dims] : binding.rests) bytes += node + sizeof name + sizeof dims + bytes_of(dims);
  return bytes;
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

std::size_t Plan::memory() const {
  constexpr std::size_t table = 128;  // its row in the process's table, and the blocks' headers
  std::size_t bytes = sizeof *this + table + bytes_of(key) + bytes_of(frame) + bytes_of(patches) + bytes_of(launches) + bytes_of(extents) +
                      bytes_of(live) + label.capacity() + bytes_of(resolved.config) + resolved.image.id.capacity() +
                      resolved.image.kernel.capacity() + resolved.obtained.from.capacity();
  for (const auto& launch : launches) bytes += bytes_of(launch.offsets);
  for (const auto& [name, value] : resolved.config) bytes += name.capacity();
  return binding ? bytes + bytes_of(*binding) : bytes;
}

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
  Layout(*plan, kernel, tensors)
      .add(spec::geometry_of(*plan->resolved.candidate.variant, plan->resolved.arch, *plan->binding, plan->resolved.config));
  add_extents(*plan, kernel, tensors);
  add_live(*plan, kernel, tensors, attributes);
  if (key) record_planned(plan->call->invocation(), machine);
  add_label(*plan, plan->call->invocation());
  if (key) slim(*plan);
  return plan;
}

}  // namespace ejk
