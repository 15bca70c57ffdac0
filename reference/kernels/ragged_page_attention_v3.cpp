// ragged_page_attention_v3 in float64: docs/semantics.md, "ragged_page_attention", which writes the new keys and values first.
#include <algorithm>
#include <cstring>
#include <set>

#include "reference/kernels/ragged_pages.hpp"

namespace ejk::reference::ragged_page_attention_v3 {
namespace {

constexpr const char* count = "distribution";

// visit(token, slot) for every new token that has a key.
template <class Visit>
void each_new_token(const RaggedBatch& batch, std::int64_t sequences, Visit visit) {
  for (std::int64_t n = 0; n < sequences; ++n)
    for (std::int64_t i = std::max<std::int64_t>(0, -batch.old_keys(n)); i < batch.queries(n); ++i)
      visit(batch.first(n) + i, batch.slot(n, batch.old_keys(n) + i));
}

// The pages after the call.
HostTensor updated(const Call& call, const RaggedBatch& batch) {
  HostTensor pages = call.input("kv_pages");
  const std::int64_t heads = call.dim("Hkv"), dim = call.dim("D");
  const HostTensor &keys = call.input("keys"), &values = call.input("values");
  each_new_token(batch, batch.sequences(), [&](std::int64_t token, std::int64_t slot) {
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t d = 0; d < dim; ++d) {
        const std::int64_t from = (token * heads + h) * dim + d;
        pages.set(batch.key_at(slot, h) + d, stored(pages.type(), keys.at(from), scale_of_head(call, "k_scale", h)));
        pages.set(batch.value_at(slot, h) + d, stored(pages.type(), values.at(from), scale_of_head(call, "v_scale", h)));
      }
  });
  return pages;
}

class RaggedPageAttentionV3 : public KernelReference {
 public:
  std::string kernel() const override { return "ragged_page_attention_v3"; }

  Values compute(const Call& call) const override {
    const RaggedBatch batch(call, count);
    const HostTensor pages = updated(call, batch);
    Values values = attention(call, batch, pages).all();
    values["kv_pages"] = pages.values();
    return values;
  }

  Samples sample(const Call& call, Rng& rng) const override {
    const RaggedBatch batch(call, count);
    const HostTensor pages = updated(call, batch);
    Samples samples = attention(call, batch, pages).sample(rng);
    const std::int64_t slot = call.dim("Hkv2") * call.dim("D");
    for (const std::int64_t place : some_below(batch.slots(), 256, rng)) add_slot(samples["kv_pages"], pages, place * slot, slot);
    return samples;
  }

  void complete(Call& call) const override {
    settle_owners(call);
    spoil_unused_sequences(call, count);
  }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_ragged(c, true, rng); }
  spec::Case random_case(Rng& rng) const override { return random_ragged(true, rng); }
  std::vector<OptionCase> option_cases() const override { return ragged_option_cases(true); }
  std::vector<Property> properties() const override;

 private:
  static RaggedAttention attention(const Call& call, const RaggedBatch& batch, const HostTensor& pages) {
    const HostTensor& queries = call.input("queries");
    return {call, batch, pages, [&call, &queries, &pages](std::int64_t index, std::int64_t kv_head) {
              if (!call.given("q_scale")) return queries.at(index);
              const double scale = scale_of_head(call, "q_scale", kv_head);
              return scale * stored(pages.type(), queries.at(index), scale);
            }};
  }

  static void add_slot(Sample& sample, const HostTensor& pages, std::int64_t first, std::int64_t elements) {
    std::vector<double> values(at(elements));
    for (std::int64_t i = 0; i < elements; ++i) values[at(i)] = pages.at(first + i);
    sample.add(first, values.data(), elements);
  }

  // A slot is written once, by its own sequence: where random tables share pages, there are fewer sequences.
  static void settle_owners(Call& call) {
    HostTensor& counts = call.input(count);
    for (;; counts.set(2, counts.at(2) - 1)) {
      const RaggedBatch batch(call, count);
      std::multiset<std::int64_t> used;
      for (std::int64_t n = 0; n < batch.sequences(); ++n)
        for (std::int64_t key = 0; key < batch.keys(n); ++key) used.insert(batch.slot(n, key));
      bool shared = false;
      each_new_token(batch, batch.sequences(), [&](std::int64_t, std::int64_t slot) { shared = shared || used.count(slot) > 1; });
      if (!shared) return;
    }
  }
};

// Every byte of the pages but those of the new tokens' slots is what it was, whatever it was.
std::string other_slots(const Call& call, const Execute& execute, Rng&) {
  Call copy = call;
  copy.rebind();
  copy.poison_outputs();
  execute(copy);
  const RaggedBatch batch(call, count);
  const std::vector<std::byte> before = call.input("kv_pages").row_major_bytes();
  std::vector<std::byte> after;
  for (const HostTensor& output : copy.outputs)
    if (output.name() == "kv_pages") after = output.row_major_bytes();
  if (after.size() != before.size()) return "the call has no updated kv_pages";
  std::set<std::int64_t> written;
  each_new_token(batch, batch.sequences(), [&](std::int64_t, std::int64_t slot) { written.insert(slot); });
  const std::size_t bytes = batch.slots() > 0 ? before.size() / at(batch.slots()) : 0;
  for (std::int64_t slot = 0; slot < batch.slots(); ++slot)
    if (bytes > 0 && !written.contains(slot) && std::memcmp(before.data() + at(slot) * bytes, after.data() + at(slot) * bytes, bytes) != 0)
      return "slot " + std::to_string(slot) + " of kv_pages was changed, though no new token lies there";
  return "";
}

std::vector<Property> RaggedPageAttentionV3::properties() const {
  std::vector<Property> all = ragged_properties(count, *this);
  all.push_back({"slots without new tokens stay as they are, bit for bit", [](const Call&) { return true; }, other_slots});
  return all;
}

const Registration registration{std::make_unique<RaggedPageAttentionV3>()};

}  // namespace
}  // namespace ejk::reference::ragged_page_attention_v3
