// ragged_decode_attention in float64: docs/semantics.md, "ragged_decode_attention", every option.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/kernels/decode_reference.hpp"

namespace ejk::reference::ragged_decode_attention {
namespace {

// The keys that each sequence's query sees: [first, end).
class Ranges {
 public:
  explicit Ranges(const Call& call)
      : starts_(call.input("sequence_start").values()),
        ends_(call.input("sequence_end").values()),
        left_(call.integer("window_left")),
        tokens_(call.dim("S")) {}

  std::int64_t start(std::int64_t n) const { return static_cast<std::int64_t>(starts_[at(n)]); }
  std::int64_t end(std::int64_t n) const { return std::max(start(n), static_cast<std::int64_t>(ends_[at(n)])); }
  std::int64_t first(std::int64_t n) const { return left_ < 0 || left_ >= tokens_ ? start(n) : std::max(start(n), end(n) - 1 - left_); }

 private:
  std::vector<double> starts_, ends_;
  std::int64_t left_, tokens_;
};

// One call's numbers, read once.
struct Problem {
  explicit Problem(const Call& call)
      : call(call),
        ranges(call),
        tokens(call.dim("S")),
        heads(call.dim("Hq")),
        kv_heads(call.dim("Hkv")),
        group(kv_heads > 0 ? heads / kv_heads : 1),
        dim(call.dim("D")),
        value_dim(call.dim("Dv")),
        scale(call.floating("softmax_scale")),
        cap(call.floating("logits_soft_cap")),
        query(call.input("query").values()) {}

  // Row-major index of the first feature of a key, or with value_dim of a value.
  std::int64_t row(std::int64_t n, std::int64_t key, std::int64_t kv_head, std::int64_t features) const {
    return ((n * tokens + key) * kv_heads + kv_head) * features;
  }

  const Call& call;
  Ranges ranges;
  std::int64_t tokens, heads, kv_heads, group, dim, value_dim;
  double scale, cap;
  std::vector<double> query;
};

// Of query head h of sequence n, for the keys that it sees. Only the caches' elements that it sees are read: the others may be large.
std::vector<double> scores_of(const Problem& p, std::int64_t n, std::int64_t h) {
  const HostTensor& keys = p.call.input("key");
  std::vector<double> scores;
  for (std::int64_t key = p.ranges.first(n); key < p.ranges.end(n); ++key) {
    double dot = 0;
    for (std::int64_t d = 0; d < p.dim; ++d)
      dot += p.query[at((n * p.heads + h) * p.dim + d)] * keys.at(p.row(n, key, h / p.group, p.dim) + d);
    scores.push_back(capped_score(p.scale * dot, p.cap));
  }
  return scores;
}

// Writes the row of out; returns its LSE.
double attend(const Problem& p, std::int64_t n, std::int64_t h, double* out) {
  const HostTensor& values = p.call.input("value");
  return attend_row(p.call, h, scores_of(p, n, h), [&](std::int64_t i, double weight) {
    const std::int64_t value = p.row(n, p.ranges.first(n) + i, h / p.group, p.value_dim);
    for (std::int64_t d = 0; d < p.value_dim; ++d) out[d] += weight * values.at(value + d);
  });
}

DecodeRows rows_of(const Problem& p) {
  return {p.call.dim("B") * p.heads, p.value_dim,
          [&p](std::int64_t row, double* out) { return attend(p, row / p.heads, row % p.heads, out); },
          [&p](std::int64_t row) { return p.ranges.end(row / p.heads) - p.ranges.first(row / p.heads); }};
}

class RaggedDecodeAttention : public KernelReference {
 public:
  std::string kernel() const override { return "ragged_decode_attention"; }

  Values compute(const Call& call) const override {
    const Problem p(call);
    return all_rows(rows_of(p));
  }
  Samples sample(const Call& call, Rng& rng) const override {
    const Problem p(call);
    return some_rows(rows_of(p), rng);
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override;
  spec::Case random_case(Rng& rng) const override;
  std::vector<OptionCase> option_cases() const override;
  std::vector<Property> properties() const override;
};

// ---- cases ----

spec::Case RaggedDecodeAttention::vary(const spec::Case& c, Rng& rng) const {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  varied.fill.clear();
  varied.dims = {{"D", c.dims.at("D")}, {"Dv", c.dims.at("Dv")}};
  const std::int64_t kv_heads = rng.chance(0.03) ? 0 : rng.between(1, 3);
  varied.dims["Hkv"] = kv_heads;
  varied.dims["Hq"] = kv_heads * random_group(c, rng);
  varied.dims["B"] = rng.chance(0.04) ? 0 : rng.between(1, 5);
  varied.dims["S"] = rng.chance(0.04) ? 0 : rng.chance(0.2) ? rng.between(256, 700) : rng.nasty_size(1, 300);
  if (names(c, "softmax_aux")) varied.dims["A"] = rng.chance(0.3) ? varied.dims["Hq"] : spec::Value{rng.between(0, 4)};
  if (rng.chance(0.3)) varied.fill["sequence_start"] = "all 0";
  if (rng.chance(0.2)) varied.fill["sequence_start"] = "lengths 0 to S";
  vary_decode_attributes(varied, rng);
  return varied;
}

spec::Case RaggedDecodeAttention::random_case(Rng& rng) const {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  spec::Case c;
  c.name = "random";
  c.types["E"] = rng.pick(types);
  c.dims["D"] = rng.chance(0.3) ? rng.nasty_size(1, 257) : 8 * rng.between(2, 32);
  c.dims["Dv"] = rng.chance(0.7)   ? c.dims["D"]
                 : rng.chance(0.3) ? spec::Value{rng.nasty_size(1, 257)}
                                   : spec::Value{8 * rng.between(2, 32)};
  const auto give = [&](const char* tensor) { c.given.push_back(tensor); };
  if (rng.chance(0.3)) give("softmax_aux"), c.types["Es"] = rng.pick(types);
  if (rng.chance(0.7)) give("lse");
  if (rng.chance(0.3)) c.attributes["window_left"] = std::int64_t{0};
  if (rng.chance(0.1)) c.attributes["window_right"] = std::int64_t{0};
  if (rng.chance(0.3)) c.attributes["logits_soft_cap"] = 1.0;
  if (rng.chance(0.3)) c.attributes["softmax_scale"] = 0.1;
  spec::Case varied = vary(c, rng);
  if (names(c, "softmax_aux") && rng.chance(0.25)) varied.fill["softmax_aux"] = "hidden";
  return varied;
}

struct Option {
  const char* name;
  void (*apply)(spec::Case&);
};

const Option options[] = {
    {"window_left", [](spec::Case& c) { c.attributes["window_left"] = std::int64_t{20}; }},
    {"window_right", [](spec::Case& c) { c.attributes["window_right"] = std::int64_t{5}; }},
    {"softmax_scale", [](spec::Case& c) { c.attributes["softmax_scale"] = 0.3; }},
    {"logits_soft_cap", [](spec::Case& c) { c.attributes["logits_soft_cap"] = 2.0; }},
    {"softmax_aux", [](spec::Case& c) { c.given.push_back("softmax_aux"), c.types["Es"] = "f32", c.dims["A"] = std::int64_t{2}; }},
    {"one_head_a_kv_head", [](spec::Case& c) { c.dims["Hkv"] = c.dims["Hq"]; }},
    {"starts_of_zero", [](spec::Case& c) { c.fill["sequence_start"] = "all 0"; }},
    {"other_values", [](spec::Case& c) { c.dims["Dv"] = std::int64_t{40}; }},
};

spec::Case with(const char* type, const Option& first, const Option* second) {
  spec::Case c;
  c.name = first.name;
  c.types["E"] = type;
  for (const auto& [dim, size] : {std::pair{"B", 3}, {"S", 150}, {"Hq", 4}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}})
    c.dims[dim] = std::int64_t{size};
  c.given.push_back("lse");
  first.apply(c);
  if (second) second->apply(c), c.name += std::string(" and ") + second->name;
  return c;
}

std::vector<OptionCase> RaggedDecodeAttention::option_cases() const {
  std::vector<OptionCase> cases;
  for (const char* type : {"f32", "bf16"})
    for (const Option& first : options) {
      cases.push_back({with(type, first, nullptr), true});
      for (const Option* second = &first + 1; second != std::end(options); ++second) cases.push_back({with(type, first, second), false});
    }
  return cases;
}

// ---- properties ----

bool has_tokens(const Call& call) {
  const Ranges ranges(call);
  for (std::int64_t n = 0; n < call.dim("B"); ++n)
    if (ranges.start(n) < ranges.end(n)) return call.dim("Hkv") > 0 && call.dim("D") > 0 && call.dim("Dv") > 0;
  return false;
}

// Visits every (token of a row, element of `tensor`) of sequence n.
template <class Visit>
void each_token(const HostTensor& tensor, std::int64_t n, Visit visit) {
  const std::int64_t tokens = tensor.shape()[1], token = tensor.shape()[2] * tensor.shape()[3];
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < token; ++i) visit(t, (n * tokens + t) * token + i);
}

// What no query sees becomes NaN.
std::string unseen(const Call& call, const Execute& execute, Rng&) {
  const Values expected = run_copy(call, execute);
  const Ranges ranges(call);
  Call changed = call;
  for (const char* name : {"key", "value"})
    for (std::int64_t n = 0; n < call.dim("B"); ++n)
      each_token(call.input(name), n, [&](std::int64_t t, std::int64_t element) {
        if (t < ranges.first(n) || t >= ranges.end(n)) changed.input(name).set(element, nan);
      });
  return disagreement(call, run_copy(changed, execute), expected);
}

// One key becomes NaN: exactly the queries that see it may know (the reference tells which).
std::string one_nan_key(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& keys = changed.input("key");
  keys.set(rng.between(0, keys.elements() - 1), nan);
  return first_failure(verify_call(RaggedDecodeAttention(), changed, execute));
}

// Keys that grow with the position, so that the largest score comes last and is far above the first ones; and the other way round.
std::string growing_keys(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  const HostTensor& from = call.input("key");
  const bool falling = rng.chance(0.5);
  for (std::int64_t n = 0; n < call.dim("B"); ++n)
    each_token(from, n, [&](std::int64_t t, std::int64_t element) {
      const double place = static_cast<double>(t) / static_cast<double>(call.dim("S"));
      changed.input("key").set(element, from.at(element) * (0.1 + 12.0 * (falling ? 1 - place : place)));
    });
  return first_failure(verify_call(RaggedDecodeAttention(), changed, execute));
}

// Where all values are equal, a mean of them is that value, and a sequence without keys gives 0.
std::string equal_values(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  HostTensor& values = changed.input("value");
  for (std::int64_t i = 0; i < values.elements(); ++i) values.set(i, 3);
  const HostTensor& out = call.input("out");
  const Ranges ranges(call);
  std::vector<double> expected(at(out.elements()), 0.0);
  for (std::int64_t i = 0; i < out.elements(); ++i)
    if (const std::int64_t n = i / call.dim("Dv") / call.dim("Hq"); ranges.start(n) < ranges.end(n)) expected[at(i)] = 3;
  return compare("out", out.shape(), run_copy(changed, execute).at("out"), expected, tolerance_of(call, out)).message;
}

// Attention over the keys before a place and over those from it on, put together by their LSE, is attention over all of them.
std::string two_halves(const Call& call, const Execute& execute, Rng& rng) {
  const std::int64_t place = rng.between(0, call.dim("S"));
  Call before = call, after = call;
  for (std::int64_t n = 0; n < call.dim("B"); ++n) {
    const auto cut = static_cast<double>(place);
    before.input("sequence_end").set(n, std::min(call.input("sequence_end").at(n), cut));
    after.input("sequence_start").set(n, std::max(call.input("sequence_start").at(n), cut));
  }
  const Values first = run_copy(before, execute), second = run_copy(after, execute);
  Values both = first;
  for (std::size_t row = 0; row < both.at("lse").size(); ++row) {
    const double a = first.at("lse")[row], b = second.at("lse")[row], total = log_sum_exp({a, b});
    both.at("lse")[row] = total;
    for (std::size_t i = row * at(call.dim("Dv")); i < (row + 1) * at(call.dim("Dv")); ++i)
      both.at("out")[i] = total == -infinity ? 0 : std::exp(a - total) * first.at("out")[i] + std::exp(b - total) * second.at("out")[i];
  }
  return disagreement(call, run_copy(call, execute), both);
}

// The sequences, moved on as far as they all can be, see the same keys elsewhere.
std::string moved_on(const Call& call, const Execute& execute, Rng& rng) {
  const Ranges ranges(call);
  std::int64_t room = call.dim("S");
  for (std::int64_t n = 0; n < call.dim("B"); ++n) room = std::min(room, call.dim("S") - ranges.end(n));
  const std::int64_t by = rng.between(0, room);
  Call changed = call;
  for (std::int64_t n = 0; n < call.dim("B"); ++n) {
    for (const char* name : {"sequence_start", "sequence_end"})
      changed.input(name).set(n, std::min(call.input(name).at(n) + static_cast<double>(by), static_cast<double>(call.dim("S"))));
    for (const char* name : {"key", "value"}) {
      const HostTensor& from = call.input(name);
      const std::int64_t token = from.shape()[2] * from.shape()[3];
      each_token(from, n, [&](std::int64_t t, std::int64_t element) {
        if (t + by < call.dim("S")) changed.input(name).set(element + by * token, from.at(element));
      });
    }
  }
  return disagreement(call, run_copy(changed, execute), run_copy(call, execute));
}

std::vector<Property> RaggedDecodeAttention::properties() const {
  const auto usual = [](const Call& call) { return writable(call) && has_tokens(call); };
  return {
      repeats_bit_for_bit([](const Call&) { return true; }),
      {"tokens that no query sees do not matter, even NaN", writable, unseen},
      {"a NaN in a key reaches the queries that see it and no other", usual, one_nan_key},
      {"scores may grow or fall along the keys", [=](const Call& call) { return usual(call) && call.floating("logits_soft_cap") == 0; },
       growing_keys},
      {"two halves of the keys make the whole",
       [=](const Call& call) { return usual(call) && call.given("lse") && !call.given("softmax_aux") && call.integer("window_left") < 0; },
       two_halves},
      {"where in its row a sequence lies does not matter", usual, moved_on},
      {"equal values come out as they went in", [=](const Call& call) { return usual(call) && !call.given("softmax_aux"); }, equal_values},
  };
}

const Registration registration{std::make_unique<RaggedDecodeAttention>()};

}  // namespace
}  // namespace ejk::reference::ragged_decode_attention
