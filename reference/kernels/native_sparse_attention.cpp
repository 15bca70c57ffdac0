// native_sparse_attention in float64: docs/semantics.md, "native_sparse_attention", every option.
#include "reference/kernels/native_sparse.hpp"

namespace ejk::reference::native_sparse_attention {
namespace {

bool has_tokens(const Call& call) {
  return writable(call) && call.dim("B") > 0 && call.dim("T") > 0 && call.dim("Hkv") > 0 && call.dim("Dv") > 0;
}

// Tokens after one of them become NaN: what came before does not know.
std::string later_tokens(const Call& call, const Execute& execute, Rng& rng) {
  const std::int64_t cut = rng.between(0, call.dim("T") - 1);
  Call changed = call;
  for (HostTensor& input : changed.inputs) {
    if (input.type() == DType::i32) continue;
    std::int64_t token = 1;
    for (std::size_t i = 2; i < input.shape().size(); ++i) token *= input.shape()[i];
    for (std::int64_t e = 0; e < input.elements(); ++e)
      if (e / token % call.dim("T") > cut) input.set(e, nan);
  }
  const std::vector<double> before = run_copy(call, execute).at("out"), after = run_copy(changed, execute).at("out");
  const std::int64_t row = call.dim("Hq") * call.dim("Dv");
  for (std::size_t e = 0; e < before.size(); ++e)
    if (static_cast<std::int64_t>(e) / row % call.dim("T") <= cut && before[e] != after[e])
      return "out" + index_text(call.input("out").shape(), static_cast<std::int64_t>(e)) + " depends on a later token";
  return "";
}

// Gates twice as large: powers of two change no rounding.
std::string twice_the_gates(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  for (const char* gate : branch_gates)
    if (HostTensor* tensor = changed.find(gate))
      for (std::int64_t e = 0; e < tensor->elements(); ++e) tensor->set(e, 2 * tensor->at(e));
  std::vector<double> expected = run_copy(call, execute).at("out");
  for (double& x : expected) x *= 2;
  const HostTensor& out = call.input("out");
  return compare("out", out.shape(), run_copy(changed, execute).at("out"), expected, tolerance_of(call, out)).message;
}

// All keys are 0, so that all blocks are as important: the first ones are selected.
std::string ties(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  HostTensor& keys = changed.input("k");
  for (std::int64_t e = 0; e < keys.elements(); ++e) keys.set(e, 0);
  return first_failure(verify_call(*find_reference(call.spec->kernel), changed, execute));
}

class NativeSparseAttention : public KernelReference {
 public:
  std::string kernel() const override { return "native_sparse_attention"; }
  Values compute(const Call& call) const override { return sparse_outputs(call); }
  Samples sample(const Call& call, Rng& rng) const override { return sparse_samples(call, rng); }
  void complete(Call& call) const override {
    name_blocks(call);
    settle_selection(call);
  }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_sparse(c, rng); }
  spec::Case random_case(Rng& rng) const override { return random_sparse(rng, true); }

  std::vector<Property> properties() const override {
    const auto selects = [](const Call& call) { return has_tokens(call) && call.given("g_slc") && !call.given("block_indices"); };
    return {repeats_bit_for_bit([](const Call&) { return true; }),
            {"tokens after a query do not matter, even NaN", has_tokens, later_tokens},
            {"twice the gates give twice the output", has_tokens, twice_the_gates},
            {"of blocks that are as important the first are selected", selects, ties},
            other_sequences_do_not_matter()};
  }
};

const Registration registration{std::make_unique<NativeSparseAttention>()};

}  // namespace
}  // namespace ejk::reference::native_sparse_attention
