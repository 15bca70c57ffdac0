// What the references of mla_attention and its gradient, their cases and laws share: a call's numbers, which keys a query sees, keys made
// for a head.
#pragma once
#include "reference/kernels/decode_reference.hpp"

namespace ejk::reference::mla_attention {

inline bool is_paged(const Call& call) { return call.given("cache"); }

// Which keys each query sees, and which row of the latent tensors (of the cache: which slot) a key is. A paged sequence has one query.
class Sight {
 public:
  explicit Sight(const Call& call);
  std::int64_t sequences() const { return sequences_; }
  std::int64_t queries() const { return queries_; }
  std::vector<std::int64_t> keys(std::int64_t n, std::int64_t i) const;
  // Those that some query of the sequence sees, in order.
  std::vector<std::int64_t> keys_of_any(std::int64_t n) const;
  std::int64_t row(std::int64_t n, std::int64_t key) const;

 private:
  std::int64_t sequences_, queries_, tokens_ = 0, columns_ = 0, page_ = 1, left_ = -1;
  std::optional<Visibility> dense_;
  std::vector<Sequence> bounds_;
  std::vector<double> lengths_, table_;
};

// A token's latent and rope features.
struct Token {
  std::vector<double> latent, rope;
};

// A head's key without its rope part, and its value.
struct Expanded {
  std::vector<double> key, value;
};

// One call's numbers; of the keys only what somebody sees is read, since a cache may be large.
struct Problem {
  explicit Problem(const Call& call);

  Token token(std::int64_t n, std::int64_t key) const;
  Expanded expand(const Token& token, std::int64_t h) const;
  // Row (n, i, h) of q_nope and q_rope.
  std::int64_t query_row(std::int64_t n, std::int64_t i, std::int64_t h) const { return (n * sight.queries() + i) * heads + h; }
  std::int64_t lse_place(std::int64_t n, std::int64_t i, std::int64_t h) const { return (n * heads + h) * sight.queries() + i; }
  double kc(std::int64_t r, std::int64_t h, std::int64_t d) const { return w_kc[at((r * heads + h) * own + d)]; }
  double vc(std::int64_t r, std::int64_t h, std::int64_t d) const { return w_vc[at((r * heads + h) * value_dim + d)]; }

  const Call& call;
  Sight sight;
  std::int64_t heads, latent, rope, own, value_dim;
  double scale, cap;
  std::vector<double> q_nope, q_rope, w_kc, w_vc;
};

// Sizes of a case: small enough for the reference to take milliseconds. Head dims, R and Dr stay.
void vary_sizes(spec::Case& c, Rng& rng);
// Any legal call of the dense form, or of either.
spec::Case random_call(Rng& rng, bool dense);

// Weights are so small that keys and values they make are of deviation 1.
void scale_weights(Call& call);
// What no query sees becomes NaN.
void spoil_unseen(Call& call);

class MlaAttention : public KernelReference {
 public:
  std::string kernel() const override { return "mla_attention"; }
  Values compute(const Call& call) const override;
  Samples sample(const Call& call, Rng& rng) const override;
  void complete(Call& call) const override;
  spec::Case vary(const spec::Case& c, Rng& rng) const override;
  spec::Case random_case(Rng& rng) const override { return random_call(rng, false); }
  std::vector<OptionCase> option_cases() const override;
  std::vector<Property> properties() const override;
};

// Each option alone and every two; `gradient`: of mla_attention_bwd, all gradients wanted.
std::vector<OptionCase> option_cases_of(bool gradient);

}  // namespace ejk::reference::mla_attention
