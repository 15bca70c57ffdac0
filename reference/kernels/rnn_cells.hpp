// What the references of rnn and its gradient share: one row of the batch and direction as numbers, cases, and sizes of weights.
#pragma once
#include <string>
#include <vector>

#include "reference/reference.hpp"

namespace ejk::reference {

// Row `row` of the batch in direction `direction`: 1 takes the tokens from the last valid one to the first.
struct RnnRow {
  std::int64_t row, direction, length;
  std::int64_t token(std::int64_t step) const { return direction == 1 ? length - 1 - step : step; }
};
std::vector<RnnRow> rnn_rows(const Call& call);

enum class RnnCell { lstm, gru, tanh, relu };
RnnCell rnn_cell(const Call& call);

// One step. Gates in the order of the weights' rows, behind their functions: LSTM i, f, g, o; GRU r, z, n; otherwise the state.
struct RnnStep {
  std::vector<double> x;                            // [I]
  std::vector<double> state_before, memory_before;  // [H]: h and, of an LSTM, c
  std::vector<std::vector<double>> gates;           // [gates][H]
  std::vector<double> recurrent_n;                  // GRU: W_hn h + b_hn, which r multiplies
  std::vector<std::vector<double>> kept;            // [4 or 5][H]: what rnn's output gates has of an LSTM or GRU
  std::vector<double> state, memory;
};

// The steps of a row from h0 and c0 on. `states`, if it is given, is y: the states that steps start from are read there.
std::vector<RnnStep> rnn_steps(const Call& call, const RnnRow& row, const HostTensor* states = nullptr);

// The same cut after so many steps.
std::vector<RnnStep> first_rnn_steps(const Call& call, const RnnRow& row, std::int64_t most, const HostTensor* states = nullptr);

// The steps whose states are rounded to x's type where the weights multiply them, as matrix instructions take them.
std::vector<RnnStep> rounded_rnn_steps(const Call& call, const RnnRow& row, const HostTensor* states = nullptr);
std::vector<double> rounded(const std::vector<double>& from, DType type);

// h0 or c0 of a row; zeros if it is not given.
std::vector<double> rnn_start(const Call& call, const char* name, const RnnRow& row);

// Row-major places: of a feature of y at a token, of a feature of h0, c0, h_n and c_n, of row (gate, feature) of weights `width` wide.
std::int64_t rnn_place_in_y(const Call& call, const RnnRow& row, std::int64_t token);
std::int64_t rnn_place_in_state(const Call& call, const RnnRow& row);
std::int64_t rnn_place_in_gates(const Call& call, const RnnRow& row, std::int64_t token);
std::int64_t rnn_place_in_weights(const Call& call, const RnnRow& row, std::int64_t gate, std::int64_t feature, std::int64_t width);

// The call's output or input gates, of such steps.
void put_kept_gates(const Call& call, const RnnRow& row, const std::vector<RnnStep>& steps, std::vector<double>& to);

// Weights of such a size that states forget: differences do not grow from step to step, as they would with weights of deviation 1.
void settle_weights(Call& call);

// Cases.
spec::Case vary_rnn(const spec::Case& c, Rng& rng);
spec::Case random_rnn(Rng& rng);
std::vector<OptionCase> rnn_option_cases();

}  // namespace ejk::reference
