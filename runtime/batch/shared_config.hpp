// One config for several calls that differ in data and alignment alone.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "batch/mapped.hpp"
#include "execute/facts.hpp"
#include "spec/call/binding.hpp"

namespace ejk {

// A call by names, ready for the packed call; it must stay where it is.
struct NamedCall {
  NamedCall(const KernelHandle& kernel, const std::map<std::string, TensorView>& tensors, const Values& attributes);
  NamedCall(const NamedCall&) = delete;
  NamedCall& operator=(const NamedCall&) = delete;
  const KernelHandle& kernel;
  Positional arguments;
  Status run(Stream stream, const std::string& config) const;  // config: JSON; empty: each call chooses
};

// The config that the chain chooses for the call of `binding`, complete; override_config: this call's cfg, or null. Throws CodedError.
Config choose_config(const KernelHandle& kernel, const Machine& machine, const std::map<std::string, TensorView>& tensors,
                     const std::shared_ptr<const spec::Binding>& binding, const Config* override_config);

}  // namespace ejk
