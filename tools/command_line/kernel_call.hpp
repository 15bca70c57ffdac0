// A call on tensors this process owns: from a case or a file, ready to be launched again and again.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "command_line/arguments.hpp"
#include "command_line/device_tensor.hpp"
#include "execute/facts.hpp"
#include "execute/library_state.hpp"
#include "reference/reference.hpp"

namespace ejk::tools {

// --case, --seed, or --inputs, --want; --attributes for both.
void add_call_options(Arguments& arguments);
// Throws UsageError, spec::CallError, or std::runtime_error naming the file and tensor.
reference::Call call_from(const Arguments& arguments, const KernelHandle& kernel);

// Views and attributes of a call, packed once, its tensors copied to the machine's device if they must lie there. The call must outlive
// it and its tensors must stay where they are.
class PackedCall {
 public:
  PackedCall(const KernelHandle& kernel, reference::Call& call, const Machine& machine);
  // config: override as JSON, or empty. Throws CodedError. On a device it returns when the work is queued.
  void launch(const std::string& config, Stream stream = {}) const;
  void wait() const;         // for the device; throws in the driver's words
  void copy_outputs_back();  // waits; the outputs' blocks alone: inputs stay as they were made
  void copy_back();          // waits; every tensor's block, inputs too: a kernel may have spoiled them
  std::byte* block_of(const reference::HostTensor& tensor) const;   // of one of the call's tensors: where the kernel sees its block
  nlohmann::ordered_json explain(const std::string& config) const;  // makes the plan; throws

 private:
  const KernelHandle* kernel_;
  const Machine* machine_;
  reference::Call* call_;
  std::vector<DeviceTensor> on_device_;  // inputs, then outputs; empty if the tensors lie on the host
  Positional arguments_;
};

// Runs a reference::Call on a machine under an override; its outputs are on the host afterwards.
reference::Execute execution(const KernelHandle& kernel, const std::string& config, const Machine& machine);

// Numbers of the spec's cost for the bound call; 0: the spec does not say, or not for this form.
struct Cost {
  double flops = 0, bytes = 0;
};
Cost cost_of(const spec::Spec& spec, const spec::Scope& binding);

// Bytes of every tensor given.
double tensor_bytes(const spec::CallFacts& facts);

// A float64 reference of plain loops takes about a second for this much.
bool affordable(const Cost& cost, double bytes, double seconds);

}  // namespace ejk::tools
