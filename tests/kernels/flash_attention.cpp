// flash_attention in float64: SEMANTICS sections 0 and 1, every option.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/attention_rules.hpp"
#include "reference/philox.hpp"
#include "reference/reference.hpp"

namespace ejk::reference {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

// One call's numbers, read once.
struct Problem {
  explicit Problem(const Call& call)
      : visibility(call),
        bias(call, "bias"),
        dropout(call.floating("dropout_prob"), static_cast<std::uint64_t>(call.integer("dropout_seed"))),
        scale(call.floating("softmax_scale")),
        cap(call.floating("logits_soft_cap")),
        heads(call.dim("Hq")),
        kv_heads(call.dim("Hkv")),
        dim(call.dim("D")),
        value_dim(call.dim("Dv")),
        q(call.input("q").values()),
        k(call.input("k").values()),
        v(call.input("v").values()) {}

  Visibility visibility;
  Broadcast bias;
  Dropout dropout;
  double scale, cap;
  std::int64_t heads, kv_heads, dim, value_dim;
  std::vector<double> q, k, v;
};

// The keys of one sequence and kv head with the head dim outermost, so that the loop over keys runs through memory.
std::vector<double> transposed_keys(const Problem& p, const Sequence& s, std::int64_t kv_head) {
  std::vector<double> keys(at(p.dim * s.k_length));
  for (std::int64_t j = 0; j < s.k_length; ++j)
    for (std::int64_t d = 0; d < p.dim; ++d) keys[at(d * s.k_length + j)] = p.k[at(((s.k_begin + j) * p.kv_heads + kv_head) * p.dim + d)];
  return keys;
}

struct Term {
  std::int64_t j;
  double score;
};

std::vector<Term> visible_scores(const Problem& p, const Sequence& s, const std::vector<double>& keys, std::int64_t h, std::int64_t i) {
  const std::int64_t first = p.visibility.first(s, i), last = p.visibility.last(s, i);
  std::vector<double> dots(at(s.k_length), 0.0);
  for (std::int64_t d = 0; d < p.dim; ++d) {
    const double q = p.q[at(((s.q_begin + i) * p.heads + h) * p.dim + d)];
    const double* key = keys.data() + d * s.k_length;
    for (std::int64_t j = first; j < last; ++j) dots[at(j)] += q * key[j];
  }
  std::vector<Term> terms;
  for (std::int64_t j = first; j < last; ++j) {
    if (!p.visibility.sees(s, h, i, j)) continue;
    double score = p.scale * dots[at(j)];
    if (p.cap > 0) score = p.cap * std::tanh(score / p.cap);
    if (p.bias.given()) score += p.bias.value(s.number, h, i, j);
    terms.push_back({j, score});
  }
  return terms;
}

// Writes the row of out; returns its LSE.
double attend(const Problem& p, const Sequence& s, const std::vector<Term>& terms, const std::vector<double>& sinks, std::int64_t h,
              std::int64_t i, double* out) {
  std::vector<double> exponents = sinks;
  for (const Term& term : terms) exponents.push_back(term.score);
  const double lse = log_sum_exp(exponents);
  if (lse == -infinity) return lse;
  const std::int64_t group = p.heads / p.kv_heads;
  for (const Term& term : terms) {
    const double weight = std::exp(term.score - lse) * p.dropout.factor(s.number * p.heads + h, i, term.j);
    if (weight == 0) continue;  // what v holds behind a weight of 0 is of no account
    const double* value = p.v.data() + ((s.k_begin + term.j) * p.kv_heads + h / group) * p.value_dim;
    for (std::int64_t e = 0; e < p.value_dim; ++e) out[e] += weight * value[e];
  }
  return lse;
}

class FlashAttention : public KernelReference {
 public:
  std::string kernel() const override { return "flash_attention"; }

  Values compute(const Call& call) const override {
    const Problem p(call);
    const bool packed = call.given("cum_seqlens_q");
    const std::int64_t tokens = packed ? call.dim("Tq") : call.dim("B") * call.dim("Sq");
    std::vector<double> out(at(tokens * p.heads * p.value_dim), 0.0), lse(at(tokens * p.heads), -infinity);
    for (const Sequence& s : sequences_of(call))
      for (std::int64_t h = 0; h < p.heads; ++h) {
        const std::vector<double> keys = transposed_keys(p, s, h / (p.heads / p.kv_heads)), sinks = sinks_of(call, h);
        for (std::int64_t i = 0; i < s.q_length; ++i) {
          const std::int64_t row = packed ? h * tokens + s.q_begin + i : (s.number * p.heads + h) * s.q_length + i;
          double* out_row = out.data() + ((s.q_begin + i) * p.heads + h) * p.value_dim;
          lse[at(row)] = attend(p, s, visible_scores(p, s, keys, h, i), sinks, h, i, out_row);
        }
      }
    return {{"out", out}, {"lse", lse}};
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override;
  spec::Case random_case(Rng& rng) const override;
  std::vector<Property> properties() const override;
};

// ---- cases ----

bool names(const spec::Case& c, const char* tensor) { return std::find(c.given.begin(), c.given.end(), tensor) != c.given.end(); }

void vary_attributes(spec::Case& c, Rng& rng) {
  for (auto& [name, value] : c.attributes) {
    if (name == "window_left" || name == "window_right") {
      if (value != spec::Value{std::int64_t{-1}}) value = rng.nasty_size(0, 150);
    } else if (name == "causal_offset") {
      value = rng.between(-40, 150);
    } else if (name == "dropout_seed") {
      value = static_cast<std::int64_t>(rng.next());
    } else if (name == "softmax_scale") {
      value = rng.chance(0.1) ? 0.0 : 0.02 + 0.5 * rng.uniform();
    } else if (name == "logits_soft_cap" || name == "dropout_prob") {
      const double* number = std::get_if<double>(&value);
      if (number && *number > 0) value = name == "dropout_prob" ? 0.02 + 0.9 * rng.uniform() : 0.5 + 30 * rng.uniform();
    }
  }
}

spec::Case FlashAttention::vary(const spec::Case& c, Rng& rng) const {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  varied.dims = {{"D", c.dims.at("D")}, {"Dv", c.dims.at("Dv")}};
  static constexpr std::int64_t groups[] = {1, 1, 2, 3, 4, 8};
  const std::int64_t kv_heads = rng.chance(0.03) ? 0 : rng.between(1, 3);
  varied.dims["Hkv"] = kv_heads;
  varied.dims["Hq"] = kv_heads * rng.pick(groups);
  if (names(c, "cum_seqlens_q")) {
    varied.dims["N"] = rng.nasty_size(0, 5);
    varied.dims["Tq"] = rng.nasty_size(0, 257);
    varied.dims["Tk"] = rng.nasty_size(0, 257);
  } else {
    varied.dims["B"] = rng.chance(0.03) ? 0 : rng.between(1, 3);
    varied.dims["Sq"] = rng.nasty_size(0, 191);
    varied.dims["Sk"] = rng.nasty_size(0, 257);
  }
  if (names(c, "softmax_aux")) varied.dims["A"] = rng.chance(0.3) ? varied.dims["Hq"] : spec::Value{rng.between(0, 4)};
  vary_attributes(varied, rng);
  return varied;
}

spec::Case FlashAttention::random_case(Rng& rng) const {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  spec::Case c;
  c.name = "random";
  c.types["E"] = rng.pick(types);
  c.dims["D"] = 8 * rng.between(2, 32);
  c.dims["Dv"] = rng.chance(0.6) ? c.dims["D"] : spec::Value{8 * rng.between(2, 32)};
  const bool packed = rng.chance(0.3);
  const auto give = [&](const char* tensor) { c.given.push_back(tensor); };
  if (packed) give("cum_seqlens_q"), give("cum_seqlens_k");
  if (!packed && rng.chance(0.3)) give("bias"), c.types["Eb"] = rng.pick(types);
  if (!packed && rng.chance(0.3)) give("attention_mask");
  if (!packed && rng.chance(0.3)) give("q_segment_ids"), give("kv_segment_ids");
  if (rng.chance(0.3)) give("softmax_aux"), c.types["Es"] = rng.pick(types);
  if (rng.chance(0.7)) give("lse");
  if (rng.chance(0.5)) c.attributes["causal"] = true;
  if (rng.chance(0.3)) c.attributes["causal_offset"] = std::int64_t{0};
  if (rng.chance(0.3)) c.attributes["window_left"] = std::int64_t{0};
  if (rng.chance(0.2)) c.attributes["window_right"] = std::int64_t{0};
  if (rng.chance(0.3)) c.attributes["logits_soft_cap"] = 1.0;
  if (rng.chance(0.3)) c.attributes["softmax_scale"] = 1.0;
  if (rng.chance(0.25)) c.attributes["dropout_prob"] = 0.5, c.attributes["dropout_seed"] = std::int64_t{0};
  return vary(c, rng);
}

// ---- properties ----

// Inputs may be changed element by element: no stride is 0.
bool writable(const Call& call) {
  return std::none_of(call.inputs.begin(), call.inputs.end(), [](const HostTensor& input) { return input.broadcast(); });
}

// Visits every (sequence, head, query, key) that is visible.
template <class Visit>
void each_visible(const Call& call, Visit visit) {
  const Visibility visibility(call);
  for (const Sequence& s : sequences_of(call))
    for (std::int64_t h = 0; h < call.dim("Hq"); ++h)
      for (std::int64_t i = 0; i < s.q_length; ++i)
        for (std::int64_t j = 0; j < s.k_length; ++j)
          if (visibility.sees(s, h, i, j)) visit(s, h, i, j);
}

// Rows of k and v that somebody sees, by token and kv head; and elements of bias.
struct Seen {
  std::vector<bool> keys, bias;
};

Seen seen_by_any(const Call& call) {
  const std::int64_t kv_heads = call.dim("Hkv"), group = kv_heads > 0 ? call.dim("Hq") / kv_heads : 1;
  const HostTensor* bias_tensor = call.find("bias");
  const Broadcast bias(call, "bias");
  const HostTensor& k = call.input("k");
  Seen seen{std::vector<bool>(at(call.dim("D") > 0 ? k.elements() / call.dim("D") : 0), false),
            std::vector<bool>(at(bias_tensor ? bias_tensor->elements() : 0), false)};
  each_visible(call, [&](const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) {
    seen.keys[at((s.k_begin + j) * kv_heads + h / group)] = true;
    if (bias.given()) seen.bias[at(bias.index(s.number, h, i, j))] = true;
  });
  return seen;
}

// Fills what nobody sees of k, v and bias with NaN and infinity in turn: the results stay.
std::string unseen_keys(const Call& call, const Execute& execute, Rng&) {
  const Values expected = run_copy(call, execute);
  const Seen seen = seen_by_any(call);
  Call changed = call;
  const auto overwrite = [](HostTensor& tensor, const std::vector<bool>& kept, std::int64_t row) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (!kept[at(i / row)]) tensor.set(i, i / row % 2 ? infinity : nan);
  };
  overwrite(changed.input("k"), seen.keys, call.dim("D"));
  overwrite(changed.input("v"), seen.keys, call.dim("Dv"));
  if (HostTensor* bias = changed.find("bias")) overwrite(*bias, seen.bias, 1);
  return disagreement(call, run_copy(changed, execute), expected);
}

// One key becomes NaN: exactly the queries that see it may know (the reference tells which).
std::string one_nan_key(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& k = changed.input("k");
  k.set(rng.between(0, k.elements() - 1), nan);
  return first_failure(verify_call(FlashAttention(), changed, execute));
}

// Keys that grow along the sequence, so that the largest score of a query comes late and is far above the first ones.
std::string growing_keys(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  HostTensor& k = changed.input("k");
  for (std::int64_t i = 0; i < k.elements(); ++i)
    k.set(i, k.at(i) * (0.1 + 12.0 * static_cast<double>(i) / static_cast<double>(k.elements())));
  return first_failure(verify_call(FlashAttention(), changed, execute));
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
  const Sequence any{0, 0, sq, 0, sk};
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
  const auto reorder = [&](const char* name, std::int64_t inner) {
    const HostTensor* from = call.find(name);
    HostTensor* to = changed.find(name);
    for (std::int64_t i = 0; from && i < from->elements(); ++i) {
      const std::int64_t outer = i / (inner * sk), j = i / inner % sk;
      to->set((outer * sk + order[at(j)]) * inner + i % inner, from->at(i));
    }
  };
  reorder("k", call.dim("Hkv") * call.dim("D"));
  reorder("v", call.dim("Hkv") * call.dim("Dv"));
  for (const char* name : {"bias", "attention_mask", "kv_segment_ids"}) reorder(name, 1);
  return disagreement(call, run_copy(changed, execute), run_copy(call, execute));
}

// Where all values are equal, a mean of them is that value, and a query without keys gives 0.
std::string equal_values(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  HostTensor& v = changed.input("v");
  for (std::int64_t i = 0; i < v.elements(); ++i) v.set(i, 1.5);
  const HostTensor& out = call.input("out");
  std::vector<double> expected(at(out.elements()), 0.0);
  const std::int64_t heads = call.dim("Hq"), value_dim = call.dim("Dv");
  each_visible(call, [&](const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t) {
    std::fill_n(expected.begin() + ((s.q_begin + i) * heads + h) * value_dim, value_dim, 1.5);
  });
  const Values found = run_copy(changed, execute);
  return compare("out", out.shape(), found.at("out"), expected, tolerance_of(*call.spec, out)).message;
}

std::vector<Property> FlashAttention::properties() const {
  const auto batched = [](const Call& call) { return writable(call) && !call.given("cum_seqlens_q") && call.input("k").elements() > 0; };
  const auto keeps_all = [](const Call& call) { return call.floating("dropout_prob") == 0; };
  const auto unordered = [=](const Call& call) {
    return batched(call) && keeps_all(call) && !call.flag("causal") && call.integer("window_left") < 0 && call.integer("window_right") < 0;
  };
  return {
      repeats_bit_for_bit([](const Call&) { return true; }),
      {"a key and a bias that no query sees do not matter, even NaN and infinity", writable, unseen_keys},
      {"a NaN in a key reaches the queries that see it and no other",
       [=](const Call& call) { return writable(call) && keeps_all(call) && call.input("k").elements() > 0; }, one_nan_key},
      {"scores may grow along the keys", [](const Call& call) { return writable(call) && call.floating("logits_soft_cap") == 0; },
       growing_keys},
      {"later keys do not change earlier queries", [=](const Call& call) { return batched(call) && call.flag("causal"); }, later_keys},
      {"the order of the keys does not matter", unordered, shuffled_keys},
      {"equal values come out as they went in",
       [=](const Call& call) { return writable(call) && keeps_all(call) && !call.given("softmax_aux"); }, equal_values},
  };
}

const Registration registration{std::make_unique<FlashAttention>()};

}  // namespace
}  // namespace ejk::reference
