// ssd in float64: docs/semantics.md, "ssd", token by token, every option.
#include <algorithm>

#include "reference/kernels/state_space.hpp"

namespace ejk::reference::ssd {
namespace {

class Ssd : public KernelReference {
 public:
  std::string kernel() const override { return "ssd"; }

  Values compute(const Call& call) const override {
    const RecurrentResult result = state_space_result(call, "initial_state");
    return {{"out", result.out}, {"final_state", result.state}};
  }

  Samples sample(const Call& call, Rng& rng) const override { return state_space_sample(call, "initial_state", "final_state", rng); }
  void complete(Call& call) const override { settle_steps(call); }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_state_space(c, rng); }
  spec::Case random_case(Rng& rng) const override { return random_state_space(rng); }
  std::vector<OptionCase> option_cases() const override { return state_space_option_cases(); }
  std::vector<Property> properties() const override;
};

// Tensors that have a row a token: [batch, tokens, ...].
constexpr const char* by_token[] = {"x", "dt", "Bm", "C"};

// Numbers of a tensor that belong to one token.
std::int64_t token_size(const Call& call, const HostTensor& tensor) {
  const std::int64_t tokens = tensor.shape()[0] * call.dim("T");
  return tokens > 0 ? tensor.elements() / tokens : 0;
}

std::string unused_tokens(const Call& call, const Execute& execute, Rng&) {
  const Values expected = run_copy(call, execute);
  const std::vector<bool> used = recurrent_tokens_in_use(call);
  Call changed = call;
  for (const char* name : by_token) {
    HostTensor& tensor = changed.input(name);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (!used[static_cast<std::size_t>(i / token_size(call, tensor))]) tensor.set(i, nan);
  }
  return disagreement(call, run_copy(changed, execute), expected);
}

// Row-major place in a tensor of `length` tokens of number i of its tokens from `begin` on, of which there are `count`.
std::int64_t place_of(std::int64_t i, std::int64_t size, std::int64_t begin, std::int64_t count, std::int64_t length) {
  const std::int64_t token = i / size;
  return (token / count * length + begin + token % count) * size + i % size;
}

// The first tokens, then the others from the state that those leave: as all at once.
std::string in_two_parts(const Call& call, const Execute& execute, Rng& rng) {
  const Values expected = run_copy(call, execute);
  const std::int64_t length = call.dim("T"), first = rng.between(0, length), size = call.dim("H") * call.dim("P");
  Values found = expected;
  for (const bool later : {false, true}) {
    const std::int64_t begin = later ? first : 0, count = later ? length - first : first;
    Call part = call;
    for (const char* name : by_token) {
      const HostTensor& whole = call.input(name);
      std::vector<std::int64_t> shape = whole.shape();
      shape[1] = count;
      HostTensor rows(name, whole.type(), shape);
      for (std::int64_t i = 0; i < rows.elements(); ++i) rows.set(i, whole.at(place_of(i, token_size(call, whole), begin, count, length)));
      part.input(name) = rows;
    }
    for (HostTensor& tensor : part.outputs)
      if (tensor.name() == "out") tensor = HostTensor("out", tensor.type(), {call.dim("B"), count, call.dim("H"), call.dim("P")});
    if (later) part.input("initial_state").assign(found.at("final_state"));
    part.rebind();
    const Values values = run_copy(part, execute);
    found["final_state"] = values.at("final_state");
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.at("out").size()); ++i)
      found["out"][static_cast<std::size_t>(place_of(i, size, begin, count, length))] = values.at("out")[static_cast<std::size_t>(i)];
  }
  return disagreement(call, found, expected);
}

// Twice x and twice the state before give twice the results.
std::string twice(const Call& call, const Execute& execute, Rng&) {
  Values expected = run_copy(call, execute);
  for (auto& [name, values] : expected)
    for (double& value : values) value *= 2;
  Call changed = call;
  for (const char* name : {"x", "initial_state"}) {
    if (!call.given(name)) continue;
    HostTensor& tensor = changed.input(name);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, 2 * tensor.at(i));
  }
  return disagreement(call, run_copy(changed, execute), expected);
}

// A step of 0 neither decays the state nor writes to it.
std::string without_steps(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  HostTensor& steps = changed.input("dt");
  for (std::int64_t i = 0; i < steps.elements(); ++i) steps.set(i, 0);
  const std::vector<double> states = call.input("initial_state").values();
  const Values found = run_copy(changed, execute);
  if (found.at("final_state") != states) return "the state changed";
  return first_failure(verify_call(Ssd(), changed, execute));
}

std::vector<Property> Ssd::properties() const {
  const auto with_state = [](const Call& call) { return writable(call) && call.given("initial_state"); };
  return {
      repeats_bit_for_bit([](const Call&) { return true; }),
      {"tokens past the last sequence do not matter, even NaN",
       [](const Call& call) { return writable(call) && call.given("cum_seqlens"); }, unused_tokens},
      {"in two parts, the state handed over, as in one",
       [with_state](const Call& call) { return with_state(call) && !call.given("cum_seqlens") && call.dim("B") > 0 && call.dim("T") > 0; },
       in_two_parts},
      {"twice x and twice the state give twice the results", writable, twice},
      {"steps of 0 leave the state as it is",
       [with_state](const Call& call) { return with_state(call) && !call.given("dt_bias") && !call.flag("dt_softplus"); }, without_steps}};
}

const Registration registration{std::make_unique<Ssd>()};

}  // namespace
}  // namespace ejk::reference::ssd
