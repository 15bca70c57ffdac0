// A kernel that is bound to one call: the chain asks it in the kernel's place, so that the call is bound once. Not for users' own kernels,
// which are asked for each answer as Kernel has it.
#pragma once
#include <memory>

#include "ejk/kernel.hpp"

namespace ejk {

// Answers for the invocation that it was made for, on one thread. It does not live long: nothing is remembered by its address.
class BoundKernel : public Kernel {
 public:
  virtual const Kernel& unbound() const = 0;  // for a tuner, whatever it does with it
};

// A kernel that can be bound.
class BindableKernel : public Kernel {
 public:
  virtual std::unique_ptr<const BoundKernel> bound(const Invocation& invocation) const = 0;  // throws what is wrong with the call
};

}  // namespace ejk
