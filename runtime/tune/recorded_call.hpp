// An Invocation made of its key again: for tuning what was recorded, or a spec's case, without data.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ejk/kernel.hpp"
#include "execute/library_state.hpp"

namespace ejk {

// The tensors have no data: enough to bind the call and to choose configs for it.
class RecordedCall {
 public:
  // An object such as Invocation::key() makes; other fields are ignored. Throws CodedError(bad_input) naming the field. The tensors'
  // device is the first of this machine with the key's fingerprint, or `machine` if it is not null.
  explicit RecordedCall(const nlohmann::json& key, const Machine* machine = nullptr);
  const KernelHandle& kernel() const { return *kernel_; }
  const Machine& machine() const { return *machine_; }
  const Invocation& invocation() const { return invocation_; }

 private:
  void add_tensor(const std::string& name, const nlohmann::json& node);
  const KernelHandle* kernel_ = nullptr;
  const Machine* machine_ = nullptr;
  Invocation invocation_;
};

}  // namespace ejk
