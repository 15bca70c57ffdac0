// A spec's kernel behind the Kernel interface.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "execute/library_state.hpp"
#include "select/bound_kernel.hpp"

namespace ejk {

// Each question about an invocation binds it anew and asks a BoundCall; the chain binds once.
class SpecKernel : public BindableKernel {
 public:
  explicit SpecKernel(const KernelHandle& handle) : handle_(handle) {}
  std::string name() const override { return handle_.name; }
  std::vector<Config> config_space(const Invocation& invocation) const override;
  Result<Config> heuristic_cfg(const Invocation& invocation) const override;
  Status run(const Invocation& invocation, const Config& config) const override;
  std::string invalid_reason(const Invocation& invocation, const Config& config) const override;
  Invocation canonical(const Invocation& invocation) const override;
  Result<std::string> source_hash(const Invocation& invocation, const Config& config) const override;
  Result<std::string> code_hash(const Invocation& invocation, const Config& config) const override;
  std::optional<Nearness> nearness(const std::string& key, const std::string& measured_key) const override;
  double tolerance(const Invocation& invocation, const std::string& tensor, DType type) const override;
  // As the spec says (spec/call/gradient.hpp). Without a mapping, tensors of one name are the same; "dx", "d_x", "grad_x", "x_grad" are of
  // x's shape and type; attributes go over by name.
  Result<Gradient> gradient(const Invocation& invocation) const override;
  std::unique_ptr<const BoundKernel> bound(const Invocation& invocation) const override;

 private:
  const KernelHandle& handle_;
};

}  // namespace ejk
