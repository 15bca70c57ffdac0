// The hot path of a call whose plan exists: judge what can change, write pointers, launch.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/guard.hpp"
#include "execute/facts.hpp"
#include "execute/live.hpp"
#include "execute/output_check.hpp"
#include "execute/plan.hpp"

namespace ejk {
namespace {

template <class T>
void write(std::byte* frame, std::uint32_t offset, T value) {
  std::memcpy(frame + offset, &value, sizeof(T));
}

// What is written may overlap no other tensor. Ranges are compared; the message comes from bind(), which sees the addresses.
bool overlaps(std::span<const Extent> extents, std::span<const TensorView* const> tensors) {
  for (std::size_t i = extents.size(); i-- > 0 && extents[i].written;) {
    const auto* base = static_cast<const char*>(tensors[extents[i].tensor]->data);
    for (std::size_t j = 0; j < i; ++j) {
      const auto* other = static_cast<const char*>(tensors[extents[j].tensor]->data);
      if (base + extents[i].low < other + extents[j].high && other + extents[j].low < base + extents[i].high) return true;
    }
  }
  return false;
}

// An attribute the caller gave is written; one he left out keeps the default that lies in the frame already.
void write_varying(std::byte* frame, const FramePatch& patch, const AttributeValue& value) {
  using Kind = AttributeValue::Kind;
  if (value.kind == Kind::absent) return;
  if (patch.kind == FramePatch::Kind::varying_float)
    write(frame, patch.offset, static_cast<float>(value.kind == Kind::integer ? static_cast<double>(value.integer) : value.floating));
  else if (patch.kind == FramePatch::Kind::varying_int)
    write(frame, patch.offset, value.integer);
  else
    write(frame, patch.offset, value.boolean);
}

[[gnu::noinline]] void check_live(const Plan& plan, const KernelHandle& kernel, std::span<const TensorView* const> tensors,
                                  std::span<const AttributeValue> attributes) {
  for (std::size_t i = 0; i < attributes.size(); ++i)
    if (kernel.varies[i] && attributes[i].kind == AttributeValue::Kind::floating && !std::isfinite(attributes[i].floating))
      spec::bind(*kernel.spec, facts_of(kernel, tensors, attributes));  // throws: bind names the attribute and its value
  DeviceData data(*plan.backend, plan.device);
  const LiveScope scope(kernel, *plan.binding, tensors, attributes, data);
  for (const auto index : plan.live) judge_live(kernel.spec->requirements[index], scope, kernel);
}

// The call's scratch: the caller's, or the device's, given back at the end also where a launch fails.
class Scratch {
 public:
  Scratch(const Plan& plan, Stream stream, Workspace given) : plan_(plan), stream_(stream), memory_(given.memory) {
    if (!plan.workspace_bytes) return;
    owned_ = !given.memory;
    if (owned_)
      memory_ = plan.backend->acquire_workspace(plan.device, stream.handle, plan.workspace_bytes);
    else
      check(given);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (owned_ && memory_) plan_.backend->release_workspace(plan_.device, stream_.handle, memory_);
  }
  std::byte* at(std::uint64_t offset) const { return static_cast<std::byte*>(memory_) + offset; }

 private:
  void check(Workspace given) const {
    const auto rest = reinterpret_cast<std::uintptr_t>(given.memory) % workspace_alignment;
    if (given.bytes < plan_.workspace_bytes || rest != 0)
      throw CodedError(
          ErrorCode::bad_input,
          fmt::format("{}: the caller's workspace has {} bytes, {} past a multiple of {}; expected {} bytes at such a multiple",
                      plan_.resolved.image.id, given.bytes, rest, workspace_alignment, plan_.workspace_bytes));
  }

  const Plan& plan_;
  Stream stream_;
  void* memory_ = nullptr;
  bool owned_ = false;
};

// `values`: the call's frame. `step`: which of the launch's turns it is.
void launch_once(const Plan& plan, const PlannedLaunch& launch, std::byte* values, std::int64_t step, Stream stream) {
  void* arguments[Plan::max_arguments];
  for (std::size_t i = 0; i < launch.offsets.size(); ++i) arguments[i] = values + launch.offsets[i];
  if (launch.step != PlannedLaunch::no_step) write(values, launch.step, step);
  auto request = launch.request;
  request.arguments = arguments;
  plan.backend->launch(request, stream.handle);
}

}  // namespace

void Plan::run(const KernelHandle& kernel, std::span<const TensorView* const> tensors, std::span<const AttributeValue> attributes,
               Stream stream, Workspace given) const {
  if (overlaps(extents, tensors)) spec::bind(*kernel.spec, facts_of(kernel, tensors, attributes));  // throws, naming the two
  if (!live.empty()) check_live(*this, kernel, tensors, attributes);

  alignas(tensor_map_alignment) std::byte values[max_frame];
  std::copy(frame.begin(), frame.end(), values);  // may be empty
  const Scratch workspace(*this, stream, given);
  for (const auto& patch : patches) {
    switch (patch.kind) {
      case FramePatch::Kind::tensor:
        write(values, patch.offset, tensors[patch.index]->data);
        break;
      case FramePatch::Kind::workspace:
        write(values, patch.offset, workspace.at(patch.bytes));
        break;
      case FramePatch::Kind::tensor_map:
        backend->set_tensor_map_address(device, values + patch.offset, tensors[patch.index]->data);
        break;
      case FramePatch::Kind::workspace_map:
        backend->set_tensor_map_address(device, values + patch.offset, workspace.at(patch.bytes));
        break;
      case FramePatch::Kind::view:
        write(values, patch.offset, values + patch.bytes);
        break;
      default:
        write_varying(values, patch, attributes[patch.index]);
    }
  }
  if (zero_bytes && !launches.empty()) backend->zero(device, stream.handle, workspace.at(0), zero_bytes);
  const ProfilerRange range(ranges, label);
  for (std::size_t first = 0, end = 0; first < launches.size(); first = end) {
    while (end < launches.size() && launches[end].round == launches[first].round) ++end;
    for (std::int64_t step = 0; step < launches[first].repeat; ++step)
      for (std::size_t i = first; i < end; ++i) launch_once(*this, launches[i], values, step, stream);
  }
  if (check) check_outputs(*this, kernel, tensors);
}

}  // namespace ejk
