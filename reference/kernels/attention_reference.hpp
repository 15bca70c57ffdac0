// flash_attention in float64, and the kernels that are calls of it.
#pragma once
#include "reference/kernels/attention_cases.hpp"

namespace ejk::reference {

class AttentionReference : public KernelReference {
 public:
  explicit AttentionReference(std::string kernel) : kernel_(std::move(kernel)) {}
  std::string kernel() const override { return kernel_; }
  Values compute(const Call& call) const override;
  Samples sample(const Call& call, Rng& rng) const override;
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_attention(c, rng); }
  spec::Case random_case(Rng& rng) const override { return random_attention(rng); }
  std::vector<Property> properties() const override;

 private:
  std::string kernel_;
};

// A random call without the tensors and attributes named; of the batched form.
spec::Case random_without(Rng& rng, const std::vector<std::string>& without);
spec::Case random_batched(Rng& rng, const std::vector<std::string>& without);

}  // namespace ejk::reference
