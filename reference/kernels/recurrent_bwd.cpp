// recurrent_bwd in float64: the gradients of docs/semantics.md, "recurrent", token by token from the last, with every state kept.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "reference/kernels/recurrence.hpp"

namespace ejk::reference::recurrent_bwd {
namespace {

using Numbers = std::vector<double>;

std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i); }

// What gates leave of a state at one token: of key i and value x, keys[i] * values[x].
struct Factors {
  Numbers keys, values;
  Factors(const RecurrentStream& s, std::int64_t t, Held held) {
    for (std::int64_t i = 0; i < s.keys; ++i)
      keys.push_back(held(std::exp(s.gate[place(t)]) * std::exp(s.key_gate[place(t * s.keys + i)])));
    for (std::int64_t x = 0; x < s.values; ++x) values.push_back(held(std::exp(s.value_gate[place(t * s.values + x)])));
  }
};

// Gradients of a stream's numbers, laid out as they are.
struct StreamGradient {
  Numbers q, k, v, beta, gate, key_gate, value_gate, state;
  explicit StreamGradient(const RecurrentStream& s)
      : q(s.q.size()),
        k(s.k.size()),
        v(s.v.size()),
        beta(place(s.tokens)),
        gate(place(s.tokens)),
        key_gate(s.key_gate.size()),
        value_gate(s.value_gate.size()),
        state(place(s.keys * s.values)) {}
};

// One token: `after` is the gradient of the state after it, and becomes that of the state before it. `before`: the state before it.
void step_back(const RecurrentStream& s, std::int64_t t, double scale, const double* dout, const double* before, Numbers& after,
               StreamGradient& d, Held held) {
  const Factors factors(s, t, held);
  const std::int64_t keys = s.keys, values = s.values;
  const double *q = s.q.data() + t * keys, *k = s.k.data() + t * keys, *v = s.v.data() + t * values;
  const bool delta = !s.beta.empty();
  const double beta = delta ? s.beta[place(t)] : 1;
  Numbers decayed(place(keys * values));
  for (std::int64_t i = 0; i < keys * values; ++i)
    decayed[place(i)] = before[i] * factors.keys[place(i / values)] * factors.values[place(i % values)];
  for (std::int64_t x = 0; x < values; ++x) {
    double seen = 0, dw = 0;
    for (std::int64_t i = 0; delta && i < keys; ++i) seen += decayed[place(i * values + x)] * k[i];
    const double w = held(beta * (v[x] - seen));
    for (std::int64_t i = 0; i < keys; ++i) {
      double& d_after = after[place(i * values + x)];
      d.q[place(t * keys + i)] += scale * (decayed[place(i * values + x)] + k[i] * w) * dout[x];
      d_after += scale * q[i] * dout[x];
      dw += d_after * k[i];
    }
    dw = held(dw);
    d.v[place(t * values + x)] = beta * dw;
    d.beta[place(t)] += dw * (v[x] - seen);
    for (std::int64_t i = 0; i < keys; ++i) {
      double& d_state = after[place(i * values + x)];
      const double was = decayed[place(i * values + x)];
      d.k[place(t * keys + i)] += d_state * w - (delta ? beta * dw * was : 0);
      if (delta) d_state -= beta * dw * k[i];
      const double d_log = d_state * was;
      d.gate[place(t)] += d_log;
      d.key_gate[place(t * keys + i)] += d_log;
      d.value_gate[place(t * values + x)] += d_log;
      d_state *= factors.keys[place(i)] * factors.values[place(x)];
    }
  }
}

// The gradient of a row from that of the row over its norm.
void through_norm(const Numbers& row, const Numbers& norms, std::int64_t keys, Numbers& gradient) {
  for (std::size_t t = 0; t < norms.size(); ++t) {
    double dot = 0;
    for (std::size_t i = t * place(keys); i < (t + 1) * place(keys); ++i) dot += row[i] * gradient[i];
    for (std::size_t i = t * place(keys); i < (t + 1) * place(keys); ++i) gradient[i] = (gradient[i] - row[i] * dot) / norms[t];
  }
}

std::set<std::int64_t> all_below(std::int64_t count) {
  std::set<std::int64_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.insert(all.end(), i);
  return all;
}

// Of these values; sums over values are over them alone.
StreamGradient gradient_of(const Call& call, const RecurrentSequence& sequence, std::int64_t head, const std::set<std::int64_t>& chosen,
                           Held held = exactly) {
  const RecurrentPlaces places(call, sequence);
  const std::int64_t heads = call.dim("H"), values = call.dim("V");
  RecurrentStream s = with_values(recurrent_stream(call, sequence, head, "initial_state"), chosen);
  const std::int64_t size = s.keys * s.values;
  const double scale = call.floating("softmax_scale");
  Numbers states = s.state, after;
  const auto hold = [held](Numbers& numbers) { std::transform(numbers.begin(), numbers.end(), numbers.begin(), held); };
  if (call.flag("l2_norm")) hold(s.q), hold(s.k);
  run_recurrence(s, scale, &states, held);
  const HostTensor* const d_final = call.find("dfinal_state");
  for (std::int64_t i = 0; i < s.keys; ++i)
    for (const std::int64_t x : chosen) after.push_back(d_final ? d_final->at(places.state(head, s.keys * values) + i * values + x) : 0);
  StreamGradient gradient(s);
  for (std::int64_t t = s.tokens - 1; t >= 0; --t) {
    Numbers dout;
    for (const std::int64_t x : chosen) dout.push_back(call.input("dout").at(places.row(t, head, heads, values) + x));
    step_back(s, t, scale, dout.data(), states.data() + t * size, after, gradient, held);
    hold(after);
  }
  gradient.state = after;
  if (call.flag("l2_norm")) {
    through_norm(s.q, s.q_norm, s.keys, gradient.q);
    through_norm(s.k, s.k_norm, s.keys, gradient.k);
  }
  return gradient;
}

std::int64_t size_of_output(const Call& call, const char* name) { return call.given(name) ? call.input(name).elements() : 0; }

// Outputs that were not asked for stay empty, and are left out.
class Sums {
 public:
  explicit Sums(const Call& call) : call_(call) {
    for (const char* name : {"dq", "dk", "dv", "dbeta", "dg", "dg_gamma", "dgk", "dgv", "dinitial_state"})
      if (call.given(name)) values_[name] = Numbers(place(size_of_output(call, name)), 0.0);
    if (call.given("dg_gamma")) values_["dg_gamma rounding"] = {0.0};
  }
  // A stream's rows of `width` into a tensor of `heads` heads.
  void add_rows(const char* name, const RecurrentPlaces& places, std::int64_t head, std::int64_t heads, std::int64_t width,
                const Numbers& rows) {
    if (!call_.given(name)) return;
    Numbers& sums = values_[name];
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(rows.size()); ++i)
      sums[place(places.row(i / width, head, heads, width) + i % width)] += rows[place(i)];
  }
  void add(const char* name, std::int64_t first, const Numbers& numbers) {
    if (!values_.count(name)) return;
    for (std::size_t i = 0; i < numbers.size(); ++i) values_[name][place(first) + i] += numbers[i];
  }
  const Values& values() const { return values_; }

 private:
  const Call& call_;
  Values values_;
};

// Root mean square, of what is finite.
double mean_difference(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::isfinite(a[i]) && std::isfinite(b[i])) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return a.empty() ? 0 : std::sqrt(sum / static_cast<double>(a.size()));
}

class RecurrentBackward : public KernelReference {
 public:
  std::string kernel() const override { return "recurrent_bwd"; }

  Values compute(const Call& call) const override {
    Values values = sums_of(call, exactly);
    // Where keys are alike, much cancels in the delta rule's gradients: f32 may leave twice what changes where each step's numbers are held
    // to what sums in f32 are good to.
    if (!call.given("beta")) return values;
    const Values changed = sums_of(call, nearly);
    for (const auto& [name, gradient] : changed) {
      if (!call.given(name) || call.input(name).type() != DType::f32) continue;
      double& rounding = values.try_emplace(name + " rounding", Numbers{0.0}).first->second.front();
      rounding = std::max(rounding, 2 * mean_difference(gradient, values.at(name)));
    }
    return values;
  }

  // What is no sum over values, of some of them: dv, dgv and dinitial_state.
  Samples sample(const Call& call, Rng& rng) const override {
    const std::int64_t heads = call.dim("H"), v_heads = call.dim("Hv"), values = call.dim("V"), keys = call.dim("K");
    const std::vector<RecurrentSequence> sequences = recurrent_sequences(call);
    const std::set<std::int64_t> chosen = some_below(values, 4, rng);
    Samples samples;
    for (const std::int64_t number : some_below(static_cast<std::int64_t>(sequences.size()) * v_heads, 2, rng)) {
      const RecurrentSequence& sequence = sequences[place(number / v_heads)];
      const RecurrentPlaces places(call, sequence);
      const std::int64_t first = number % v_heads * (heads / v_heads);
      Numbers dv;
      for (std::int64_t head = first; head < first + heads / v_heads; ++head) {
        const StreamGradient d = gradient_of(call, sequence, head, chosen);
        dv.resize(d.v.size());
        std::transform(d.v.begin(), d.v.end(), dv.begin(), dv.begin(), std::plus<>());
        if (call.given("dgv")) add_tokens(samples["dgv"], places, head, heads, values, chosen, d.value_gate);
        const double* state = d.state.data();
        for (std::int64_t i = 0; call.given("dinitial_state") && i < keys; ++i)
          for (const std::int64_t x : chosen) samples["dinitial_state"].add(places.state(head, keys * values) + i * values + x, state++, 1);
      }
      if (call.given("dv")) add_tokens(samples["dv"], places, first, v_heads, values, chosen, dv);
    }
    return samples;
  }

  void complete(Call& call) const override { settle_keys(call); }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_recurrent(c, rng); }
  spec::Case random_case(Rng& rng) const override {
    spec::Case c = with_gradients(random_recurrent(rng), rng.chance(0.5));
    const auto gamma = c.types.find("Em");  // its gradient, a sum over all tokens, exceeds f16's largest number
    if (gamma != c.types.end() && gamma->second == "f16") gamma->second = "bf16";
    return c;
  }

  std::vector<OptionCase> option_cases() const override {
    std::vector<OptionCase> cases = recurrent_option_cases();
    for (OptionCase& one : cases) one.c = with_gradients(std::move(one.c), one.c.name.find("initial_state") != std::string::npos);
    return cases;
  }

  std::vector<Property> properties() const override {
    return {repeats_bit_for_bit([](const Call&) { return true; }), grows_with_cotangents({"dout", "dfinal_state"}),
            unused_tokens_do_not_matter({"q", "k", "v", "g", "gk", "gv", "beta", "dout"}, [](const Call&) { return true; })};
  }

 private:
  static Values sums_of(const Call& call, Held held) {
    const std::int64_t heads = call.dim("H"), keys = call.dim("K"), values = call.dim("V");
    Sums sums(call);
    double squares = 0;  // of all tokens' gradients of log gates
    for (const RecurrentSequence& sequence : recurrent_sequences(call))
      for (std::int64_t head = 0; head < heads; ++head) {
        const RecurrentPlaces places(call, sequence);
        const StreamGradient d = gradient_of(call, sequence, head, all_below(values), held);
        sums.add_rows("dq", places, head, call.dim("Hq"), keys, d.q);
        sums.add_rows("dk", places, head, call.dim("Hk"), keys, d.k);
        sums.add_rows("dv", places, head, call.dim("Hv"), values, d.v);
        sums.add_rows("dbeta", places, head, heads, 1, d.beta);
        sums.add_rows("dg", places, head, heads, 1, d.gate);
        sums.add_rows("dgk", places, head, heads, keys, d.key_gate);
        sums.add_rows("dgv", places, head, heads, values, d.value_gate);
        double gamma = 0;
        for (const double gate : d.gate) gamma += gate, squares += std::isfinite(gate) ? gate * gate : 0;
        sums.add("dg_gamma", head, {gamma});
        sums.add("dinitial_state", places.state(head, keys * values), d.state);
      }
    // A head's sum over all tokens, in f32: 16 units in the last place of each of its terms, whose roundings do not know of each other.
    sums.add("dg_gamma rounding", 0, {0x1p-20 * std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(heads, 1)))});
    return sums.values();
  }

  // A stream's rows of the chosen values, of a tensor of `tensor_heads` heads.
  static void add_tokens(Sample& sample, const RecurrentPlaces& places, std::int64_t head, std::int64_t tensor_heads, std::int64_t values,
                         const std::set<std::int64_t>& chosen, const Numbers& rows) {
    const std::int64_t width = static_cast<std::int64_t>(chosen.size());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(rows.size()); i += width) {
      const double* next = rows.data() + i;
      for (const std::int64_t x : chosen) sample.add(places.row(i / width, head, tensor_heads, values) + x, next++, 1);
    }
  }

  static spec::Case with_gradients(spec::Case c, bool with_final) {
    const std::vector<std::string> given = c.given;
    for (const std::string& name : given)
      if (name != "cum_seqlens") c.given.push_back("d" + name);
    if (with_final) c.given.push_back("dfinal_state");
    return c;
  }
};

const Registration registration{std::make_unique<RecurrentBackward>()};

}  // namespace
}  // namespace ejk::reference::recurrent_bwd
