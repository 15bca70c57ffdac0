// A recorded call on the machine it was made on, which need not be here: which config and which image it gets.
#pragma once
#include <optional>

#include "ejk/record.hpp"
#include "execute/library_state.hpp"
#include "execute/spec_kernel.hpp"

namespace ejk {

// The spec's kernel for this one call. Must not outlive the library.
class PlacedCall : public Kernel {
 public:
  // machine: where the call is placed; null: where it was recorded. Throws CallError or CodedError: no such kernel, a call that breaks its
  // contract, a machine of which too little is known.
  explicit PlacedCall(const RecordedInvocation& recorded, const Machine* machine = nullptr);

  std::string name() const override { return handle_.name; }
  std::vector<Config> config_space(const Invocation& invocation) const override;
  Result<Config> heuristic_cfg(const Invocation& invocation) const override;
  Status run(const Invocation& invocation, const Config& config) const override;  // an error: there is no data
  std::string invalid_reason(const Invocation& invocation, const Config& config) const override;
  Invocation canonical(const Invocation& invocation) const override;
  Result<std::string> source_hash(const Invocation& invocation, const Config& config) const override;
  std::optional<Nearness> nearness(const std::string& key, const std::string& measured_key) const override;

  const Machine& machine() const { return machine_; }
  const Invocation& invocation() const { return invocation_; }
  // By the process's chain, but never by tuning. Throws CodedError.
  Selection select() const;
  // What the call would try, in this order, if the binary of `chosen` could not be had. Throws as image() does.
  struct Fallback {
    Config config;
    std::string image_id;
  };
  std::vector<Fallback> fallbacks(const Config& chosen) const;
  // Throws CodedError if the config cannot serve the call.
  spec::Image image(const Config& config) const;

 private:
  Completed completed(const Config& config) const;

  const KernelHandle& handle_;
  Invocation invocation_;
  Machine machine_;
  spec::Binding binding_;
};

// In the form of keys and records, if it is a call of a spec's kernel; else as it is.
Invocation canonical(const Invocation& invocation);

// Equal fingerprint; nullptr: not here.
const Machine* machine_here(const std::string& fingerprint);

}  // namespace ejk
