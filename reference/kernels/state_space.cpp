// One sequence and head of Mamba-2's state space in float64: docs/semantics.md, "ssd".
#include "reference/kernels/state_space.hpp"
#include "reference/spot.hpp"

#include <algorithm>
#include <cmath>

namespace ejk::reference {
namespace {

double given_or_0(const Call& call, const char* name, std::int64_t index) {
  const HostTensor* tensor = call.find(name);
  return tensor ? tensor->at(index) : 0;
}

void append_row(const HostTensor& from, std::int64_t row, std::int64_t width, std::vector<double>& to) {
  for (std::int64_t i = 0; i < width; ++i) to.push_back(from.at(row * width + i));
}

}  // namespace

StateSpaceStream state_space_stream(const Call& call, const RecurrentSequence& sequence, std::int64_t head, const char* state) {
  const StateSpacePlaces places(call, sequence);
  StateSpaceStream s;
  s.tokens = sequence.end - sequence.begin, s.width = call.dim("P"), s.states = call.dim("N");
  s.rate = call.input("A").at(head), s.skip = given_or_0(call, "D", head);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const double step = call.input("dt").at(places.of_head(t, head)) + given_or_0(call, "dt_bias", head);
    const bool softplus = call.flag("dt_softplus");
    s.step.push_back(softplus ? std::max(step, 0.0) + std::log1p(std::exp(-std::abs(step))) : step);
    s.slope.push_back(softplus ? 1 / (1 + std::exp(-step)) : 1);
    append_row(call.input("x"), places.of_head(t, head), s.width, s.x);
    append_row(call.input("Bm"), places.of_group(t, head), s.states, s.b);
    append_row(call.input("C"), places.of_group(t, head), s.states, s.c);
  }
  const std::int64_t size = s.width * s.states;
  for (std::int64_t i = 0; i < size; ++i) s.state.push_back(given_or_0(call, state, places.state(head, size) + i));
  return s;
}

StateSpaceStream with_rows(StateSpaceStream s, const std::set<std::int64_t>& chosen) {
  StateSpaceStream some = s;
  some.x.clear(), some.state.clear();
  some.width = static_cast<std::int64_t>(chosen.size());
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (const std::int64_t p : chosen) some.x.push_back(s.x[spot(t * s.width + p)]);
  for (const std::int64_t p : chosen)
    some.state.insert(some.state.end(), s.state.begin() + p * s.states, s.state.begin() + (p + 1) * s.states);
  return some;
}

std::vector<double> run_state_space(StateSpaceStream& s, std::vector<double>* seen) {
  std::vector<double> out;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const double step = s.step[spot(t)], left = std::exp(step * s.rate);
    for (std::int64_t p = 0; p < s.width; ++p) {
      const double x = s.x[spot(t * s.width + p)];
      double y = s.skip * x;
      for (std::int64_t n = 0; n < s.states; ++n) {
        double& h = s.state[spot(p * s.states + n)];
        h = left * h + step * x * s.b[spot(t * s.states + n)];
        y += h * s.c[spot(t * s.states + n)];
      }
      out.push_back(y);
    }
    if (seen) seen->insert(seen->end(), s.state.begin(), s.state.end());
  }
  return out;
}

RecurrentResult state_space_result(const Call& call, const char* state) {
  const std::int64_t heads = call.dim("H"), width = call.dim("P"), size = width * call.dim("N");
  const std::vector<RecurrentSequence> sequences = recurrent_sequences(call);
  RecurrentResult result;
  result.out.resize(spot(call.input("out").elements()), 0.0);
  result.state.resize(sequences.size() * spot(heads * size), 0.0);
  for (const RecurrentSequence& sequence : sequences)
    for (std::int64_t head = 0; head < heads; ++head) {
      const StateSpacePlaces places(call, sequence);
      StateSpaceStream stream = state_space_stream(call, sequence, head, state);
      const std::vector<double> rows = run_state_space(stream);
      for (std::int64_t t = 0; t < stream.tokens; ++t)
        std::copy_n(rows.begin() + t * width, width, result.out.begin() + places.of_head(t, head) * width);
      std::copy(stream.state.begin(), stream.state.end(), result.state.begin() + places.state(head, size));
    }
  return result;
}

Samples state_space_sample(const Call& call, const char* state, const char* last, Rng& rng) {
  const std::int64_t heads = call.dim("H"), width = call.dim("P"), states = call.dim("N");
  const std::vector<RecurrentSequence> sequences = recurrent_sequences(call);
  const std::set<std::int64_t> chosen = some_below(width, 8, rng);
  Samples samples;
  for (const std::int64_t number : some_below(static_cast<std::int64_t>(sequences.size()) * heads, 4, rng)) {
    const RecurrentSequence& sequence = sequences[spot(number / heads)];
    const std::int64_t head = number % heads;
    const StateSpacePlaces places(call, sequence);
    StateSpaceStream stream = with_rows(state_space_stream(call, sequence, head, state), chosen);
    const std::vector<double> out = run_state_space(stream);
    const double *next = out.data(), *left = stream.state.data();
    for (std::int64_t t = 0; t < stream.tokens; ++t)
      for (const std::int64_t p : chosen) samples["out"].add(places.of_head(t, head) * width + p, next++, 1);
    for (const std::int64_t p : chosen)
      for (std::int64_t n = 0; n < states; ++n) samples[last].add(places.state(head, width * states) + p * states + n, left++, 1);
  }
  return samples;
}

void settle_steps(Call& call) {
  const bool softplus = call.flag("dt_softplus");
  const auto change = [&](const char* name, auto to) {
    if (!call.given(name)) return;
    std::vector<double> values = call.input(name).values();
    for (double& value : values) value = to(value);
    call.input(name).assign(values);
  };
  change("A", [](double a) { return std::isinf(a) ? -5.0 : a; });
  if (softplus)
    change("dt", [](double z) { return z > 2 ? 9 : z < -2 ? -90 : z - 1; });
  else
    change("dt", [](double z) { return std::abs(z) < 0.1 ? 0 : std::abs(z) / 2; });
  if (!softplus) change("dt_bias", [](double z) { return std::abs(z) / 4; });
}

}  // namespace ejk::reference
