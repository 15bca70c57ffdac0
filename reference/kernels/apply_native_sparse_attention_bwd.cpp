// apply_native_sparse_attention_bwd in float64: docs/semantics.md, "native_sparse_attention", the branch of blocks alone.
#include "reference/kernels/native_sparse.hpp"

namespace ejk::reference::apply_native_sparse_attention_bwd {
namespace {

class ApplyNativeSparseAttentionBackward : public KernelReference {
 public:
  std::string kernel() const override { return "apply_native_sparse_attention_bwd"; }
  Values compute(const Call& call) const override { return sparse_gradients(call); }
  Samples sample(const Call& call, Rng&) const override { return sparse_gradient_samples(call); }
  void complete(Call& call) const override {
    name_blocks(call);
    complete_gradient(call, "lse", false);
  }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_sparse(c, rng); }
  spec::Case random_case(Rng& rng) const override {
    spec::Case c = random_sparse(rng, false);
    std::erase(c.given, "lse");
    return c;
  }
  std::vector<Property> properties() const override {
    return {repeats_bit_for_bit([](const Call&) { return true; }),
            {"twice the cotangent gives twice the gradients", writable,
             [](const Call& call, const Execute& execute, Rng&) { return twice_the_cotangent(call, execute); }},
            other_sequences_do_not_matter()};
  }
};

const Registration registration{std::make_unique<ApplyNativeSparseAttentionBackward>()};

}  // namespace
}  // namespace ejk::reference::apply_native_sparse_attention_bwd
