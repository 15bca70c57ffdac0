// ssd_bwd in float64: the gradients of docs/semantics.md, "ssd", token by token from the last, with every state kept.
#include <algorithm>
#include <cmath>

#include "reference/kernels/state_space.hpp"
#include "reference/spot.hpp"

namespace ejk::reference::ssd_bwd {
namespace {

using Numbers = std::vector<double>;

// Gradients of a stream's numbers, laid out as they are.
struct StreamGradient {
  Numbers x, dt, b, c, state;
  double rate = 0, skip = 0;
  explicit StreamGradient(const StateSpaceStream& s)
      : x(s.x.size()), dt(spot(s.tokens)), b(s.b.size()), c(s.c.size()), state(s.state.size()) {}
};

// One token: d.state is the gradient of the state after it, and becomes that of the state before it. before, after: those states.
void step_back(const StateSpaceStream& s, std::int64_t t, const double* dout, const double* before, const double* after,
               StreamGradient& d) {
  const double step = s.step[spot(t)], left = std::exp(step * s.rate);
  double d_step = 0, d_log = 0;
  for (std::int64_t p = 0; p < s.width; ++p) {
    const double x = s.x[spot(t * s.width + p)], dy = dout[p];
    double& dx = d.x[spot(t * s.width + p)];
    dx += s.skip * dy;
    d.skip += dy * x;
    for (std::int64_t n = 0; n < s.states; ++n) {
      const std::int64_t at = p * s.states + n, row = t * s.states + n;
      double& dh = d.state[spot(at)];
      d.c[spot(row)] += dy * after[at];
      dh += dy * s.c[spot(row)];
      dx += dh * step * s.b[spot(row)];
      d.b[spot(row)] += dh * step * x;
      d_step += dh * x * s.b[spot(row)];
      d_log += dh * left * before[at];
      dh *= left;
    }
  }
  d.rate += step * d_log;
  d.dt[spot(t)] = (d_step + s.rate * d_log) * s.slope[spot(t)];
}

// Of these rows of the state; sums over rows are over them alone.
StreamGradient gradient_of(const Call& call, const RecurrentSequence& sequence, std::int64_t head, const std::set<std::int64_t>& chosen) {
  const StateSpacePlaces places(call, sequence);
  const std::int64_t width = call.dim("P"), states = call.dim("N");
  StateSpaceStream s = with_rows(state_space_stream(call, sequence, head, "initial_state"), chosen);
  const std::int64_t size = s.width * states;
  Numbers seen = s.state;
  run_state_space(s, &seen);
  StreamGradient d(s);
  const HostTensor* const d_final = call.find("dfinal_state");
  std::int64_t next = 0;
  for (const std::int64_t p : chosen)
    for (std::int64_t n = 0; n < states; ++n)
      d.state[spot(next++)] = d_final ? d_final->at(places.state(head, width * states) + p * states + n) : 0;
  for (std::int64_t t = s.tokens - 1; t >= 0; --t) {
    Numbers dout;
    for (const std::int64_t p : chosen) dout.push_back(call.input("dout").at(places.of_head(t, head) * width + p));
    step_back(s, t, dout.data(), seen.data() + t * size, seen.data() + (t + 1) * size, d);
  }
  return d;
}

std::set<std::int64_t> all_below(std::int64_t count) {
  std::set<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.insert(all.end(), i);
  return all;
}

class SsdBackward : public KernelReference {
 public:
  std::string kernel() const override { return "ssd_bwd"; }

  Values compute(const Call& call) const override {
    const std::int64_t heads = call.dim("H"), width = call.dim("P"), states = call.dim("N");
    Values sums;
    for (const char* name : {"dx", "ddt", "dA", "dBm", "dC", "dD", "ddt_bias", "dinitial_state"})
      if (call.given(name)) sums[name] = Numbers(spot(call.input(name).elements()), 0.0);
    const auto add = [&sums](const char* name, std::int64_t first, const double* from, std::int64_t count) {
      const auto to = sums.find(name);
      for (std::int64_t i = 0; to != sums.end() && i < count; ++i) to->second[spot(first + i)] += from[i];
    };
    for (const RecurrentSequence& sequence : recurrent_sequences(call))
      for (std::int64_t head = 0; head < heads; ++head) {
        const StateSpacePlaces places(call, sequence);
        const StreamGradient d = gradient_of(call, sequence, head, all_below(width));
        for (std::int64_t t = 0; t < sequence.end - sequence.begin; ++t) {
          add("dx", places.of_head(t, head) * width, d.x.data() + t * width, width);
          add("dBm", places.of_group(t, head) * states, d.b.data() + t * states, states);
          add("dC", places.of_group(t, head) * states, d.c.data() + t * states, states);
          add("ddt", places.of_head(t, head), d.dt.data() + t, 1);
          add("ddt_bias", head, d.dt.data() + t, 1);
        }
        add("dA", head, &d.rate, 1);
        add("dD", head, &d.skip, 1);
        add("dinitial_state", places.state(head, width * states), d.state.data(), width * states);
      }
    return sums;
  }

  // What is no sum over rows of states, of some of them: dx and dinitial_state.
  Samples sample(const Call& call, Rng& rng) const override {
    const std::int64_t heads = call.dim("H"), width = call.dim("P"), states = call.dim("N");
    const std::vector<RecurrentSequence> sequences = recurrent_sequences(call);
    const std::set<std::int64_t> chosen = some_below(width, 4, rng);
    Samples samples;
    for (const std::int64_t number : some_below(static_cast<std::int64_t>(sequences.size()) * heads, 2, rng)) {
      const RecurrentSequence& sequence = sequences[spot(number / heads)];
      const StateSpacePlaces places(call, sequence);
      const std::int64_t head = number % heads;
      const StreamGradient d = gradient_of(call, sequence, head, chosen);
      const double *next = d.x.data(), *state = d.state.data();
      for (std::int64_t t = 0; t < sequence.end - sequence.begin; ++t)
        for (const std::int64_t p : chosen) samples["dx"].add(places.of_head(t, head) * width + p, next++, 1);
      if (!call.given("dinitial_state")) continue;
      for (const std::int64_t p : chosen)
        for (std::int64_t n = 0; n < states; ++n)
          samples["dinitial_state"].add(places.state(head, width * states) + p * states + n, state++, 1);
    }
    return samples;
  }

  void complete(Call& call) const override { settle_steps(call); }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_state_space(c, rng); }
  spec::Case random_case(Rng& rng) const override { return with_gradients(random_state_space(rng), rng.chance(0.5)); }

  std::vector<OptionCase> option_cases() const override {
    std::vector<OptionCase> cases = state_space_option_cases();
    for (OptionCase& one : cases) one.c = with_gradients(std::move(one.c), one.c.name.find("initial_state") != std::string::npos);
    return cases;
  }

  std::vector<Property> properties() const override {
    return {repeats_bit_for_bit([](const Call&) { return true; }), grows_with_cotangents({"dout", "dfinal_state"})};
  }

 private:
  static spec::Case with_gradients(spec::Case c, bool with_final) {
    const std::vector<std::string> given = c.given;
    for (const std::string& name : given)
      if (name != "cum_seqlens") c.given.push_back("d" + name);
    for (const char* type : {"Ea", "Eb"})  // sums over all tokens and a whole state, of random numbers: above f16's largest
      if (c.types.contains(type) && c.types.at(type) == "f16") c.types[type] = "bf16";
    if (with_final) c.given.emplace_back("dfinal_state");
    return c;
  }
};

const Registration registration{std::make_unique<SsdBackward>()};

}  // namespace
}  // namespace ejk::reference::ssd_bwd
