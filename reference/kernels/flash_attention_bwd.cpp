// The reference of flash_attention_bwd: its cases, inputs that a forward pass leaves, and the laws of gradients.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/kernels/attention_cases.hpp"
#include "reference/kernels/attention_dropout.hpp"
#include "reference/kernels/attention_gradient.hpp"
#include "reference/kernels/attention_gradient_reference.hpp"
#include "reference/kernels/attention_options.hpp"
#include "reference/kernels/attention_scores.hpp"
#include "reference/reference.hpp"

namespace ejk::reference {
namespace {

// Above this many multiplications a made-up call's out stays random, and its lse is what may be expected, so that a benchmark's data is
// soon made.
constexpr double affordable_multiplications = 1e10;

}  // namespace

Values AttentionGradientReference::compute(const Call& call) const { return attention_gradients(call); }

Samples AttentionGradientReference::sample(const Call& call, Rng& rng) const { return attention_gradient_samples(call, rng); }

void AttentionGradientReference::complete(Call& call) const {
  const bool packed = call.given("cum_seqlens_q");
  const std::int64_t queries = packed ? call.dim("Tq") : call.dim("B") * call.dim("Sq");
  const std::int64_t keys = packed ? call.dim("Tk") / std::max<std::int64_t>(call.dim("N"), 1) : call.dim("Sk");
  const double multiplications =
      static_cast<double>(queries * call.dim("Hq")) * static_cast<double>(keys * (call.dim("D") + call.dim("Dv")));
  Values values;
  if (multiplications > affordable_multiplications) {
    values["lse"] = expected_lse(call);
  } else {
    values = attention_outputs(call);
    call.input("out").assign(values.at("out"));
    if (call.given("weights")) call.input("weights").assign(values.at("weights"));
  }
  // Where rows share memory, the largest: no weight is above 1.
  HostTensor& lse = call.input("lse");
  lse.assign(std::vector<double>(at(lse.elements()), -infinity));
  for (std::int64_t i = 0; i < lse.elements(); ++i)
    if (!(values.at("lse")[at(i)] <= lse.at(i))) lse.set(i, values.at("lse")[at(i)]);
}

spec::Case AttentionGradientReference::vary(const spec::Case& c, Rng& rng) const {
  spec::Case varied = vary_attention(c, rng);
  if (names(c, "bias")) {
    varied.dims["Bb"] = rng.chance(0.4) ? spec::Value{std::int64_t{1}} : varied.dims["B"];
    varied.dims["Hb"] = rng.chance(0.4) ? spec::Value{std::int64_t{1}} : varied.dims["Hq"];
  }
  return varied;
}

void want_gradients(spec::Case& c, Rng& rng) {
  std::erase(c.given, "lse");
  if (names(c, "weights")) c.given.push_back("dweights");
  if (names(c, "bias") && rng.chance(0.8)) c.given.push_back("dbias");
  if (names(c, "softmax_aux") && rng.chance(0.8)) c.given.push_back("dsoftmax_aux");
  if (rng.chance(0.2)) c.attributes["deterministic"] = true;
}

}  // namespace ejk::reference

namespace ejk::reference::flash_attention_bwd {
namespace {

// ---- properties ----

const KernelReference& reference_of(const Call& call) { return *find_reference(call.spec->kernel); }

// Every call here is a copy whose inputs were changed: the forward pass is made anew.
Values run_changed(Call& changed, const Execute& execute) {
  reference_of(changed).complete(changed);
  return run_copy(changed, execute);
}

std::string unseen_keys(const Call& call, const Execute& execute, Rng&) {
  const Values expected = run_copy(call, execute);
  Call changed = call;
  overwrite_unseen(changed);
  return disagreement(call, run_copy(changed, execute), expected);
}

// One element of the input becomes NaN: exactly the gradients that it reaches may know (the reference tells which).
std::string one_nan(const Call& call, const Execute& execute, Rng& rng, const char* input) {
  Call changed = call;
  HostTensor& tensor = changed.input(input);
  tensor.set(rng.between(0, tensor.elements() - 1), nan);
  reference_of(changed).complete(changed);
  return first_failure(verify_call(reference_of(changed), changed, execute));
}

// Rows of the bias become the lowest finite number, all of them or a part: the log-sum-exp does not tell how many keys share such a row.
std::string lowest_bias(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  lower_bias(changed, rng);
  reference_of(changed).complete(changed);
  return first_failure(verify_call(reference_of(changed), changed, execute));
}

// Where all keys are one key, or all values one value, what a gradient is made of cancels.
std::string all_alike(const Call& call, const Execute& execute, const char* input) {
  Call changed = call;
  HostTensor& tensor = changed.input(input);
  const std::int64_t row = tensor.shape().back();
  for (std::int64_t i = row; i < tensor.elements(); ++i) tensor.set(i, tensor.at(i % row));
  reference_of(changed).complete(changed);
  return first_failure(verify_call(reference_of(changed), changed, execute));
}

// New queries and gradients before a cut: keys that only later queries see keep their gradients, to the bit.
std::string earlier_queries(const Call& call, const Execute& execute, Rng& rng) {
  const std::int64_t sq = call.dim("Sq"), cut = rng.between(0, sq - 1);
  Call changed = call;
  for (const char* name : {"q", "dout"}) {
    HostTensor& tensor = changed.input(name);
    const std::int64_t row = tensor.shape()[2] * tensor.shape()[3];
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (i / row % sq < cut) tensor.set(i, 3 * rng.normal());
  }
  const Values before = run_copy(call, execute), after = run_changed(changed, execute);
  const Visibility visibility(call);
  const std::int64_t sk = call.dim("Sk"), first = cut == 0 ? 0 : visibility.last({0, 0, sq, 0, sk, sq}, cut - 1);
  for (const char* name : {"dk", "dv"}) {
    const HostTensor& tensor = call.input(name);
    const std::int64_t row = tensor.shape()[2] * tensor.shape()[3];
    for (std::int64_t e = 0; e < tensor.elements(); ++e)
      if (e / row % sk >= first && before.at(name)[at(e)] != after.at(name)[at(e)])
        return name + index_text(tensor.shape(), e) + " changed with the queries before " + std::to_string(cut);
  }
  return "";
}

// Keys, and all that belongs to them, in another order: their gradients follow.
std::string shuffled_keys(const Call& call, const Execute& execute, Rng& rng) {
  std::vector<std::int64_t> order(at(call.dim("Sk")));
  std::iota(order.begin(), order.end(), 0);
  rng.shuffle(order);
  const std::int64_t key = call.dim("Hkv") * call.dim("D"), value = call.dim("Hkv") * call.dim("Dv");
  Call changed = call, expected = call;
  reorder_keys(call, changed, "k", key, order);
  reorder_keys(call, changed, "v", value, order);
  for (const char* name : {"bias", "attention_mask", "kv_segment_ids", "weights", "dweights"}) reorder_keys(call, changed, name, 1, order);
  Values found = run_copy(call, execute);
  for (HostTensor& output : expected.outputs) output.assign(found.at(output.name()));
  const Call original = expected;
  reorder_keys(original, expected, "dk", key, order);
  reorder_keys(original, expected, "dv", value, order);
  reorder_keys(original, expected, "dbias", 1, order);
  for (const HostTensor& output : expected.outputs) found[output.name()] = output.values();
  return disagreement(call, run_copy(changed, execute), found);
}

// A softmax does not feel what is added to all scores of a row.
std::string bias_rows(const Call& call, const Execute& execute, Rng&) {
  const std::vector<double> dbias = run_copy(call, execute).at("dbias");
  const std::int64_t keys = call.dim("Sk");
  for (std::size_t row = 0; row * at(keys) < dbias.size(); ++row) {
    double sum = 0, size = 0;
    for (std::size_t j = row * at(keys); j < (row + 1) * at(keys); ++j) sum += dbias[j], size += std::fabs(dbias[j]);
    if (std::fabs(sum) > 2e-5 * (1 + size))
      return "row " + std::to_string(row) + " of dbias sums to " + std::to_string(sum) + ", its magnitudes to " + std::to_string(size);
  }
  return "";
}

std::string doubled(const Call& call, const Execute& execute, Rng&) {
  Values expected = run_copy(call, execute);
  for (auto& [name, values] : expected)
    for (double& value : values) value *= 2;
  Call changed = call;
  for (const char* name : {"dout", "dweights"})
    if (HostTensor* tensor = changed.find(name))
      for (std::int64_t i = 0; i < tensor->elements(); ++i) tensor->set(i, 2 * tensor->at(i));
  return disagreement(call, run_copy(changed, execute), expected);
}

std::vector<Property> laws() {
  const auto has_keys = [](const Call& call) { return writable(call) && call.input("k").elements() > 0 && call.input("q").elements() > 0; };
  const auto batched = [=](const Call& call) { return has_keys(call) && !call.given("cum_seqlens_q"); };
  const auto keeps_all = [](const Call& call) { return call.floating("dropout_prob") == 0; };
  const auto unordered = [=](const Call& call) {
    return batched(call) && has_full_rows(call) && keeps_all(call) && !call.given("block_mask") && !call.flag("causal") &&
           call.integer("window_left") < 0 && call.integer("window_right") < 0;
  };
  // Without `deterministic` blocks of keys may add to dq in any order, and what shares a bias to its gradient.
  const auto in_order = [](const Call& call, const std::string& output) {
    if (call.flag("deterministic")) return true;
    if (output != "dbias") return output != "dq";
    const auto& shape = call.find("dbias")->shape();
    return shape[0] == call.dim("B") && shape[1] == call.dim("Hq");
  };
  const auto nan_in = [](const char* input) {
    return [=](const Call& call, const Execute& execute, Rng& rng) { return one_nan(call, execute, rng, input); };
  };
  const auto alike = [](const char* input) {
    return [=](const Call& call, const Execute& execute, Rng&) { return all_alike(call, execute, input); };
  };
  return {
      repeats_bit_for_bit([](const Call&) { return true; }, in_order),
      {"keys share a row whose biases are the lowest finite number", [](const Call& c) { return writable(c) && takes_lowest_bias(c); },
       lowest_bias},
      {"keys may all be alike", has_keys, alike("k")},
      {"values may all be alike", has_keys, alike("v")},
      {"a key and a bias that no query sees do not matter, even NaN and infinity", writable, unseen_keys},
      {"a NaN in a key reaches the gradients of what sees it and no other", [=](const Call& c) { return has_keys(c) && keeps_all(c); },
       nan_in("k")},
      {"a NaN in a query reaches the gradients of what it sees and no other", [=](const Call& c) { return has_keys(c) && keeps_all(c); },
       nan_in("q")},
      {"a NaN in dout reaches the gradients of what its query sees and no other",
       [=](const Call& c) { return has_keys(c) && keeps_all(c); }, nan_in("dout")},
      {"earlier queries do not change the gradients of later keys",
       [=](const Call& c) { return batched(c) && has_full_rows(c) && c.flag("causal") && !c.given("softmax_aux"); }, earlier_queries},
      {"the order of the keys does not matter", unordered, shuffled_keys},
      {"the gradient of a bias sums to 0 along the keys",
       [](const Call& c) {
         const HostTensor* dbias = c.find("dbias");
         return writable(c) && dbias && dbias->type() == DType::f32 && c.input("q").type() == DType::f32 && !c.given("softmax_aux");
       },
       bias_rows},
      drops_what_the_forward_pass_dropped([](Call& changed) { reference_of(changed).complete(changed); }),
      {"twice the cotangent gives twice the gradients", writable, doubled},
  };
}

class FlashAttentionBackward : public AttentionGradientReference {
 public:
  FlashAttentionBackward() : AttentionGradientReference("flash_attention_bwd") {}
  spec::Case random_case(Rng& rng) const override {
    spec::Case c = random_attention(rng);
    want_gradients(c, rng);
    return vary(c, rng);
  }
  std::vector<OptionCase> option_cases() const override { return attention_option_cases(true); }
};

const Registration registration{std::make_unique<FlashAttentionBackward>()};

}  // namespace
}  // namespace ejk::reference::flash_attention_bwd

namespace ejk::reference {

std::vector<Property> AttentionGradientReference::properties() const { return flash_attention_bwd::laws(); }

}  // namespace ejk::reference
