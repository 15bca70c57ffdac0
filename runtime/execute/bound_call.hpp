// A call of a spec's kernel, bound once: what the config chain, plans, explain, warm, pack and the tuner ask of it. A Kernel for that one
// invocation, which the invocations its methods are given must be; what is worked out for one question serves the next.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "execute/library_state.hpp"
#include "select/bound_kernel.hpp"
#include "spec/choose/decider.hpp"

namespace ejk {

using spec::Candidate;
using spec::Completed;

// Asks about a binding on a machine; both must outlive it.
spec::Decider decider_of(const Machine& machine, const spec::Binding& binding);

Config public_config(const Completed& completed);

// One thread at a time.
class BoundCall : public BoundKernel {
 public:
  // The machine and what the invocation's tensors are views of must outlive it.
  BoundCall(const KernelHandle& handle, std::shared_ptr<const Machine> machine, std::shared_ptr<const spec::Binding> binding,
            Invocation invocation);
  BoundCall(const KernelHandle& handle, const Machine& machine, std::shared_ptr<const spec::Binding> binding, Invocation invocation);

  std::string name() const override { return handle_.name; }
  std::vector<Config> config_space(const Invocation& invocation) const override;
  Result<Config> heuristic_cfg(const Invocation& invocation) const override;
  Status run(const Invocation& invocation, const Config& config) const override;
  std::string invalid_reason(const Invocation& invocation, const Config& config) const override;
  Invocation canonical(const Invocation& invocation) const override;
  Result<std::string> source_hash(const Invocation& invocation, const Config& config) const override;
  Result<std::string> code_hash(const Invocation& invocation, const Config& config) const override;
  std::optional<Nearness> nearness(const std::string& key, const std::string& measured_key) const override;
  Result<Gradient> gradient(const Invocation& invocation) const override;

  const Kernel& unbound() const override { return *handle_.kernel_interface(); }

  const KernelHandle& handle() const { return handle_; }
  const Machine& machine() const { return *machine_; }
  const Invocation& invocation() const { return invocation_; }
  const std::shared_ptr<const spec::Binding>& binding() const { return binding_; }
  spec::Decider& decider() const { return decider_; }

  // By the process's chain. Throws CodedError.
  Selection select(const Config* override_config = nullptr, bool explain_all = false) const;
  // nullopt: `reason` says why it cannot serve the call.
  std::optional<Completed> complete(const Config& config, std::string& reason) const;
  // The same; throws CodedError with the reason.
  Completed completed(const Config& config) const;
  spec::Image image(const Completed& completed) const;
  std::string image_id(const Completed& completed) const;                             // without a source
  spec::Image image(const Config& config) const { return image(completed(config)); }  // throws CodedError if it cannot serve the call

 private:
  struct Judged {
    Config config;
    std::optional<Completed> completed;
    std::string reason;
  };
  const Judged& judged(const Config& config) const;

  const KernelHandle& handle_;
  const std::shared_ptr<const Machine> machine_;
  const std::shared_ptr<const spec::Binding> binding_;
  const Invocation invocation_;
  mutable spec::Decider decider_;
  mutable std::vector<std::unique_ptr<Judged>> judged_;                // few: what tiers answered
  mutable std::optional<std::pair<Completed, spec::Image>> rendered_;  // the last one
};

}  // namespace ejk
