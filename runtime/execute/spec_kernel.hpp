// A spec's kernel behind the Kernel interface: which variants and archs could serve a call, and with which configs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ejk/kernel.hpp"
#include "execute/library_state.hpp"
#include "spec/render/image.hpp"

namespace ejk {

// A variant on an arch of this machine that supports the call.
struct Candidate {
  const spec::Variant* variant = nullptr;
  const spec::Arch* arch = nullptr;
};

struct Refusal {
  std::string variant;
  std::string reason;  // the clause that refused, or that no arch of the variant runs here
};

struct Candidates {
  std::vector<Candidate> eligible;  // by priority, then most specific arch first
  std::vector<Refusal> refusals;
};

// Archs that are for tests only (property tests_only) are candidates only if `named_arch` names them.
Candidates candidates_of(const spec::Spec& spec, const Machine& machine, const spec::Binding& binding, const std::string& named_arch = {});

// A config as the user or a record gives it, completed: variant and arch chosen if not named, missing parameters from the heuristic.
struct Completed {
  Candidate candidate;
  spec::Config config;
};
// nullopt: `reason` says why no candidate takes it.
std::optional<Completed> complete(const spec::Spec& spec, const Machine& machine, const spec::Binding& binding, const Config& config,
                                  std::string& reason);

// The heuristic's config; where this machine does not take it (EJKERNEL_SMEM_LIMIT), the valid one that differs in the fewest
// parameters. nullopt: there is none.
std::optional<spec::Config> valid_heuristic(const Candidate& candidate, const spec::Binding& binding);

Config public_config(const Candidate& candidate, const spec::Config& config);

class SpecKernel : public Kernel {
 public:
  explicit SpecKernel(const KernelHandle& handle) : handle_(handle) {}
  std::string name() const override { return handle_.name; }
  std::vector<Config> config_space(const Invocation& invocation) const override;
  Result<Config> heuristic_cfg(const Invocation& invocation) const override;
  Status run(const Invocation& invocation, const Config& config) const override;
  std::string invalid_reason(const Invocation& invocation, const Config& config) const override;
  Invocation canonical(const Invocation& invocation) const override;
  Result<std::string> source_hash(const Invocation& invocation, const Config& config) const override;
  std::optional<Nearness> nearness(const std::string& key, const std::string& measured_key) const override;
  // As the spec says (spec/call/gradient.hpp). Without a mapping, tensors of one name are the same; "dx", "d_x", "grad_x", "x_grad" are of
  // x's shape and type; attributes go over by name.
  Result<Gradient> gradient(const Invocation& invocation) const override;

 private:
  const KernelHandle& handle_;
};

}  // namespace ejk
