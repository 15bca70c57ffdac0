// recurrent in float64: docs/semantics.md, "recurrent", token by token, every option.
#include <algorithm>
#include <cmath>

#include "reference/kernels/recurrence.hpp"

namespace ejk::reference::recurrent {
namespace {

class Recurrent : public KernelReference {
 public:
  std::string kernel() const override { return "recurrent"; }

  Values compute(const Call& call) const override {
    const RecurrentResult result = recurrent_result(call, "initial_state");
    return {{"out", result.out}, {"final_state", result.state}};
  }

  Samples sample(const Call& call, Rng& rng) const override { return recurrent_sample(call, "initial_state", "final_state", rng); }
  void complete(Call& call) const override { settle_keys(call); }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_recurrent(c, rng); }
  spec::Case random_case(Rng& rng) const override { return random_recurrent(rng); }
  std::vector<OptionCase> option_cases() const override { return recurrent_option_cases(); }
  std::vector<Property> properties() const override;
};

// Tensors that have a row a token: [batch, tokens, ...].
constexpr const char* by_token[] = {"q", "k", "v", "g", "gk", "gv", "beta", "out"};

// The tokens of each row in the other order.
void flip(const Call& call, const HostTensor& from, HostTensor& to) {
  const std::int64_t size = recurrent_token_size(call, from), length = call.dim("T");
  for (std::int64_t i = 0; i < from.elements(); ++i) {
    const std::int64_t token = i / size, row = token / length;
    to.set((row * length + length - 1 - token % length) * size + i % size, from.at(i));
  }
}

std::string flipped(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  for (const char* name : by_token)
    if (call.given(name) && std::string_view(name) != "out") flip(call, call.input(name), changed.input(name));
  changed.attributes["reverse"] = !call.flag("reverse");
  changed.rebind();
  Values found = run_copy(changed, execute);
  HostTensor rows("out", DType::f32, call.input("out").shape(), found.at("out")), back = rows;
  flip(call, rows, back);
  found["out"] = back.values();
  return disagreement(call, found, run_copy(call, execute));
}

// The first tokens, then the others from the state that those leave: as all at once.
std::string in_two_parts(const Call& call, const Execute& execute, Rng& rng) {
  const Values expected = run_copy(call, execute);
  const std::int64_t length = call.dim("T"), first = rng.between(0, length);
  Values found = expected;
  std::vector<double> state;
  for (const bool later : {false, true}) {
    const std::int64_t begin = later ? first : 0, count = later ? length - first : first;
    Call part = call;
    const auto cut = [&](const HostTensor& whole) {
      std::vector<std::int64_t> shape = whole.shape();
      shape[1] = count;
      HostTensor rows(whole.name(), whole.type(), shape);
      const std::int64_t size = recurrent_token_size(call, whole);
      for (std::int64_t i = 0; i < rows.elements(); ++i) {
        const std::int64_t token = i / size;
        rows.set(i, whole.at((token / count * length + begin + token % count) * size + i % size));
      }
      return rows;
    };
    for (HostTensor& tensor : part.inputs)
      if (std::find(std::begin(by_token), std::end(by_token), tensor.name()) != std::end(by_token)) tensor = cut(tensor);
    for (HostTensor& tensor : part.outputs)
      if (tensor.name() == "out")
        tensor = HostTensor("out", tensor.type(), {tensor.shape()[0], count, tensor.shape()[2], tensor.shape()[3]});
    if (later) part.input("initial_state").assign(state);
    part.rebind();
    const Values values = run_copy(part, execute);
    state = values.at("final_state");
    const std::int64_t size = recurrent_token_size(call, call.input("out"));
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.at("out").size()); ++i) {
      const std::int64_t token = i / size;
      found["out"][static_cast<std::size_t>((token / count * length + begin + token % count) * size + i % size)] =
          values.at("out")[static_cast<std::size_t>(i)];
    }
  }
  found["final_state"] = state;
  return disagreement(call, found, expected);
}

// A gate of -inf before a token: nothing of what was before it is left, however large.
std::string forgets(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  const std::int64_t length = call.dim("T"), at = rng.between(0, length - 1);
  HostTensor& g = changed.input("g");
  const std::int64_t size = recurrent_token_size(call, g);
  for (std::int64_t i = 0; i < g.elements(); ++i)
    if (i / size % length == at) g.set(i, -infinity);
  return first_failure(verify_call(Recurrent(), changed, execute));
}

std::vector<Property> Recurrent::properties() const {
  const auto batched = [](const Call& call) {
    return writable(call) && !call.given("cum_seqlens") && call.dim("T") > 0 && call.dim("V") > 0;
  };
  return {
      repeats_bit_for_bit([](const Call&) { return true; }),
      unused_tokens_do_not_matter({"q", "k", "v", "g", "gk", "gv", "beta"}, [](const Call& call) { return writable(call); }),
      {"the other direction on flipped tokens gives the same, flipped", batched, flipped},
      {"in two parts, the state handed over, as in one",
       [batched](const Call& call) { return batched(call) && call.given("initial_state") && !call.flag("reverse") && call.dim("B") > 0; },
       in_two_parts},
      {"a gate of -inf leaves nothing of what was before", [batched](const Call& call) { return batched(call) && call.given("g"); },
       forgets}};
}

const Registration registration{std::make_unique<Recurrent>()};

}  // namespace
}  // namespace ejk::reference::recurrent
