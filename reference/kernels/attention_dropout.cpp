// Dropout made visible: without queries all visible weights are alike, and a table of ones shows which of them are there.
#include "reference/kernels/attention_dropout.hpp"

#include "reference/kernels/attention_cases.hpp"
#include "reference/philox.hpp"

namespace ejk::reference {
namespace {

bool drops_some(const Call& call) {
  return writable(call) && call.floating("dropout_prob") > 0 && call.input("q").elements() > 0 && call.input("v").elements() > 0;
}

void clear(HostTensor& tensor) {
  for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, 0);
}

// Biases so low that a key beside another one has no weight become 0: then every visible key has one.
void lift(HostTensor* bias) {
  for (std::int64_t i = 0; bias && i < bias->elements(); ++i)
    if (std::isfinite(bias->at(i)) && bias->at(i) < -100) bias->set(i, 0);
}

// The first of as many tokens as v has features, of those that the longest sequence has.
std::int64_t first_shown(const Call& call, std::int64_t Sequence::*length, Rng& rng) {
  std::int64_t most = 1;
  for (const Sequence& s : sequences_of(call)) most = std::max(most, s.*length);
  return rng.between(0, (most - 1) / call.dim("Dv")) * call.dim("Dv");
}

// Whether a weight is there: visible, and kept.
class Weights {
 public:
  explicit Weights(const Call& call)
      : visibility_(call),
        bias_(call, "bias"),
        dropout_(call.floating("dropout_prob"), static_cast<std::uint64_t>(call.integer("dropout_seed"))),
        heads_(call.dim("Hq")) {}
  bool has(const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (bias_.given() && std::isinf(bias_.value(s.number, h, i, j))) return false;
    return visibility_.sees(s, h, i, j) && dropout_.factor(s.number * heads_ + h, i, j) > 0;
  }

 private:
  Visibility visibility_;
  Broadcast bias_;
  Dropout dropout_;
  std::int64_t heads_;
};

std::string told(bool found, const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) {
  return std::string("the weight of sequence ") + std::to_string(s.number) + ", head " + std::to_string(h) + ", query " +
         std::to_string(i) + " and key " + std::to_string(j) + (found ? " is there, but was to be dropped" : " is missing");
}

std::string check_out(const Call& call, const Execute& execute, Rng& rng) {
  const std::int64_t heads = call.dim("Hq"), kv_heads = call.dim("Hkv"), features = call.dim("Dv");
  const std::int64_t first = first_shown(call, &Sequence::k_length, rng);
  Call changed = call;
  HostTensor& v = changed.input("v");
  clear(changed.input("q"));
  lift(changed.find("bias"));
  clear(v);
  for (const Sequence& s : sequences_of(call))
    for (std::int64_t e = 0; e < features && first + e < s.k_length; ++e)
      for (std::int64_t h = 0; h < kv_heads; ++h) v.set(((s.k_begin + first + e) * kv_heads + h) * features + e, 1);
  const std::vector<double> out = run_copy(changed, execute).at("out");
  const Weights weights(call);
  for (const Sequence& s : sequences_of(call))
    for (std::int64_t i = 0; i < s.q_length; ++i)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t e = 0; e < features && first + e < s.k_length; ++e) {
          const bool found = out[at(((s.q_begin + i) * heads + h) * features + e)] != 0;
          if (found != weights.has(s, h, i, first + e)) return told(found, s, h, i, first + e);
        }
  return "";
}

std::string check_dv(const Call& call, const Execute& execute, Rng& rng, void (*complete)(Call&)) {
  const std::int64_t heads = call.dim("Hq"), kv_heads = call.dim("Hkv"), features = call.dim("Dv");
  const std::int64_t first = first_shown(call, &Sequence::q_length, rng), of_group = rng.between(0, heads / kv_heads - 1);
  Call changed = call;
  HostTensor& dout = changed.input("dout");
  clear(changed.input("q"));
  lift(changed.find("bias"));
  clear(dout);
  const auto head = [&](std::int64_t kv_head) { return kv_head * (heads / kv_heads) + of_group; };
  for (const Sequence& s : sequences_of(call))
    for (std::int64_t e = 0; e < features && first + e < s.q_length; ++e)
      for (std::int64_t h = 0; h < kv_heads; ++h) dout.set(((s.q_begin + first + e) * heads + head(h)) * features + e, 1);
  complete(changed);
  const std::vector<double> dv = run_copy(changed, execute).at("dv");
  const Weights weights(call);
  for (const Sequence& s : sequences_of(call))
    for (std::int64_t j = 0; j < s.k_length; ++j)
      for (std::int64_t h = 0; h < kv_heads; ++h)
        for (std::int64_t e = 0; e < features && first + e < s.q_length; ++e) {
          const bool found = dv[at(((s.k_begin + j) * kv_heads + h) * features + e)] != 0;
          if (found != weights.has(s, head(h), first + e, j)) return told(found, s, head(h), first + e, j);
        }
  return "";
}

}  // namespace

Property drops_what_philox_says() { return {"dropout drops what Philox says", drops_some, check_out}; }

Property drops_what_the_forward_pass_dropped(void (*complete)(Call&)) {
  return {"dropout drops what Philox says", drops_some,
          [=](const Call& call, const Execute& execute, Rng& rng) { return check_dv(call, execute, rng, complete); }};
}

}  // namespace ejk::reference
