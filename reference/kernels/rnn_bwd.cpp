// rnn_bwd in float64: the gradients of docs/semantics.md, "rnn", step by step from the last, at the states that y holds.
#include <algorithm>
#include <cmath>

#include "reference/kernels/rnn_cells.hpp"
#include "reference/spot.hpp"

namespace ejk::reference::rnn_bwd {
namespace {

using Numbers = std::vector<double>;

// Gradients at one step: of what gates take from x (input) and from the state (recurrent), [gates][H]; what of the state's flows past the
// gates.
struct StepGradient {
  std::vector<Numbers> input, recurrent;
  Numbers past;
};

// dstate: of the state after the step; dmemory: of an LSTM's memory after it, and becomes that before it. y: the state after it as y has
// it.
StepGradient gates_back(RnnCell cell, const RnnStep& s, const Numbers& y, const Numbers& dstate, Numbers& dmemory) {
  StepGradient d{std::vector<Numbers>(s.gates.size()), {}, Numbers(y.size(), 0.0)};
  for (std::size_t j = 0; j < y.size(); ++j) {
    const auto gate = [&](std::size_t g) { return s.gates[g][j]; };
    const auto through_sigmoid = [&](std::size_t g, double x) { return x * gate(g) * (1 - gate(g)); };
    const double dh = dstate[j];
    if (cell == RnnCell::lstm) {
      const double bent = std::tanh(s.memory[j]), dc = dmemory[j] + dh * gate(3) * (1 - bent * bent);
      d.input[0].push_back(through_sigmoid(0, dc * gate(2)));
      d.input[1].push_back(through_sigmoid(1, dc * s.memory_before[j]));
      d.input[2].push_back(dc * gate(0) * (1 - gate(2) * gate(2)));
      d.input[3].push_back(through_sigmoid(3, dh * bent));
      dmemory[j] = dc * gate(1);
    } else if (cell == RnnCell::gru) {
      const double dn = dh * (1 - gate(1)) * (1 - gate(2) * gate(2));
      d.input[0].push_back(through_sigmoid(0, dn * s.recurrent_n[j]));
      d.input[1].push_back(through_sigmoid(1, dh * (s.state_before[j] - gate(2))));
      d.input[2].push_back(dn);
      d.past[j] = dh * gate(1);
    } else {
      d.input[0].push_back(cell == RnnCell::tanh ? dh * (1 - y[j] * y[j]) : y[j] > 0 ? dh : 0);
    }
  }
  d.recurrent = d.input;
  if (cell == RnnCell::gru)
    for (std::size_t j = 0; j < y.size(); ++j) d.recurrent[2][j] *= s.gates[0][j];
  return d;
}

class Sums {
 public:
  explicit Sums(const Call& call) : call_(call) {
    for (const char* name : {"dx", "dw_ih", "dw_hh", "dh0", "dc0", "db_ih", "db_hh"})
      if (call.given(name)) values_[name] = Numbers(spot(call.input(name).elements()), 0.0);
  }
  void add(const char* name, std::int64_t at, double x) {
    if (const auto found = values_.find(name); found != values_.end()) found->second[spot(at)] += x;
  }
  const Values& values() const { return values_; }

  // One projection of a step: gradients of its weights, bias and operand, the last of which it returns.
  Numbers project(const RnnRow& row, const char* dweights, const char* dbias, const std::vector<Numbers>& d, const Numbers& operand,
                  const Numbers& w) {
    Numbers back(operand.size(), 0.0);
    const auto width = static_cast<std::int64_t>(operand.size());
    for (std::size_t g = 0; g < d.size(); ++g)
      for (std::size_t j = 0; j < d[g].size(); ++j) {
        const auto gate = static_cast<std::int64_t>(g), feature = static_cast<std::int64_t>(j);
        add(dbias, rnn_place_in_weights(call_, row, gate, feature, 1), d[g][j]);
        const std::int64_t first = rnn_place_in_weights(call_, row, gate, feature, width);
        for (std::size_t k = 0; k < operand.size(); ++k) {
          add(dweights, first + static_cast<std::int64_t>(k), d[g][j] * operand[k]);
          back[k] += d[g][j] * w[spot(first) + k];
        }
      }
    return back;
  }

 private:
  const Call& call_;
  Values values_;
};

// `rounds`: the first state and the gates' gradients rounded to x's type where weights multiply them, as matrix instructions take them.
void add_row(const Call& call, const RnnRow& row, const Numbers& w_ih, const Numbers& w_hh, Sums& sums, bool rounds = false) {
  const HostTensor* const y_of = &call.input("y");
  std::vector<RnnStep> steps = rounds ? rounded_rnn_steps(call, row, y_of) : rnn_steps(call, row, y_of);
  if (rounds && !steps.empty()) steps.front().state_before = rounded(steps.front().state_before, call.input("x").type());
  Numbers dstate = rnn_start(call, "dh_n", row), dmemory = rnn_start(call, "dc_n", row);
  for (std::int64_t t = row.length - 1; t >= 0; --t) {
    const std::int64_t at = rnn_place_in_y(call, row, row.token(t));
    Numbers y;
    for (std::size_t j = 0; j < dstate.size(); ++j) {
      y.push_back(call.input("y").at(at + static_cast<std::int64_t>(j)));
      dstate[j] += call.input("dy").at(at + static_cast<std::int64_t>(j));
    }
    const RnnStep& s = steps[spot(t)];
    StepGradient d = gates_back(rnn_cell(call), s, y, dstate, dmemory);
    if (rounds)
      for (Numbers& gate : d.recurrent) gate = rounded(gate, call.input("x").type());
    const Numbers dx = sums.project(row, "dw_ih", "db_ih", d.input, s.x, w_ih);
    for (std::size_t i = 0; i < dx.size(); ++i)
      sums.add("dx", (row.row * call.dim("T") + row.token(t)) * call.dim("I") + static_cast<std::int64_t>(i), dx[i]);
    dstate = sums.project(row, "dw_hh", "db_hh", d.recurrent, s.state_before, w_hh);
    for (std::size_t j = 0; j < dstate.size(); ++j) dstate[j] += d.past[j];
  }
  for (std::size_t j = 0; j < dstate.size(); ++j) {
    sums.add("dh0", rnn_place_in_state(call, row) + static_cast<std::int64_t>(j), dstate[j]);
    sums.add("dc0", rnn_place_in_state(call, row) + static_cast<std::int64_t>(j), dmemory[j]);
  }
}

// Root mean square. Twice that of what rounding changes is what it may leave in dh0 and dc0, which are f32.
double mean_difference(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::isfinite(a[i]) && std::isfinite(b[i])) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return a.empty() ? 0 : std::sqrt(sum / static_cast<double>(a.size()));
}

double steps_work(const Call& call) {
  return static_cast<double>(call.dim("B") * call.dim("T")) * static_cast<double>(call.dim("G") * call.dim("H")) *
         static_cast<double>(call.dim("I") + call.dim("H"));
}

// Between -1 and 1, and 0 past each row's length.
void some_states(const Call& call, HostTensor& y) {
  Numbers states = y.values();
  for (double& x : states) x /= 1 + std::fabs(x);
  const std::int64_t width = call.dim("dirs") * call.dim("H"), tokens = call.dim("T");
  for (std::int64_t i = 0; call.given("lengths") && i < y.elements(); ++i)
    if (static_cast<double>(i / width % tokens) >= call.input("lengths").at(i / width / tokens)) states[spot(i)] = 0;
  y.assign(states);
}

class RnnBackward : public KernelReference {
 public:
  std::string kernel() const override { return "rnn_bwd"; }

  Values compute(const Call& call) const override {
    Sums sums(call);
    const Numbers w_ih = call.input("w_ih").values(), w_hh = call.input("w_hh").values();
    for (const RnnRow& row : rnn_rows(call)) add_row(call, row, w_ih, w_hh, sums);
    Values values = sums.values();
    if (call.input("x").type() != DType::f32 && (call.given("dh0") || call.given("dc0"))) {
      Sums changed(call);
      for (const RnnRow& row : rnn_rows(call)) add_row(call, row, w_ih, w_hh, changed, true);
      for (const char* name : {"dh0", "dc0"})
        if (call.given(name)) values[std::string(name) + " rounding"] = {2 * mean_difference(values.at(name), changed.values().at(name))};
    }
    return values;
  }

  // Gradients of x and of the first states of one row of the batch, unless it has too many steps.
  Samples sample(const Call& call, Rng& rng) const override {
    Samples samples;
    const std::int64_t tokens = call.dim("T"), features = call.dim("I"), state = call.dim("H");
    if (steps_work(call) > 2e9 * static_cast<double>(call.dim("B"))) return samples;
    Sums sums(call);
    const Numbers w_ih = call.input("w_ih").values(), w_hh = call.input("w_hh").values();
    for (const std::int64_t chosen : some_below(call.dim("B"), 1, rng)) {
      const auto add = [&](const char* name, std::int64_t first, std::int64_t count) {
        if (const auto found = sums.values().find(name); found != sums.values().end() && count > 0)
          samples[name].add(first, found->second.data() + first, count);
      };
      for (const RnnRow& row : rnn_rows(call)) {
        if (row.row != chosen) continue;
        add_row(call, row, w_ih, w_hh, sums);
        for (const char* name : {"dh0", "dc0"}) add(name, rnn_place_in_state(call, row), state);
      }
      add("dx", chosen * tokens * features, tokens * features);
    }
    return samples;
  }

  // y is what the forward pass gives, rounded, and gates what it makes of such states; of calls that are too large for that, numbers like
  // it.
  void complete(Call& call) const override {
    settle_weights(call);
    HostTensor& y = call.input("y");
    if (steps_work(call) > 2e10) return some_states(call, y);
    Numbers states(spot(y.elements()), 0.0);
    for (const RnnRow& row : rnn_rows(call)) {
      const std::vector<RnnStep> steps = rnn_steps(call, row);
      for (std::int64_t t = 0; t < row.length; ++t)
        std::copy(steps[spot(t)].state.begin(), steps[spot(t)].state.end(), states.begin() + rnn_place_in_y(call, row, row.token(t)));
    }
    y.assign(states);
    if (!call.given("gates")) return;
    HostTensor& gates = call.input("gates");
    if (gates.broadcast()) {  // tokens that share memory cannot have what each of them took
      gates = HostTensor(gates.name(), gates.type(), gates.shape());
      call.rebind();
    }
    Numbers kept(spot(gates.elements()), 0.0);
    for (const RnnRow& row : rnn_rows(call)) put_kept_gates(call, row, rnn_steps(call, row, &y), kept);
    gates.assign(kept);
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_rnn(c, rng); }
  spec::Case random_case(Rng& rng) const override { return with_gradients(random_rnn(rng)); }

  std::vector<OptionCase> option_cases() const override {
    std::vector<OptionCase> cases = rnn_option_cases();
    for (OptionCase& one : cases) one.c = with_gradients(std::move(one.c));
    return cases;
  }

  std::vector<Property> properties() const override {
    return {
        repeats_bit_for_bit([](const Call&) { return true; }),
        grows_with_cotangents({"dy", "dh_n", "dc_n"}),
        {"tokens past a row's length do not matter, even NaN",
         [](const Call& call) { return writable(call) && call.given("lengths") && call.dim("I") > 0 && call.dim("H") > 0; }, past_the_end}};
  }

 private:
  // Gradients of what is given, and of the states that a forward call would have given.
  static spec::Case with_gradients(spec::Case c) {
    std::vector<std::string> given;
    for (const std::string& name : c.given) {
      if (name == "c_n") {
        given.push_back("dc_n");
        continue;
      }
      given.push_back(name);
      if (name != "lengths" && name != "gates") given.push_back("d" + name);
      if (name == "h0") given.push_back("dh_n");
    }
    c.given = given;
    return c;
  }

  static std::string past_the_end(const Call& call, const Execute& execute, Rng&) {
    Call changed = call;
    for (const char* name : {"x", "dy"}) {
      HostTensor& tensor = changed.input(name);
      const std::int64_t width = tensor.shape()[2], length = call.dim("T");
      for (std::int64_t i = 0; i < tensor.elements(); ++i)
        if (static_cast<double>(i / width % length) >= call.input("lengths").at(i / width / length)) tensor.set(i, nan);
    }
    if (call.given("gates") && call.dim("kept") > 0)
      for (const RnnRow& row : rnn_rows(call)) {
        const std::int64_t end = rnn_place_in_gates(call, row, call.dim("T"));
        for (std::int64_t i = rnn_place_in_gates(call, row, row.length); i < end; ++i) changed.input("gates").set(i, nan);
      }
    return disagreement(call, run_copy(changed, execute), run_copy(call, execute));
  }
};

const Registration registration{std::make_unique<RnnBackward>()};

}  // namespace
}  // namespace ejk::reference::rnn_bwd
