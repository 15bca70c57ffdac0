// Whether mapped calls are one call of a larger batch dim, and its tensors.
#pragma once
#include <string>

#include "batch/mapped.hpp"
#include "spec/call/binding.hpp"

namespace ejk {

// The tensors of the one call; nullopt: `why_not` says what stands against it. binding: of one call; config: the one chosen for it.
std::optional<std::map<std::string, TensorView>> folded(const KernelHandle& kernel, const Machine& machine, const Mapped& mapped,
                                                        const Values& attributes, const spec::Binding& binding, const Config& config,
                                                        std::string& why_not);

}  // namespace ejk
