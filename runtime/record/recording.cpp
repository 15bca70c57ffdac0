// Recording of calls: what is kept of one; by scope on the calling thread, by plan into the process's file.
#include <algorithm>
#include <bit>

#include "common/guard.hpp"
#include "execute/facts.hpp"
#include "record/placed_call.hpp"
#include "record/recorder.hpp"

namespace ejk {
namespace {

std::map<std::string, TensorView> named(const KernelHandle& kernel, std::span<const TensorView* const> tensors) {
  std::map<std::string, TensorView> result;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i] && tensors[i]->given()) result.emplace(kernel.spec->tensors[i].name, *tensors[i]);
  return result;
}

std::int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return address == 0 ? whole_alignment : std::min(whole_alignment, std::int64_t{1} << std::min(std::countr_zero(address), 6));
}

}  // namespace

RecordedInvocation recorded_of(const Invocation& invocation, const Machine* machine) {
  RecordedInvocation recorded;
  recorded.invocation = canonical(invocation);
  for (auto& [name, view] : recorded.invocation.tensors) {
    if (const auto alignment = alignment_of(view.data); alignment < whole_alignment) recorded.alignment.emplace(name, alignment);
    view.data = nullptr;
  }
  recorded.invocation.stream = {};
  if (!machine) return recorded;
  recorded.archs = machine->probe.archs;
  for (const auto& [name, value] : machine->probe.properties) recorded.properties.emplace(name, value);
  if (machine->backend->platform() == "cpu") recorded.properties.insert_or_assign("threads", std::int64_t{cpu_threads()});
  return recorded;
}

constinit thread_local recording::Scope* open_recording = nullptr;

recording::recording() : scope_(new Scope{{}, open_recording}) { open_recording = scope_.get(); }
recording::~recording() { open_recording = scope_->outer; }

Recorded get_invocations(const recording& scope) { return {scope.scope_->calls.list(), {}}; }

void add_to_scopes(const RecordedInvocation& recorded) {
  for (auto* scope = open_recording; scope; scope = scope->outer) scope->calls.add(recorded);
}

Status record_invocation(const Invocation& invocation) {
  return guarded([&]() -> Status {
    const auto recorded = recorded_of(invocation, machine_here(invocation.device));
    if (const auto line = to_json(recorded); !line) return line.error();
    add_to_scopes(recorded);
    auto* file = RecordFile::of_process();
    if (!file) return {};
    file->add(recorded);
    const auto status = file->status();
    if (!status.error.empty()) return Error{ErrorCode::io, status.error};
    return {};
  });
}

// Called where a plan is made, not where it is used, so that recording costs a hot call nothing. It misses no call: whatever a line says
// is in the plan's key, so a call that differs from all before it has no plan yet. A plan may be made again (a config was remembered, a
// table was full); the file's set of lines knows.
void record_planned(const Invocation& invocation, const Machine& machine) noexcept {
  try {
    if (auto* file = RecordFile::of_process()) file->add(recorded_of(invocation, &machine));
  } catch (...) {
    log_line("a call is not recorded: " + current_error().message);
  }
}

void record_call(const KernelHandle& kernel, std::span<const TensorView* const> tensors, std::span<const AttributeValue> attributes,
                 Stream stream) noexcept {
  try {
    const auto& machine = machine_of(kernel, tensors);
    const auto invocation =
        invocation_of(kernel, facts_of(kernel, tensors, attributes), named(kernel, tensors), machine.probe.fingerprint, stream);
    add_to_scopes(recorded_of(invocation, &machine));
  } catch (...) {
    log_line("a call is not recorded: " + current_error().message);
  }
}

}  // namespace ejk
