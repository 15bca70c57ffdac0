// What the references of ssd, its update and its gradient share: one sequence and head as numbers, cases and data.
#pragma once
#include <vector>

#include "reference/kernels/recurrence.hpp"

namespace ejk::reference {

// One head of one sequence. Rows lie one after another.
struct StateSpaceStream {
  std::int64_t tokens = 0, width = 0, states = 0;
  std::vector<double> x;            // [tokens, width]
  std::vector<double> step, slope;  // [tokens]: dt with its bias, through softplus if asked for; the derivative by dt
  std::vector<double> b, c;         // [tokens, states]
  double rate = 0, skip = 0;        // A and D
  std::vector<double> state;        // [width, states] before the first token
};

// Row-major places of a stream's numbers.
class StateSpacePlaces {
 public:
  StateSpacePlaces(const Call& call, const RecurrentSequence& sequence)
      : sequence_(sequence), length_(call.dim("T")), heads_(call.dim("H")), groups_(call.dim("G")) {}
  std::int64_t of_head(std::int64_t t, std::int64_t head) const { return token(t) * heads_ + head; }
  std::int64_t of_group(std::int64_t t, std::int64_t head) const { return token(t) * groups_ + head / (heads_ / groups_); }
  std::int64_t state(std::int64_t head, std::int64_t size) const { return (sequence_.state * heads_ + head) * size; }

 private:
  std::int64_t token(std::int64_t t) const { return sequence_.row * length_ + sequence_.begin + t; }
  RecurrentSequence sequence_;
  std::int64_t length_, heads_, groups_;
};

// `state`: the name of the input that has states before the first tokens.
StateSpaceStream state_space_stream(const Call& call, const RecurrentSequence& sequence, std::int64_t head, const char* state);

// The stream with these rows of the state alone: rows of a state do not meet.
StateSpaceStream with_rows(StateSpaceStream stream, const std::set<std::int64_t>& chosen);

// Outputs [tokens, width]; stream.state becomes the last one. `seen`, if wanted: every state after a token is appended.
std::vector<double> run_state_space(StateSpaceStream& stream, std::vector<double>* seen = nullptr);

RecurrentResult state_space_result(const Call& call, const char* state);
// Some rows of some heads, at all tokens and in the last state, which is the output `last`.
Samples state_space_sample(const Call& call, const char* state, const char* last, Rng& rng);

// Cases and data.
spec::Case vary_state_space(const spec::Case& c, Rng& rng);
spec::Case random_state_space(Rng& rng);
std::vector<OptionCase> state_space_option_cases();
// Steps are not negative, some 0, some far out in softplus; rates are finite.
void settle_steps(Call& call);

}  // namespace ejk::reference
