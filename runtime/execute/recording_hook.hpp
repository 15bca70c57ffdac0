// What execute/ tells of plans and calls to those who record them: declared here and defined in record/, which stands on execute/.
#pragma once
#include <span>

#include "ejk/record.hpp"
#include "execute/library_state.hpp"

namespace ejk {

// The innermost open scope of this thread. Read on every call: no wrapper, no lock.
extern constinit thread_local recording::Scope* open_recording;

// A plan was made for this call: writes it to the file, if there is one. Never throws: a recording must not break a call.
void record_planned(const Invocation& invocation, const Machine& machine) noexcept;

// A call was made while a scope is open on this thread.
void record_call(const KernelHandle& kernel, std::span<const TensorView* const> tensors, std::span<const AttributeValue> attributes,
                 Stream stream) noexcept;

}  // namespace ejk
