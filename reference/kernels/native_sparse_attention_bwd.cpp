// native_sparse_attention_bwd in float64: docs/semantics.md, "native_sparse_attention".
#include "reference/kernels/native_sparse.hpp"

namespace ejk::reference::native_sparse_attention_bwd {
namespace {

// A forward case becomes one of the gradients of what it gives.
spec::Case with_gradients(spec::Case c) {
  std::vector<std::string> given;
  for (const std::string& name : c.given)
    if (name.starts_with("g_"))
      given.insert(given.end(), {name, "d" + name});
    else if (name == "cum_seqlens")
      given.push_back(name);
  c.given = given;
  return c;
}

class NativeSparseAttentionBackward : public KernelReference {
 public:
  std::string kernel() const override { return "native_sparse_attention_bwd"; }
  Values compute(const Call& call) const override { return sparse_gradients(call); }
  Samples sample(const Call& call, Rng&) const override { return sparse_gradient_samples(call); }
  void complete(Call& call) const override {
    select_any_blocks(call);
    complete_gradient(call, "branch_lse", true);
  }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_sparse(c, rng); }
  spec::Case random_case(Rng& rng) const override { return with_gradients(random_sparse(rng, true)); }
  std::vector<Property> properties() const override {
    return {repeats_bit_for_bit([](const Call&) { return true; }),
            {"twice the cotangent gives twice the gradients", writable,
             [](const Call& call, const Execute& execute, Rng&) { return twice_the_cotangent(call, execute); }},
            other_sequences_do_not_matter()};
  }
};

const Registration registration{std::make_unique<NativeSparseAttentionBackward>()};

}  // namespace
}  // namespace ejk::reference::native_sparse_attention_bwd
