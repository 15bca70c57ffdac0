// One row and direction of a recurrent layer in float64: docs/semantics.md, "rnn".
#include "reference/kernels/rnn_cells.hpp"

#include <algorithm>
#include <cmath>

#include "reference/element.hpp"
#include "reference/spot.hpp"

namespace ejk::reference {
namespace {

using Numbers = std::vector<double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// A direction's weights [gates * H, width] as numbers, and their bias.
struct Projection {
  Numbers weights, bias;
  Projection(const Call& call, const RnnRow& row, const char* w, const char* b) : bias(spot(call.dim("G") * call.dim("H")), 0.0) {
    const Numbers all = call.input(w).values();
    const std::size_t size = all.size() / spot(call.dim("dirs"));
    weights.assign(all.begin() + row.direction * static_cast<std::ptrdiff_t>(size),
                   all.begin() + (row.direction + 1) * static_cast<std::ptrdiff_t>(size));
    for (std::size_t i = 0; call.given(b) && i < bias.size(); ++i)
      bias[i] = call.input(b).at(row.direction * static_cast<std::int64_t>(bias.size()) + static_cast<std::int64_t>(i));
  }
  double of(std::int64_t weights_row, const Numbers& x) const {
    double sum = bias[spot(weights_row)];
    const double* w = weights.data() + spot(weights_row) * x.size();
    for (std::size_t k = 0; k < x.size(); ++k) sum += w[k] * x[k];
    return sum;
  }
};

// `entering`: the state before, as the weights multiply it.
void take_step(const Call& call, const Projection& input, const Projection& recurrent, const Numbers& entering, RnnStep& s) {
  const RnnCell cell = rnn_cell(call);
  const std::int64_t features = call.dim("H"), gates = call.dim("G");
  s.gates.resize(spot(gates)), s.kept.resize(cell == RnnCell::lstm ? 5 : cell == RnnCell::gru ? 4 : 0);
  for (std::int64_t j = 0; j < features; ++j) {
    double in[4] = {}, back[4] = {};
    for (std::int64_t g = 0; g < gates; ++g) {
      in[g] = input.of(g * features + j, s.x);
      back[g] = recurrent.of(g * features + j, entering);
    }
    double gate[4] = {}, state = 0, memory = 0;
    const double before = s.state_before[spot(j)];
    if (cell == RnnCell::lstm) {
      for (const int g : {0, 1, 3}) gate[g] = sigmoid(in[g] + back[g]);
      gate[2] = std::tanh(in[2] + back[2]);
      memory = gate[1] * s.memory_before[spot(j)] + gate[0] * gate[2];
      state = gate[3] * std::tanh(memory);
    } else if (cell == RnnCell::gru) {
      gate[0] = sigmoid(in[0] + back[0]), gate[1] = sigmoid(in[1] + back[1]);
      gate[2] = std::tanh(in[2] + gate[0] * back[2]);
      state = (1 - gate[1]) * gate[2] + gate[1] * before;
      s.recurrent_n.push_back(back[2]);
    } else {
      const double sum = in[0] + back[0];
      state = gate[0] = cell == RnnCell::tanh ? std::tanh(sum) : sum < 0 ? 0 : sum;
    }
    for (std::int64_t g = 0; g < gates; ++g) s.gates[spot(g)].push_back(gate[g]);
    if (cell == RnnCell::gru) in[3] = back[2], back[2] = 0;
    for (std::size_t g = 0; g < s.kept.size(); ++g) s.kept[g].push_back(g == 4 ? memory : in[g] + back[g]);
    s.state.push_back(state), s.memory.push_back(memory);
  }
}

void set_cell(spec::Case& c, const char* cell) {
  c.attributes["cell_type"] = std::string(cell);
  if (std::string(cell) != "lstm") std::erase_if(c.given, [](const std::string& name) { return name == "c0" || name == "c_n"; });
}

void give_of_cell(spec::Case& c, std::initializer_list<const char*> tensors) {
  const auto found = c.attributes.find("cell_type");
  const bool is_lstm = found == c.attributes.end() || std::get<std::string>(found->second) == "lstm";
  for (const char* name : tensors) {
    const std::string tensor = name;
    if (is_lstm || (tensor != "c0" && tensor != "c_n")) c.given.push_back(tensor);
  }
}

std::vector<RnnStep> all_rnn_steps(const Call& call, const RnnRow& row, std::int64_t most, const HostTensor* states, bool rounds) {
  std::vector<RnnStep> steps;
  Numbers state = rnn_start(call, "h0", row), memory = rnn_start(call, "c0", row);
  const std::int64_t inputs = call.dim("I");
  const Projection input(call, row, "w_ih", "b_ih"), recurrent(call, row, "w_hh", "b_hh");
  for (std::int64_t t = 0; t < std::min(row.length, most); ++t) {
    RnnStep s;
    for (std::int64_t i = 0; i < inputs; ++i) s.x.push_back(call.input("x").at((row.row * call.dim("T") + row.token(t)) * inputs + i));
    s.state_before = state, s.memory_before = memory;
    take_step(call, input, recurrent, rounds ? rounded(state, call.input("x").type()) : state, s);
    state = s.state, memory = s.memory;
    for (std::size_t j = 0; states && j < state.size(); ++j)
      state[j] = states->at(rnn_place_in_y(call, row, row.token(t)) + static_cast<std::int64_t>(j));
    steps.push_back(std::move(s));
  }
  return steps;
}

struct RnnOption {
  const char* name;
  void (*apply)(spec::Case&);
};

const RnnOption rnn_options[] = {
    {"gru", [](spec::Case& c) { set_cell(c, "gru"); }},
    {"rnn_tanh", [](spec::Case& c) { set_cell(c, "rnn_tanh"); }},
    {"rnn_relu", [](spec::Case& c) { set_cell(c, "rnn_relu"); }},
    {"bidirectional", [](spec::Case& c) { c.attributes["bidirectional"] = true; }},
    {"lengths", [](spec::Case& c) { give_of_cell(c, {"lengths"}); }},
    {"h0", [](spec::Case& c) { give_of_cell(c, {"h0"}); }},
    {"c0",
     [](spec::Case& c) {
       give_of_cell(c, {"c0", "c_n"});
     }},
    {"b_ih", [](spec::Case& c) { give_of_cell(c, {"b_ih"}); }},
    {"b_hh", [](spec::Case& c) { give_of_cell(c, {"b_hh"}); }},
    {"gates", [](spec::Case& c) { c.given.push_back("gates"); }},
    {"not_kept", [](spec::Case& c) { c.attributes["keep_gates"] = false; }},
    {"one_token", [](spec::Case& c) { c.dims["T"] = std::int64_t{1}; }},
    {"one_row", [](spec::Case& c) { c.dims["B"] = std::int64_t{1}; }},
    {"more_rows", [](spec::Case& c) { c.dims["B"] = std::int64_t{19}; }},
    {"odd_sizes", [](spec::Case& c) { c.dims["I"] = std::int64_t{5}, c.dims["H"] = std::int64_t{23}; }},
};

spec::Case rnn_case(const char* type, const RnnOption& first, const RnnOption* second) {
  spec::Case c;
  c.types["E"] = type;
  for (const auto& [dim, size] : {std::pair{"B", 3}, {"T", 5}, {"I", 9}, {"H", 16}}) c.dims[dim] = std::int64_t{size};
  c.name = first.name;
  first.apply(c);
  if (second) second->apply(c), c.name += std::string(" and ") + second->name;
  return c;
}

}  // namespace

RnnCell rnn_cell(const Call& call) {
  const std::string cell = std::get<std::string>(call.binding.attributes.at("cell_type"));
  return cell == "lstm" ? RnnCell::lstm : cell == "gru" ? RnnCell::gru : cell == "rnn_tanh" ? RnnCell::tanh : RnnCell::relu;
}

std::vector<RnnRow> rnn_rows(const Call& call) {
  std::vector<RnnRow> rows;
  for (std::int64_t direction = 0; direction < call.dim("dirs"); ++direction)
    for (std::int64_t b = 0; b < call.dim("B"); ++b)
      rows.push_back({b, direction, call.given("lengths") ? static_cast<std::int64_t>(call.input("lengths").at(b)) : call.dim("T")});
  return rows;
}

std::int64_t rnn_place_in_y(const Call& call, const RnnRow& row, std::int64_t token) {
  return ((row.row * call.dim("T") + token) * call.dim("dirs") + row.direction) * call.dim("H");
}

std::int64_t rnn_place_in_state(const Call& call, const RnnRow& row) { return (row.direction * call.dim("B") + row.row) * call.dim("H"); }

std::int64_t rnn_place_in_weights(const Call& call, const RnnRow& row, std::int64_t gate, std::int64_t feature, std::int64_t width) {
  return ((row.direction * call.dim("G") + gate) * call.dim("H") + feature) * width;
}

std::vector<double> rnn_start(const Call& call, const char* name, const RnnRow& row) {
  Numbers start(spot(call.dim("H")), 0.0);
  if (call.given(name))
    for (std::size_t j = 0; j < start.size(); ++j)
      start[j] = call.input(name).at(rnn_place_in_state(call, row) + static_cast<std::int64_t>(j));
  return start;
}

std::int64_t rnn_place_in_gates(const Call& call, const RnnRow& row, std::int64_t token) {
  return ((row.direction * call.dim("B") + row.row) * call.dim("T") + token) * call.dim("kept") * call.dim("H");
}

void put_kept_gates(const Call& call, const RnnRow& row, const std::vector<RnnStep>& steps, Numbers& to) {
  if (call.dim("kept") == 0) return;
  for (std::size_t t = 0; t < steps.size(); ++t) {
    auto at = to.begin() + rnn_place_in_gates(call, row, row.token(static_cast<std::int64_t>(t)));
    for (const Numbers& one : steps[t].kept) at = std::copy(one.begin(), one.end(), at);
  }
}

std::vector<RnnStep> rnn_steps(const Call& call, const RnnRow& row, const HostTensor* states) {
  return all_rnn_steps(call, row, row.length, states, false);
}

std::vector<RnnStep> first_rnn_steps(const Call& call, const RnnRow& row, std::int64_t most, const HostTensor* states) {
  return all_rnn_steps(call, row, most, states, false);
}

std::vector<RnnStep> rounded_rnn_steps(const Call& call, const RnnRow& row, const HostTensor* states) {
  return all_rnn_steps(call, row, row.length, states, true);
}

std::vector<double> rounded(const std::vector<double>& from, DType type) {
  Numbers to = from;
  for (double& x : to) {
    unsigned char bytes[8];
    store_element(type, bytes, x);
    x = load_element(type, bytes);
  }
  return to;
}

void settle_weights(Call& call) {
  for (const auto& [name, width] : {std::pair{"w_ih", call.dim("I")}, {"w_hh", call.dim("H")}}) {
    HostTensor& tensor = call.input(name);
    Numbers values = tensor.values();
    const double factor = (name[2] == 'i' ? 1 : 0.5) / std::sqrt(std::max<double>(static_cast<double>(width), 1));
    for (double& value : values) value *= factor;
    tensor.assign(values);
  }
}

// Images for many features serve no others: of their cases a few rows and tokens.
spec::Case few_rows_of(spec::Case c, Rng& rng) {
  c.dims["B"] = rng.between(1, 2), c.dims["T"] = rng.between(1, 3), c.dims["I"] = 8 * rng.between(1, 3);
  return c;
}

spec::Case vary_rnn(const spec::Case& c, Rng& rng) {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  const auto features = c.dims.find("H");
  if (features != c.dims.end() && std::get<std::int64_t>(features->second) >= 512) return few_rows_of(std::move(varied), rng);
  varied.dims.clear();
  varied.dims["B"] = rng.chance(0.05) ? 0 : rng.chance(0.3) ? 1 : rng.nasty_size(1, 24);
  varied.dims["T"] = rng.chance(0.2) ? 1 : rng.nasty_size(0, 17);
  varied.dims["I"] = rng.nasty_size(0, 70);
  varied.dims["H"] = rng.chance(0.03) ? 0 : rng.chance(0.3) ? 8 * rng.between(1, 10) : rng.nasty_size(1, 70);
  return varied;
}

spec::Case random_rnn(Rng& rng) {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  static constexpr const char* cells[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
  spec::Case c;
  c.name = "random";
  c.types["E"] = rng.pick(types);
  set_cell(c, rng.pick(cells));
  if (rng.chance(0.4)) c.attributes["bidirectional"] = true;
  if (rng.chance(0.2)) c.attributes["keep_gates"] = false;
  for (const char* tensor : {"h0", "c0", "b_ih", "b_hh", "lengths", "c_n", "gates"})
    if (rng.chance(0.5)) give_of_cell(c, {tensor});
  return vary_rnn(c, rng);
}

std::vector<OptionCase> rnn_option_cases() {
  std::vector<OptionCase> cases;
  for (const char* type : {"f32", "bf16"})
    for (const RnnOption& first : rnn_options) {
      cases.push_back({rnn_case(type, first, nullptr), true});
      for (const RnnOption* second = &first + 1; second != std::end(rnn_options); ++second)
        cases.push_back({rnn_case(type, first, second), false});
    }
  return cases;
}

}  // namespace ejk::reference
