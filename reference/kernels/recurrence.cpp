// One sequence and head of a linear recurrence in float64: docs/semantics.md, "recurrent".
#include "reference/kernels/recurrence.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ejk::reference {
namespace {

std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i); }

double number(const Call& call, const char* name, std::int64_t index) {
  const HostTensor* tensor = call.find(name);
  return tensor ? tensor->at(index) : 0;
}

double lightning_decay(const Call& call, std::int64_t head) {
  if (!call.has_attribute("num_layers") || call.integer("num_layers") == 0) return 0;
  const double share = static_cast<double>(call.integer("layer_idx")) / static_cast<double>(call.integer("num_layers"));
  return 8.0 / static_cast<double>(call.dim("H")) * (1 - share) * static_cast<double>(head);
}

// Appends `width` numbers from `first` on; returns what they were divided by.
double append(const HostTensor& from, std::int64_t first, std::int64_t width, bool l2_norm, std::vector<double>& to) {
  double squares = 1e-6;
  for (std::int64_t i = 0; i < width; ++i) squares += from.at(first + i) * from.at(first + i);
  const double norm = l2_norm ? std::sqrt(squares) : 1;
  for (std::int64_t i = 0; i < width; ++i) to.push_back(from.at(first + i) / norm);
  return norm;
}

}  // namespace

std::vector<RecurrentSequence> recurrent_sequences(const Call& call) {
  std::vector<RecurrentSequence> sequences;
  if (!call.given("cum_seqlens")) {
    for (std::int64_t b = 0; b < call.dim("B"); ++b) sequences.push_back({b, 0, call.dim("T"), b});
    return sequences;
  }
  const HostTensor& offsets = call.input("cum_seqlens");
  for (std::int64_t n = 0; n + 1 < offsets.elements(); ++n)
    sequences.push_back({0, static_cast<std::int64_t>(offsets.at(n)), static_cast<std::int64_t>(offsets.at(n + 1)), n});
  return sequences;
}

std::vector<bool> recurrent_tokens_in_use(const Call& call) {
  const std::int64_t length = call.dim("T"), rows = call.given("cum_seqlens") ? 1 : call.dim("B");
  std::vector<bool> used(place(rows * length), false);
  for (const RecurrentSequence& s : recurrent_sequences(call))
    for (std::int64_t t = s.begin; t < s.end; ++t) used[place(s.row * length + t)] = true;
  return used;
}

std::int64_t recurrent_token_size(const Call& call, const HostTensor& tensor) {
  const std::int64_t tokens = tensor.shape()[0] * call.dim("T");
  return tokens > 0 ? tensor.elements() / tokens : 0;
}

Property unused_tokens_do_not_matter(std::vector<const char*> by_token, std::function<bool(const Call&)> applies) {
  return {"tokens past the last sequence do not matter, even NaN",
          [applies = std::move(applies)](const Call& call) { return applies(call) && call.given("cum_seqlens"); },
          [by_token = std::move(by_token)](const Call& call, const Execute& execute, Rng&) {
            const std::vector<bool> used = recurrent_tokens_in_use(call);
            Call changed = call;
            for (const char* name : by_token) {
              if (!call.given(name)) continue;
              HostTensor& tensor = changed.input(name);
              for (std::int64_t i = 0; i < tensor.elements(); ++i)
                if (!used[place(i / recurrent_token_size(call, tensor))]) tensor.set(i, nan);
            }
            return disagreement(call, run_copy(changed, execute), run_copy(call, execute));
          }};
}

RecurrentStream recurrent_stream(const Call& call, const RecurrentSequence& sequence, std::int64_t head, const char* state) {
  const RecurrentPlaces places(call, sequence);
  const bool l2_norm = call.has_attribute("l2_norm") && call.flag("l2_norm");
  RecurrentStream s;
  s.tokens = sequence.end - sequence.begin, s.keys = call.dim("K"), s.values = call.dim("V");
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const std::int64_t all = call.dim("H");
    s.q_norm.push_back(append(call.input("q"), places.row(t, head, call.dim("Hq"), s.keys), s.keys, l2_norm, s.q));
    s.k_norm.push_back(append(call.input("k"), places.row(t, head, call.dim("Hk"), s.keys), s.keys, l2_norm, s.k));
    append(call.input("v"), places.row(t, head, call.dim("Hv"), s.values), s.values, false, s.v);
    s.gate.push_back(number(call, "g", places.row(t, head, all, 1)) + number(call, "g_gamma", head) - lightning_decay(call, head));
    for (std::int64_t i = 0; i < s.keys; ++i) s.key_gate.push_back(number(call, "gk", places.row(t, head, all, s.keys) + i));
    for (std::int64_t x = 0; x < s.values; ++x) s.value_gate.push_back(number(call, "gv", places.row(t, head, all, s.values) + x));
    if (call.given("beta")) s.beta.push_back(call.input("beta").at(places.row(t, head, all, 1)));
  }
  const std::int64_t size = s.keys * s.values;
  for (std::int64_t i = 0; i < size; ++i) s.state.push_back(number(call, state, places.state(head, size) + i));
  return s;
}

RecurrentStream with_values(RecurrentStream stream, const std::set<std::int64_t>& chosen) {
  const auto columns = [&](const std::vector<double>& rows) {
    std::vector<double> kept;
    for (std::size_t row = 0; row < rows.size(); row += place(stream.values))
      for (const std::int64_t x : chosen) kept.push_back(rows[row + place(x)]);
    return kept;
  };
  stream.v = columns(stream.v), stream.value_gate = columns(stream.value_gate), stream.state = columns(stream.state);
  stream.values = static_cast<std::int64_t>(chosen.size());
  return stream;
}

double exactly(double x) { return x; }

double nearly(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::isfinite(x) ? std::ldexp(std::nearbyint(std::ldexp(fraction, 20)), exponent - 20) : x;
}

std::vector<double> run_recurrence(RecurrentStream& s, double scale, std::vector<double>* seen, double (*held)(double)) {
  std::vector<double> out(place(s.tokens * s.values), 0.0);
  const auto state = [&s](std::int64_t i, std::int64_t x) -> double& { return s.state[place(i * s.values + x)]; };
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const double* k = s.k.data() + t * s.keys;
    const double* q = s.q.data() + t * s.keys;
    std::vector<double> factors;  // over the values
    for (std::int64_t x = 0; x < s.values; ++x) factors.push_back(held(std::exp(s.value_gate[place(t * s.values + x)])));
    for (std::int64_t i = 0; i < s.keys; ++i) {
      const double factor = held(std::exp(s.gate[place(t)]) * std::exp(s.key_gate[place(t * s.keys + i)]));
      for (std::int64_t x = 0; x < s.values; ++x) state(i, x) *= factor * factors[place(x)];
    }
    for (std::int64_t x = 0; x < s.values; ++x) {
      double w = s.v[place(t * s.values + x)];
      if (!s.beta.empty()) {
        for (std::int64_t i = 0; i < s.keys; ++i) w -= state(i, x) * k[i];
        w = held(w * s.beta[place(t)]);
      }
      for (std::int64_t i = 0; i < s.keys; ++i) {
        state(i, x) = held(state(i, x) + k[i] * w);
        out[place(t * s.values + x)] += scale * q[i] * state(i, x);
      }
    }
    if (seen) seen->insert(seen->end(), s.state.begin(), s.state.end());
  }
  return out;
}

RecurrentResult recurrent_result(const Call& call, const char* state) {
  const std::int64_t heads = call.dim("H"), values = call.dim("V"), size = call.dim("K") * values;
  const std::vector<RecurrentSequence> sequences = recurrent_sequences(call);
  RecurrentResult result;
  result.out.resize(place(call.input("out").elements()), 0.0);
  result.state.resize(sequences.size() * place(heads * size), 0.0);
  for (const RecurrentSequence& sequence : sequences)
    for (std::int64_t head = 0; head < heads; ++head) {
      const RecurrentPlaces places(call, sequence);
      RecurrentStream stream = recurrent_stream(call, sequence, head, state);
      const std::vector<double> rows = run_recurrence(stream, call.floating("softmax_scale"));
      for (std::int64_t t = 0; t < stream.tokens; ++t)
        std::copy_n(rows.begin() + t * values, values, result.out.begin() + places.row(t, head, heads, values));
      std::copy(stream.state.begin(), stream.state.end(), result.state.begin() + places.state(head, size));
    }
  return result;
}

Samples recurrent_sample(const Call& call, const char* state, const char* last, Rng& rng) {
  const std::int64_t heads = call.dim("H"), values = call.dim("V"), keys = call.dim("K");
  const std::vector<RecurrentSequence> sequences = recurrent_sequences(call);
  const std::set<std::int64_t> chosen = some_below(values, 8, rng);
  Samples samples;
  for (const std::int64_t number : some_below(static_cast<std::int64_t>(sequences.size()) * heads, 4, rng)) {
    const RecurrentSequence& sequence = sequences[place(number / heads)];
    const std::int64_t head = number % heads;
    const RecurrentPlaces places(call, sequence);
    RecurrentStream stream = with_values(recurrent_stream(call, sequence, head, state), chosen);
    const std::vector<double> out = run_recurrence(stream, call.floating("softmax_scale"));
    const double *next = out.data(), *left = stream.state.data();
    for (std::int64_t t = 0; t < stream.tokens; ++t)
      for (const std::int64_t x : chosen) samples["out"].add(places.row(t, head, heads, values) + x, next++, 1);
    for (std::int64_t i = 0; i < keys; ++i)
      for (const std::int64_t x : chosen) samples[last].add(places.state(head, keys * values) + i * values + x, left++, 1);
  }
  return samples;
}

void settle_keys(Call& call) {
  const bool l2_norm = call.has_attribute("l2_norm") && call.flag("l2_norm");
  for (const char* name : {"q", "k"}) {
    HostTensor& tensor = call.input(name);
    const std::int64_t width = call.dim("K"), rows = width > 0 ? tensor.elements() / width : 0;
    std::vector<double> values = tensor.values();
    for (std::int64_t row = 0; row < rows; ++row) {
      double squares = 0;
      for (std::int64_t i = 0; i < width; ++i) squares += values[place(row * width + i)] * values[place(row * width + i)];
      const bool shorter = call.given("beta") && !l2_norm && squares > 1 && name[0] == 'k';
      const double factor = row == 1 && !tensor.broadcast() ? 0 : shorter ? 0.99 / std::sqrt(squares) : 1;
      for (std::int64_t i = 0; i < width; ++i) values[place(row * width + i)] *= factor;
    }
    tensor.assign(values);
  }
}

void NarrowedRecurrent::complete(Call& call) const { settle_keys(call); }

spec::Case NarrowedRecurrent::vary(const spec::Case& c, Rng& rng) const { return vary_recurrent(c, rng); }

}  // namespace ejk::reference
