// A plan's argument frame, patches, launches and workspace.
#pragma once
#include <span>

#include "execute/plan.hpp"

namespace ejk {

// Of a plan whose image is resolved and whose device is set. Throws CodedError: a frame too large, a binary without the entry, a
// cooperative launch whose blocks cannot all be resident; DeviceError: a tensor map that the driver refuses.
void lay_out(Plan& plan, const KernelHandle& kernel, std::span<const TensorView* const> tensors, const spec::Geometry& geometry);

}  // namespace ejk
