// A plan: everything about a call that its key decides, so that the hot path only writes pointers and launches.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/nvtx.hpp"
#include "ejk/call.hpp"
#include "execute/plan_key.hpp"
#include "execute/resolve.hpp"

namespace ejk {

// Values of a launch's arguments live in a frame of bytes that is copied to the stack and patched for each call.
struct FramePatch {
  enum class Kind : std::uint8_t { tensor, view, workspace, tensor_map, workspace_map, varying_float, varying_int, varying_bool };
  Kind kind;
  std::uint16_t index;   // of the tensor or attribute
  std::uint32_t offset;  // in the frame
  std::uint64_t bytes;   // workspace, workspace_map: offset of the buffer in the workspace
};

struct PlannedLaunch {
  LaunchRequest request;               // entry, geometry; arguments are set for each call
  std::vector<std::uint32_t> offsets;  // of each argument's value in the frame
  std::int64_t repeat = 1;             // launched so many times
  std::int64_t round = 0;              // launches of one number follow one another, and repeat in turn: A B A B
  std::uint32_t step = no_step;        // where in the frame its argument `step` is, written anew for each time
  static constexpr std::uint32_t no_step = UINT32_MAX;
};

// Byte range a tensor spans from its pointer, for the overlap check.
struct Extent {
  std::uint16_t tensor;
  bool written;            // outputs, and inputs that are updated; they stand last
  std::int64_t low, high;  // [low, high)
};

constexpr std::int64_t workspace_alignment = 256;  // of each buffer in it

struct Plan {
  static constexpr std::size_t max_frame = 16384, max_arguments = 96;

  std::vector<std::uint64_t> key;
  Resolved resolved;
  Backend* backend = nullptr;
  int device = 0;
  std::vector<std::byte> frame;
  std::vector<FramePatch> patches;
  std::vector<PlannedLaunch> launches;
  std::vector<Extent> extents;
  std::int64_t workspace_bytes = 0;
  std::int64_t zero_bytes = 0;                   // of the workspace, from its begin: what must be 0 lies there
  bool check = false;                            // EJKERNEL_CHECK
  std::shared_ptr<const spec::Binding> binding;  // for live requirements and explain
  std::shared_ptr<const BoundCall> call;         // for explain
  std::vector<std::uint32_t> live;               // requirements to judge on every call: indices in the spec
  const ProfilerRanges* ranges = nullptr;        // null: launches are not stamped, or nothing listens
  std::string label;                             // of the range round the launches

  // A stand-in whose call's own image is there by now, or cannot be: to be made anew.
  bool stale() const noexcept {
    return resolved.awaited && resolved.awaited->state.load(std::memory_order_acquire) != Build::State::running;
  }

  // About what it takes of memory, the image's module left out: many plans share it.
  std::size_t memory() const;

  // Throws CallError. Allocates nothing unless a rule is broken or the workspace must grow.
  void run(const KernelHandle& kernel, std::span<const TensorView* const> tensors, std::span<const AttributeValue> attributes,
           Stream stream, Workspace workspace = {}) const;
};

// Validates, selects, loads and lays out. Throws what resolve and bind throw. key may be null (explain; calls without data, whose tensors
// may be without memory).
enum class PlanFor { call, explanation, choice };  // choice: the image need not be loaded
std::shared_ptr<const Plan> make_plan(const KernelHandle& kernel, std::span<const TensorView* const> tensors,
                                      std::span<const AttributeValue> attributes, Stream stream, const Config* config, const PlanKey* key,
                                      PlanFor purpose = PlanFor::call);

// What the process's plans take. A thread keeps up to 512 more alive that it used and the process's table gave up.
struct PlanMemory {
  std::size_t plans = 0, bytes = 0, limit = 0;
};
PlanMemory plan_memory();

// This thread's table first (no lock), then the process's, whose least recently asked for plans go first (EJKERNEL_PLAN_MEMORY), then
// make_plan. Modules stay: a captured graph may name their entries.
const Plan& find_plan(const PlanKey& key, const KernelHandle& kernel, std::span<const TensorView* const> tensors,
                      std::span<const AttributeValue> attributes, Stream stream, const char* config);

}  // namespace ejk
