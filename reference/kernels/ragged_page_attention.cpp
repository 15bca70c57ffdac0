// ragged_page_attention (v2) in float64: docs/semantics.md, "ragged_page_attention", every option.
#include "reference/kernels/ragged_pages.hpp"

namespace ejk::reference::ragged_page_attention {
namespace {

template <class Use>
auto with_attention(const Call& call, Use use) {
  const RaggedBatch batch(call, "num_seqs");
  const HostTensor& queries = call.input("queries");
  return use(RaggedAttention{call, batch, call.input("kv_pages"), [&](std::int64_t index, std::int64_t) { return queries.at(index); }});
}

class RaggedPageAttention : public KernelReference {
 public:
  std::string kernel() const override { return "ragged_page_attention"; }

  Values compute(const Call& call) const override {
    return with_attention(call, [](const RaggedAttention& attention) { return attention.all(); });
  }
  Samples sample(const Call& call, Rng& rng) const override {
    return with_attention(call, [&](const RaggedAttention& attention) { return attention.sample(rng); });
  }
  void complete(Call& call) const override { spoil_unused_sequences(call, "num_seqs"); }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_ragged(c, false, rng); }
  spec::Case random_case(Rng& rng) const override { return random_ragged(false, rng); }
  std::vector<OptionCase> option_cases() const override { return ragged_option_cases(false); }
  std::vector<Property> properties() const override { return ragged_properties("num_seqs", *this); }
};

const Registration registration{std::make_unique<RaggedPageAttention>()};

}  // namespace
}  // namespace ejk::reference::ragged_page_attention
