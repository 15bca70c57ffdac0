// Gradients of attention in float64: inputs that a forward pass leaves, and the laws of gradients; for flash_attention_bwd and its like.
#pragma once
#include "reference/kernels/attention_cases.hpp"

namespace ejk::reference {

class AttentionGradientReference : public KernelReference {
 public:
  explicit AttentionGradientReference(std::string kernel) : kernel_(std::move(kernel)) {}
  std::string kernel() const override { return kernel_; }
  Values compute(const Call& call) const override;
  Samples sample(const Call& call, Rng& rng) const override;
  void complete(Call& call) const override;  // out and lse are the forward pass's
  spec::Case vary(const spec::Case& c, Rng& rng) const override;
  std::vector<Property> properties() const override;

 private:
  std::string kernel_;
};

// A random call of a forward kernel becomes one of its gradient's, before its sizes are varied.
void want_gradients(spec::Case& c, Rng& rng);

}  // namespace ejk::reference
