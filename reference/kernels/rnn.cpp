// rnn in float64: docs/semantics.md, "rnn", step by step, every cell and option.
#include <algorithm>
#include <cmath>
#include <map>

#include "reference/kernels/rnn_cells.hpp"
#include "reference/spot.hpp"

namespace ejk::reference::rnn {
namespace {

void put(std::vector<double>& to, std::int64_t first, const std::vector<double>& from) {
  std::copy(from.begin(), from.end(), to.begin() + first);
}

// What rounding the states to x's type, where the weights multiply them, leaves in the last states, which are f32: twice the root mean
// square of what it changes here; likewise in the gates that are kept. Variants on matrix instructions round so.
class RoundingLeaves {
 public:
  void add(const Call& call, const RnnRow& row, const std::vector<RnnStep>& steps) {
    if (call.input("x").type() == DType::f32) return;
    const std::vector<RnnStep> found = rounded_rnn_steps(call, row);
    add_squares("h_n", found.back().state, steps.back().state);
    add_squares("c_n", found.back().memory, steps.back().memory);
    for (std::size_t t = 0; t < steps.size(); ++t)
      for (std::size_t g = 0; g < steps[t].kept.size(); ++g) add_squares("gates", found[t].kept[g], steps[t].kept[g]);
  }
  void put(Values& values) const {
    for (const auto& [name, sum] : squares_)
      if (values.contains(name) && !values.at(name).empty())
        values[name + " rounding"] = {2 * std::sqrt(sum / static_cast<double>(values.at(name).size()))};
  }

 private:
  void add_squares(const char* name, const std::vector<double>& found, const std::vector<double>& exact) {
    double& sum = squares_[name];
    for (std::size_t j = 0; j < exact.size(); ++j)
      if (std::isfinite(found[j]) && std::isfinite(exact[j])) sum += (found[j] - exact[j]) * (found[j] - exact[j]);
  }
  std::map<std::string, double> squares_;
};

class Rnn : public KernelReference {
 public:
  std::string kernel() const override { return "rnn"; }

  Values compute(const Call& call) const override {
    const std::int64_t state = call.dim("dirs") * call.dim("B") * call.dim("H");
    Values values;
    values["y"].resize(spot(call.dim("T") * state), 0.0);
    values["h_n"].resize(spot(state), 0.0);
    if (rnn_cell(call) == RnnCell::lstm) values["c_n"].resize(spot(state), 0.0);
    if (call.given("gates")) values["gates"].resize(spot(call.dim("T") * call.dim("kept") * state), 0.0);
    RoundingLeaves leaves;
    for (const RnnRow& row : rnn_rows(call)) {
      const std::vector<RnnStep> steps = rnn_steps(call, row);
      for (std::size_t t = 0; t < steps.size(); ++t)
        put(values["y"], rnn_place_in_y(call, row, row.token(static_cast<std::int64_t>(t))), steps[t].state);
      put(values["h_n"], rnn_place_in_state(call, row), steps.empty() ? rnn_start(call, "h0", row) : steps.back().state);
      if (values.contains("c_n"))
        put(values["c_n"], rnn_place_in_state(call, row), steps.empty() ? rnn_start(call, "c0", row) : steps.back().memory);
      if (call.given("gates")) put_kept_gates(call, row, steps, values["gates"]);
      if (!steps.empty()) leaves.add(call, row, steps);
    }
    leaves.put(values);
    return values;
  }

  // The first steps of two rows.
  Samples sample(const Call& call, Rng& rng) const override {
    const std::vector<RnnRow> rows = rnn_rows(call);
    const std::int64_t a_step = call.dim("G") * call.dim("H") * (call.dim("I") + call.dim("H"));
    const std::int64_t most = std::max<std::int64_t>(1, 50'000'000 / std::max<std::int64_t>(a_step, 1));
    Samples samples;
    for (const std::int64_t number : some_below(static_cast<std::int64_t>(rows.size()), 1, rng)) {
      const RnnRow& row = rows[spot(number)];
      const std::vector<RnnStep> steps = first_rnn_steps(call, row, most);
      for (std::size_t t = 0; t < steps.size(); ++t)
        samples["y"].add(rnn_place_in_y(call, row, row.token(static_cast<std::int64_t>(t))), steps[t].state.data(), call.dim("H"));
    }
    return samples;
  }

  void complete(Call& call) const override { settle_weights(call); }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_rnn(c, rng); }
  spec::Case random_case(Rng& rng) const override { return random_rnn(rng); }
  std::vector<OptionCase> option_cases() const override { return rnn_option_cases(); }
  std::vector<Property> properties() const override;
};

// ---- laws ----

std::string past_the_end(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  HostTensor& x = changed.input("x");
  const std::int64_t width = call.dim("I"), length = call.dim("T");
  for (std::int64_t i = 0; i < x.elements(); ++i)
    if (static_cast<double>(i / width % length) >= call.input("lengths").at(i / width / length)) x.set(i, nan);
  return disagreement(call, run_copy(changed, execute), run_copy(call, execute));
}

Call without_gates(Call call) {
  std::erase_if(call.outputs, [](const HostTensor& tensor) { return tensor.name() == "gates"; });
  call.rebind();
  return call;
}

// Copies a token-major tensor's tokens [from, from + count).
HostTensor tokens_of(const HostTensor& whole, std::int64_t from, std::int64_t count) {
  std::vector<std::int64_t> shape = whole.shape();
  const std::int64_t length = shape[1], width = shape[2];
  shape[1] = count;
  HostTensor part(whole.name(), whole.type(), shape);
  for (std::int64_t i = 0; i < part.elements(); ++i) {
    const std::int64_t row = i / width / count, token = i / width % count;
    part.set(i, whole.at((row * length + from + token) * width + i % width));
  }
  return part;
}

// The first tokens, then the others from the state that those leave: as all at once.
std::string in_two_parts(const Call& whole, const Execute& execute, Rng& rng) {
  const Call call = without_gates(whole);
  const Values expected = run_copy(call, execute);
  const std::int64_t length = call.dim("T"), first = rng.between(0, length), width = call.dim("H");
  Values found = expected;
  Values before;
  for (const bool later : {false, true}) {
    const std::int64_t begin = later ? first : 0, count = later ? length - first : first;
    Call part = call;
    for (HostTensor& tensor : part.inputs)
      if (tensor.name() == "x") tensor = tokens_of(tensor, begin, count);
    for (HostTensor& tensor : part.outputs)
      if (tensor.name() == "y") tensor = HostTensor("y", tensor.type(), {tensor.shape()[0], count, width});
    if (later) {
      part.input("h0").assign(before.at("h_n"));
      if (call.given("c0")) part.input("c0").assign(before.at("c_n"));
    }
    part.rebind();
    before = run_copy(part, execute);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(before.at("y").size()); ++i) {
      const std::int64_t row = i / width / count, token = i / width % count;
      found["y"][spot((row * length + begin + token) * width + i % width)] = before.at("y")[spot(i)];
    }
  }
  for (const char* name : {"h_n", "c_n"})
    if (found.contains(name)) found[name] = before.at(name);
  return disagreement(call, found, expected);
}

// Direction `d` of a tensor whose outermost dim is the directions.
HostTensor one_direction(const HostTensor& both, std::int64_t d) {
  std::vector<std::int64_t> shape = both.shape();
  shape[0] = 1;
  HostTensor one(both.name(), both.type(), shape);
  for (std::int64_t i = 0; i < one.elements(); ++i) one.set(i, both.at(d * one.elements() + i));
  return one;
}

// Each direction is a call of its own: the second one on tokens in the other order.
std::string direction_by_direction(const Call& both, const Execute& execute, Rng&) {
  const Call call = without_gates(both);
  const Values expected = run_copy(call, execute);
  const std::int64_t length = call.dim("T"), width = call.dim("H"), inputs = call.dim("I");
  Values found = expected;
  for (const std::int64_t d : {0, 1}) {
    Call one = call;
    one.attributes["bidirectional"] = false;
    for (HostTensor& tensor : one.inputs)
      if (tensor.name() != "x" && tensor.name() != "lengths") tensor = one_direction(tensor, d);
    for (HostTensor& tensor : one.outputs)
      tensor = tensor.name() == "y" ? HostTensor("y", tensor.type(), {call.dim("B"), length, width}) : one_direction(tensor, d);
    if (d == 1)
      for (std::int64_t i = 0; i < call.input("x").elements(); ++i) {
        const std::int64_t row = i / inputs / length, token = i / inputs % length;
        one.input("x").set((row * length + length - 1 - token) * inputs + i % inputs, call.input("x").at(i));
      }
    one.rebind();
    const Values values = run_copy(one, execute);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.at("y").size()); ++i) {
      const std::int64_t row = i / width / length, token = i / width % length, at = d == 1 ? length - 1 - token : token;
      found["y"][spot(((row * length + at) * 2 + d) * width + i % width)] = values.at("y")[spot(i)];
    }
    for (const char* name : {"h_n", "c_n"})
      if (values.contains(name)) put(found[name], d * static_cast<std::int64_t>(values.at(name).size()), values.at(name));
  }
  return disagreement(call, found, expected);
}

// The two biases are one sum, but for a GRU's n, where r multiplies the second.
std::string biases_swapped(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  const std::int64_t rows = call.dim("G") * call.dim("H"), kept = rnn_cell(call) == RnnCell::gru ? 2 * call.dim("H") : rows;
  for (std::int64_t i = 0; i < call.input("b_ih").elements(); ++i) {
    if (i % rows >= kept) continue;
    changed.input("b_ih").set(i, call.input("b_hh").at(i));
    changed.input("b_hh").set(i, call.input("b_ih").at(i));
  }
  return disagreement(call, run_copy(changed, execute), run_copy(call, execute));
}

std::vector<Property> Rnn::properties() const {
  const auto some = [](const Call& call) { return writable(call) && call.dim("T") > 0 && call.dim("B") > 0 && call.dim("I") > 0; };
  return {repeats_bit_for_bit([](const Call&) { return true; }),
          {"tokens past a row's length do not matter, even NaN", [some](const Call& call) { return some(call) && call.given("lengths"); },
           past_the_end},
          {"in two parts, the states handed over, as in one",
           [some](const Call& call) {
             return some(call) && call.given("h0") && call.given("c0") == call.given("c_n") &&
                    call.given("c0") == (rnn_cell(call) == RnnCell::lstm) && call.dim("dirs") == 1 && !call.given("lengths");
           },
           in_two_parts},
          {"each direction is as a call of its own",
           [some](const Call& call) { return some(call) && call.dim("dirs") == 2 && !call.given("lengths"); }, direction_by_direction},
          {"the two biases may be swapped", [some](const Call& call) { return some(call) && call.given("b_ih") && call.given("b_hh"); },
           biases_swapped}};
}

const Registration registration{std::make_unique<Rnn>()};

}  // namespace
}  // namespace ejk::reference::rnn
