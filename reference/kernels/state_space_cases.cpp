// Cases of ssd: other sizes, any legal call, every option and every two.
#include <algorithm>

#include "reference/kernels/state_space.hpp"

namespace ejk::reference {
namespace {

bool gives(const spec::Case& c, const char* tensor) { return std::find(c.given.begin(), c.given.end(), tensor) != c.given.end(); }

// GPU images are made for state sizes up to a power of two: another one of the same.
std::int64_t other_states(std::int64_t states, Rng& rng) {
  std::int64_t most = 8;
  while (most < states) most *= 2;
  return most == 8 ? rng.between(1, 8) : rng.between(most / 2 + 1, most);
}

struct StateSpaceOption {
  const char* name;
  void (*apply)(spec::Case&);
};

void give_tensor(spec::Case& c, const char* tensor, const char* variable) {
  c.given.emplace_back(tensor);
  if (*variable) c.types[variable] = "f32";
}

const StateSpaceOption state_space_options[] = {
    {"D", [](spec::Case& c) { give_tensor(c, "D", "Ed"); }},
    {"dt_bias", [](spec::Case& c) { give_tensor(c, "dt_bias", "Eb"); }},
    {"dt_softplus", [](spec::Case& c) { c.attributes["dt_softplus"] = true; }},
    {"initial_state", [](spec::Case& c) { give_tensor(c, "initial_state", ""); }},
    {"packed",
     [](spec::Case& c) {
       c.dims.erase("B"), c.dims["S"] = std::int64_t{4}, c.dims["T"] = std::int64_t{61}, give_tensor(c, "cum_seqlens", "");
     }},
    {"one_token", [](spec::Case& c) { c.dims["T"] = std::int64_t{1}; }},
    {"one_group", [](spec::Case& c) { c.dims["G"] = std::int64_t{1}; }},
    {"group_a_head", [](spec::Case& c) { c.dims["G"] = std::int64_t{4}; }},
    {"wide_state", [](spec::Case& c) { c.dims["N"] = std::int64_t{96}; }},
    {"wide_head", [](spec::Case& c) { c.dims["P"] = std::int64_t{96}; }},
    {"odd_sizes", [](spec::Case& c) { c.dims["N"] = std::int64_t{19}, c.dims["P"] = std::int64_t{37}; }},
};

spec::Case state_space_case(const char* type, const StateSpaceOption& first, const StateSpaceOption* second) {
  spec::Case c;
  c.types["E"] = type, c.types["Et"] = type, c.types["Ea"] = "f32";
  for (const auto& [dim, size] : {std::pair{"B", 2}, {"T", 37}, {"H", 4}, {"G", 2}, {"N", 32}, {"P", 48}}) c.dims[dim] = std::int64_t{size};
  c.name = first.name;
  first.apply(c);
  if (second) second->apply(c), c.name += std::string(" and ") + second->name;
  return c;
}

}  // namespace

spec::Case vary_state_space(const spec::Case& c, Rng& rng) {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  varied.dims.clear();
  static constexpr std::int64_t shares[] = {1, 1, 2, 3, 4, 4, 6, 6};
  const std::int64_t by = rng.pick(shares);
  varied.dims["G"] = by == 6 ? 1 : rng.between(1, 2);
  varied.dims["H"] = std::get<std::int64_t>(varied.dims["G"]) * by;
  varied.dims["T"] = rng.chance(0.2) ? rng.between(1, 8) : rng.nasty_size(0, 200);
  if (gives(c, "cum_seqlens"))
    varied.dims["S"] = rng.nasty_size(0, 5);
  else
    varied.dims["B"] = rng.chance(0.05) ? 0 : rng.between(1, 3);
  const std::int64_t states = std::get<std::int64_t>(c.dims.at("N"));
  const bool whole = rng.chance(0.5);  // sizes that kernels on matrix instructions take
  varied.dims["N"] = whole ? states : other_states(states, rng);
  varied.dims["P"] = whole ? 8 * rng.between(1, 18) : rng.nasty_size(1, 130);
  return varied;
}

spec::Case random_state_space(Rng& rng) {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  spec::Case c;
  c.name = "random";
  for (const char* variable : {"E", "Et", "Ea"}) c.types[variable] = rng.pick(types);
  for (const auto& [tensor, variable] : {std::pair{"D", "Ed"}, {"dt_bias", "Eb"}, {"initial_state", ""}, {"cum_seqlens", ""}}) {
    if (!rng.chance(0.5)) continue;
    c.given.emplace_back(tensor);
    if (*variable) c.types[variable] = rng.pick(types);
  }
  if (rng.chance(0.5)) c.attributes["dt_softplus"] = true;
  c.dims["N"] = rng.chance(0.1) ? 200 : rng.nasty_size(1, 130);
  return vary_state_space(c, rng);
}

std::vector<OptionCase> state_space_option_cases() {
  std::vector<OptionCase> cases;
  for (const char* type : {"f32", "bf16"})
    for (const StateSpaceOption& first : state_space_options) {
      cases.push_back({state_space_case(type, first, nullptr), true});
      for (const StateSpaceOption* second = &first + 1; second != std::end(state_space_options); ++second)
        cases.push_back({state_space_case(type, first, second), false});
    }
  return cases;
}

}  // namespace ejk::reference
