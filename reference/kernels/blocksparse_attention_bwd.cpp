// blocksparse_attention_bwd in float64: flash_attention's gradients behind a mask of blocks.
#include <algorithm>

#include "reference/kernels/attention_gradient_reference.hpp"
#include "reference/kernels/attention_options.hpp"
#include "reference/kernels/attention_reference.hpp"

namespace ejk::reference::blocksparse_attention_bwd {
namespace {

// The forward pass and the reference of what was changed, then the kernel.
std::string failure_of(const KernelReference& reference, Call& changed, const Execute& execute) {
  reference.complete(changed);
  return first_failure(verify_call(reference, changed, execute));
}

// A query whose row of blocks is off sees nothing: of its gradients those of its sinks alone have a NaN of its dout.
std::string nan_without_keys(const KernelReference& reference, const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor &dout = changed.input("dout"), &blocks = changed.input("block_mask");
  const std::int64_t place = rng.between(0, dout.elements() - 1), token = place / call.dim("Dv") / call.dim("Hq");
  const std::int64_t row_of_blocks = token % call.dim("Sq") / call.integer("block_q"), width = blocks.shape()[3];
  for (std::int64_t i = 0; i < blocks.elements(); ++i)
    if (i / width % blocks.shape()[2] == row_of_blocks) blocks.set(i, 0);
  dout.set(place, nan);
  return failure_of(reference, changed, execute);
}

// Of two keys that a query sees one is NaN, the other has a bias of minus infinity: that has a gradient, NaN like its row's others.
std::string nan_beside_minus_infinity(const KernelReference& reference, const Call& call, const Execute& execute, Rng& rng) {
  struct Pair {
    std::int64_t query, key, bias;  // places of the query among all, of the key's first element, of its bias
  };
  std::vector<Pair> seen;
  const Broadcast bias(call, "bias");
  each_visible(call, [&](const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) {
    const std::int64_t kv_head = h / (call.dim("Hq") / call.dim("Hkv"));
    seen.push_back({(s.number * call.dim("Hq") + h) * call.dim("Sq") + i, ((s.k_begin + j) * call.dim("Hkv") + kv_head) * call.dim("D"),
                    bias.index(s.number, h, i, j)});
  });
  std::vector<std::size_t> firsts;  // of two pairs of one query
  for (std::size_t n = 0; n + 1 < seen.size(); ++n)
    if (seen[n].query == seen[n + 1].query) firsts.push_back(n);
  if (firsts.empty()) return "";
  const std::size_t first = firsts[at(rng.between(0, static_cast<std::int64_t>(firsts.size()) - 1))];
  const std::size_t of_nan = first + (rng.chance(0.5) ? 1 : 0), of_infinity = 2 * first + 1 - of_nan;
  Call changed = call;
  changed.input("k").set(seen[of_nan].key, nan);
  changed.input("bias").set(seen[of_infinity].bias, -infinity);
  return failure_of(reference, changed, execute);
}

// A packed call whose last sequences lose tokens: what tokens of no sequence hold does not matter.
std::string nan_in_no_sequence(const KernelReference& reference, const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  std::int64_t first_left[2];
  for (const int side : {0, 1}) {
    HostTensor& ends = changed.input(side == 0 ? "cum_seqlens_q" : "cum_seqlens_k");
    first_left[side] = rng.between(0, static_cast<std::int64_t>(ends.at(ends.elements() - 1)));
    for (std::int64_t i = 0; i < ends.elements(); ++i) ends.set(i, std::min(ends.at(i), static_cast<double>(first_left[side])));
  }
  changed.rebind();
  reference.complete(changed);
  const Values expected = run_copy(changed, execute);
  for (const char* name : {"q", "dout", "k", "v"}) {  // out and lse are the forward pass's: 0 and minus infinity
    HostTensor& tensor = changed.input(name);
    const std::int64_t width = tensor.shape()[1] * tensor.shape()[2], side = *name == 'k' || *name == 'v' ? 1 : 0;
    for (std::int64_t i = first_left[side] * width; i < tensor.elements(); ++i) tensor.set(i, nan);
  }
  return disagreement(changed, run_copy(changed, execute), expected);
}

class BlocksparseAttentionBackward : public AttentionGradientReference {
 public:
  BlocksparseAttentionBackward() : AttentionGradientReference("blocksparse_attention_bwd") {}
  spec::Case vary(const spec::Case& c, Rng& rng) const override {
    spec::Case varied = AttentionGradientReference::vary(c, rng);
    vary_blocks(varied, rng);
    return varied;
  }
  spec::Case random_case(Rng& rng) const override {
    spec::Case c = random_without(rng, {"weights"});
    want_gradients(c, rng);
    add_blocks(c, rng);
    return vary(c, rng);
  }
  std::vector<OptionCase> option_cases() const override { return blocksparse_option_cases(true); }
  std::vector<Property> properties() const override {
    std::vector<Property> laws = AttentionGradientReference::properties();
    const auto keeps_all = [](const Call& c) {
      return c.input("k").elements() > 0 && c.input("dout").elements() > 0 && c.floating("dropout_prob") == 0;
    };
    laws.push_back({"a NaN in dout of a query without keys reaches the gradient of its sinks and no other",
                    [=](const Call& c) { return keeps_all(c) && writable(c) && c.given("dsoftmax_aux") && !c.given("cum_seqlens_q"); },
                    [this](const Call& c, const Execute& execute, Rng& rng) { return nan_without_keys(*this, c, execute, rng); }});
    laws.push_back({"what tokens of no sequence hold does not matter, even NaN",
                    [](const Call& c) { return writable(c) && c.given("cum_seqlens_q"); },
                    [this](const Call& c, const Execute& execute, Rng& rng) { return nan_in_no_sequence(*this, c, execute, rng); }});
    laws.push_back({"a NaN in a key reaches the gradient of a bias of minus infinity in its row",
                    [=](const Call& c) { return keeps_all(c) && writable(c) && c.given("dbias"); },
                    [this](const Call& c, const Execute& execute, Rng& rng) { return nan_beside_minus_infinity(*this, c, execute, rng); }});
    return laws;
  }
};

const Registration registration{std::make_unique<BlocksparseAttentionBackward>()};

}  // namespace
}  // namespace ejk::reference::blocksparse_attention_bwd
