// Places each launch's arguments in a plan's frame, and each workspace in its one block.
#include "execute/plan_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/guard.hpp"

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
    planned.round = launch.launch->round;
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

}  // namespace

void lay_out(Plan& plan, const KernelHandle& kernel, std::span<const TensorView* const> tensors, const spec::Geometry& geometry) {
  Layout(plan, kernel, tensors).add(geometry);
}

}  // namespace ejk
