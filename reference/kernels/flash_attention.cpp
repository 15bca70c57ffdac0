// flash_attention in float64: docs/semantics.md, "flash_attention", every option.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/kernels/attention_dropout.hpp"
#include "reference/kernels/attention_options.hpp"
#include "reference/kernels/attention_reference.hpp"
#include "reference/kernels/attention_samples.hpp"
#include "reference/kernels/attention_scores.hpp"

namespace ejk::reference {
namespace {

// ---- properties ----

// Fills what nobody sees of k, v and bias with NaN and infinity in turn: the results stay.
std::string unseen_keys(const Call& call, const Execute& execute, Rng&) {
  const Values expected = run_copy(call, execute);
  Call changed = call;
  overwrite_unseen(changed);
  return disagreement(call, run_copy(changed, execute), expected);
}

// One key becomes NaN: exactly the queries that see it may know (the reference tells which).
std::string one_nan_key(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& k = changed.input("k");
  k.set(rng.between(0, k.elements() - 1), nan);
  return first_failure(verify_call(AttentionReference(call.spec->kernel), changed, execute));
}

// Rows of the bias become the lowest finite number, all of them or a part, as model code masks: the keys of such a row share it.
std::string lowest_bias(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  lower_bias(changed, rng);
  return first_failure(verify_call(AttentionReference(call.spec->kernel), changed, execute));
}

// Keys that grow along the sequence, so that the largest score of a query comes late and is far above the first ones.
std::string growing_keys(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  HostTensor& k = changed.input("k");
  for (std::int64_t i = 0; i < k.elements(); ++i)
    k.set(i, k.at(i) * (0.1 + 12.0 * static_cast<double>(i) / static_cast<double>(k.elements())));
  return first_failure(verify_call(AttentionReference(call.spec->kernel), changed, execute));
}

// New keys from a cut on, larger than any before, and all queries before the cut must stay.
std::string later_keys(const Call& call, const Execute& execute, Rng& rng) {
  const std::int64_t sk = call.dim("Sk"), cut = rng.between(0, sk - 1);
  Call changed = call;
  for (const char* name : {"k", "v"}) {
    HostTensor& tensor = changed.input(name);
    const std::int64_t row = tensor.shape()[2] * tensor.shape()[3];
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (i / row % sk >= cut) tensor.set(i, 8 * rng.normal());
  }
  const std::vector<double> before = run_copy(call, execute).at("out"), after = run_copy(changed, execute).at("out");
  const HostTensor& out = call.input("out");
  const Visibility visibility(call);
  const std::int64_t row = out.shape()[2] * out.shape()[3], sq = call.dim("Sq");
  const Sequence any{0, 0, sq, 0, sk, sq};
  for (std::size_t e = 0; e < before.size(); ++e) {
    const std::int64_t query = static_cast<std::int64_t>(e) / row % sq;
    if (visibility.last(any, query) <= cut && before[e] != after[e])
      return "query " + index_text(out.shape(), static_cast<std::int64_t>(e)) + " changed with the keys from " + std::to_string(cut) +
             " on";
  }
  return "";
}

// Keys, and all that belongs to them, in another order.
std::string shuffled_keys(const Call& call, const Execute& execute, Rng& rng) {
  const std::int64_t sk = call.dim("Sk");
  std::vector<std::int64_t> order(at(sk));
  std::iota(order.begin(), order.end(), 0);
  rng.shuffle(order);
  Call changed = call;
  reorder_keys(call, changed, "k", call.dim("Hkv") * call.dim("D"), order);
  reorder_keys(call, changed, "v", call.dim("Hkv") * call.dim("Dv"), order);
  for (const char* name : {"bias", "attention_mask", "kv_segment_ids"}) reorder_keys(call, changed, name, 1, order);
  Values expected = run_copy(call, execute);
  if (call.given("weights")) {
    Call original = call;
    original.find("weights")->assign(expected.at("weights"));
    Call moved = original;
    reorder_keys(original, moved, "weights", 1, order);
    expected["weights"] = moved.find("weights")->values();
  }
  return disagreement(call, run_copy(changed, execute), expected);
}

// Where all values are equal, a mean of them is that value, and a query without keys gives 0.
std::string equal_values(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  HostTensor& v = changed.input("v");
  for (std::int64_t i = 0; i < v.elements(); ++i) v.set(i, 1.5);
  const HostTensor& out = call.input("out");
  std::vector<double> expected(at(out.elements()), 0.0);
  const std::int64_t heads = call.dim("Hq"), value_dim = call.dim("Dv");
  const Broadcast bias(call, "bias");
  each_visible(call, [&](const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) {
    if (bias.given() && bias.value(s.number, h, i, j) == -infinity) return;
    std::fill_n(expected.begin() + ((s.q_begin + i) * heads + h) * value_dim, value_dim, 1.5);
  });
  const Values found = run_copy(changed, execute);
  return compare("out", out.shape(), found.at("out"), expected, tolerance_of(call, out)).message;
}

}  // namespace

Values AttentionReference::compute(const Call& call) const { return attention_outputs(call); }

Samples AttentionReference::sample(const Call& call, Rng& rng) const { return attention_samples(call, rng); }

std::vector<Property> AttentionReference::properties() const {
  const auto batched = [](const Call& call) { return writable(call) && !call.given("cum_seqlens_q") && call.input("k").elements() > 0; };
  const auto keeps_all = [](const Call& call) { return call.floating("dropout_prob") == 0; };
  const auto unordered = [=](const Call& call) {
    return batched(call) && has_full_rows(call) && keeps_all(call) && !call.given("block_mask") && !call.flag("causal") &&
           call.integer("window_left") < 0 && call.integer("window_right") < 0;
  };
  return {
      repeats_bit_for_bit([](const Call&) { return true; }),
      {"a key and a bias that no query sees do not matter, even NaN and infinity", writable, unseen_keys},
      {"a NaN in a key reaches the queries that see it and no other",
       [=](const Call& call) { return writable(call) && keeps_all(call) && call.input("k").elements() > 0; }, one_nan_key},
      {"keys share a row whose biases are the lowest finite number",
       [](const Call& call) { return writable(call) && takes_lowest_bias(call); }, lowest_bias},
      {"scores may grow along the keys", [](const Call& call) { return writable(call) && call.floating("logits_soft_cap") == 0; },
       growing_keys},
      {"later keys do not change earlier queries",
       [=](const Call& call) { return batched(call) && has_full_rows(call) && call.flag("causal"); }, later_keys},
      {"the order of the keys does not matter", unordered, shuffled_keys},
      drops_what_philox_says(),
      {"equal values come out as they went in",
       [=](const Call& call) { return writable(call) && keeps_all(call) && !call.given("softmax_aux"); }, equal_values},
  };
}

namespace {

spec::Case stripped(spec::Case c, const std::vector<std::string>& without) {
  for (const std::string& name : without) {
    std::erase(c.given, name);
    c.attributes.erase(name);
  }
  if (!names(c, "softmax_aux")) c.dims.erase("A"), c.types.erase("Es");
  return c;
}

}  // namespace

spec::Case random_without(Rng& rng, const std::vector<std::string>& without) { return stripped(random_attention(rng), without); }

spec::Case random_batched(Rng& rng, const std::vector<std::string>& without) {
  spec::Case c = random_attention(rng);
  while (names(c, "cum_seqlens_q")) c = random_attention(rng);
  return stripped(std::move(c), without);
}

namespace {

class FlashAttention : public AttentionReference {
 public:
  FlashAttention() : AttentionReference("flash_attention") {}
  std::vector<OptionCase> option_cases() const override { return attention_option_cases(false); }
};

const Registration registration{std::make_unique<FlashAttention>()};

}  // namespace

}  // namespace ejk::reference
