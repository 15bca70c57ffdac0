// What the references of recurrent and its gradient share: one sequence and head as numbers, cases, and the laws of both.
#pragma once
#include <functional>
#include <set>
#include <vector>

#include "reference/reference.hpp"

namespace ejk::reference {

// A sequence's tokens: in row `row` of the batch, from `begin` up to `end`; `state` is its place in the states.
struct RecurrentSequence {
  std::int64_t row, begin, end, state;
};
std::vector<RecurrentSequence> recurrent_sequences(const Call& call);

// Tokens of a call that are in no sequence, as numbers in [0, B * T).
std::vector<bool> recurrent_tokens_in_use(const Call& call);

// Numbers of a tensor [batch, tokens, ...] that belong to one token.
std::int64_t recurrent_token_size(const Call& call, const HostTensor& tensor);

// A law of packed calls: tokens in no sequence do not matter, even NaN in these inputs, which have a row a token.
Property unused_tokens_do_not_matter(std::vector<const char*> by_token, std::function<bool(const Call&)> applies);

// One head of one sequence, in the order in which its tokens are met. Rows lie one after another.
struct RecurrentStream {
  std::int64_t tokens = 0, keys = 0, values = 0;
  std::vector<double> q, k;                        // [tokens, keys], divided by their norms if asked for, q not scaled
  std::vector<double> q_norm, k_norm;              // [tokens]: what they were divided by, else 1
  std::vector<double> v;                           // [tokens, values]
  std::vector<double> gate, key_gate, value_gate;  // logs: [tokens], g and g_gamma together; [tokens, keys]; [tokens, values]
  std::vector<double> beta;                        // [tokens]; empty: not given
  std::vector<double> state;                       // [keys, values] before the first token
};

// Row-major places of a stream's numbers: of token t (in the order met) of head h, in a tensor of `heads` heads of `width` features.
class RecurrentPlaces {
 public:
  RecurrentPlaces(const Call& call, const RecurrentSequence& sequence)
      : sequence_(sequence), length_(call.dim("T")), all_heads_(call.dim("H")), reverse_(call.flag("reverse")) {}
  std::int64_t token(std::int64_t t) const { return sequence_.row * length_ + (reverse_ ? sequence_.end - 1 - t : sequence_.begin + t); }
  std::int64_t row(std::int64_t t, std::int64_t head, std::int64_t heads, std::int64_t width) const {
    return (token(t) * heads + head / (all_heads_ / heads)) * width;
  }
  std::int64_t state(std::int64_t head, std::int64_t size) const { return (sequence_.state * all_heads_ + head) * size; }

 private:
  RecurrentSequence sequence_;
  std::int64_t length_, all_heads_;
  bool reverse_;
};

// `state`: the name of the input that has states before the first tokens.
RecurrentStream recurrent_stream(const Call& call, const RecurrentSequence& sequence, std::int64_t head, const char* state);

// The stream with these of its values alone: values do not meet in a state, so theirs stay as they are.
RecurrentStream with_values(RecurrentStream stream, const std::set<std::int64_t>& chosen);

// How the numbers of a recurrence are held from step to step: as they are, or rounded to 20 bits, 16 units in the last place of f32, which
// is what sums in f32 are good to.
using Held = double (*)(double);
double exactly(double x);
double nearly(double x);

// Outputs [tokens, values] of a stream, scaled; stream.state becomes the last one. `seen`, if wanted: every state, [tokens, keys, values].
std::vector<double> run_recurrence(RecurrentStream& stream, double scale, std::vector<double>* seen = nullptr, Held held = exactly);

struct RecurrentResult {
  std::vector<double> out, state;
};
RecurrentResult recurrent_result(const Call& call, const char* state);
// Some values of some heads, at some tokens and in the last state, which is the output `last`.
Samples recurrent_sample(const Call& call, const char* state, const char* last, Rng& rng);

// The reference of a kernel that is recurrent by a narrower contract.
class NarrowedRecurrent : public KernelReference {
 public:
  Values compute(const Call& call) const override {
    const RecurrentResult result = recurrent_result(call, "initial_state");
    return {{"out", result.out}, {"final_state", result.state}};
  }
  Samples sample(const Call& call, Rng& rng) const override { return recurrent_sample(call, "initial_state", "final_state", rng); }
  void complete(Call& call) const override;
  spec::Case vary(const spec::Case& c, Rng& rng) const override;
  std::vector<Property> properties() const override {
    return {repeats_bit_for_bit([](const Call&) { return true; })};
  }
};

// Cases and data.
spec::Case vary_recurrent(const spec::Case& c, Rng& rng);
spec::Case random_recurrent(Rng& rng);
// A random call of a kernel that has these optional tensors and attributes alone.
spec::Case narrowed_recurrent(const std::vector<std::string>& tensors, const std::vector<std::string>& attributes, Rng& rng);
std::vector<OptionCase> recurrent_option_cases();
// With beta and without l2_norm: keys of length 1 at most, since a state may otherwise grow without bounds. One row of q and k is 0.
void settle_keys(Call& call);

}  // namespace ejk::reference
