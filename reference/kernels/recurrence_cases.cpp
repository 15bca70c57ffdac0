// Cases of linear recurrences: other sizes, any legal call, every option and every two.
#include <algorithm>

#include "reference/kernels/recurrence.hpp"

namespace ejk::reference {
namespace {

bool asks(const spec::Case& c, const char* tensor) { return std::find(c.given.begin(), c.given.end(), tensor) != c.given.end(); }

std::int64_t size_in(const spec::Case& c, const char* dim) { return std::get<std::int64_t>(c.dims.at(dim)); }

// GPU images are made for key counts up to a power of two: another count of the same one.
std::int64_t other_keys(std::int64_t keys, Rng& rng) {
  std::int64_t most = 8;
  while (most < keys) most *= 2;
  return most == 8 ? rng.between(1, 8) : rng.between(most / 2 + 1, most);
}

// Small enough to be called as it is: so variants that ask much of sizes have calls of their own cases.
bool is_small(const spec::Case& c) {
  if (!c.dims.contains("T")) return false;  // of random calls no sizes are drawn yet
  const std::int64_t sequences = c.dims.contains("B") ? size_in(c, "B") : 1;
  return sequences * size_in(c, "T") * size_in(c, "Hv") * size_in(c, "K") * size_in(c, "V") <= 16'000'000;
}

void set_heads(spec::Case& c, Rng& rng) {
  static constexpr std::int64_t fewer[] = {1, 1, 2, 3};
  const std::int64_t heads = rng.chance(0.5) ? 6 : rng.between(1, 3);
  for (const char* dim : {"Hq", "Hk", "Hv"}) {
    std::int64_t by = rng.pick(fewer);
    if (heads % by != 0) by = heads;
    c.dims[dim] = heads / by;
  }
  static constexpr const char* names[] = {"Hq", "Hk", "Hv"};
  c.dims[rng.pick(names)] = heads;
}

void set_tokens(spec::Case& c, bool packed, Rng& rng) {
  c.dims["T"] = rng.chance(0.2) ? rng.between(1, 8) : rng.nasty_size(0, 100);
  if (packed)
    c.dims["N"] = rng.nasty_size(0, 5);
  else
    c.dims["B"] = rng.chance(0.05) ? 0 : rng.between(1, 3);
}

void give_tensors(spec::Case& c, std::initializer_list<const char*> tensors) {
  c.given.insert(c.given.end(), tensors.begin(), tensors.end());
}

struct RecurrentOption {
  const char* name;
  void (*apply)(spec::Case&);
};

const RecurrentOption recurrent_options[] = {
    {"g", [](spec::Case& c) { give_tensors(c, {"g"}), c.types["Eg"] = "f32"; }},
    {"g_gamma", [](spec::Case& c) { give_tensors(c, {"g_gamma"}), c.types["Em"] = "f32"; }},
    {"gk", [](spec::Case& c) { give_tensors(c, {"gk"}), c.types["Ek"] = "f32"; }},
    {"gv", [](spec::Case& c) { give_tensors(c, {"gv"}), c.types["Ev"] = "f32"; }},
    {"beta", [](spec::Case& c) { give_tensors(c, {"beta"}), c.types["Eb"] = "f32"; }},
    {"initial_state", [](spec::Case& c) { give_tensors(c, {"initial_state"}); }},
    {"l2_norm", [](spec::Case& c) { c.attributes["l2_norm"] = true; }},
    {"reverse", [](spec::Case& c) { c.attributes["reverse"] = true; }},
    {"num_layers", [](spec::Case& c) { c.attributes["num_layers"] = std::int64_t{12}, c.attributes["layer_idx"] = std::int64_t{3}; }},
    {"softmax_scale", [](spec::Case& c) { c.attributes["softmax_scale"] = 0.3; }},
    {"packed",
     [](spec::Case& c) {
       c.dims.erase("B"), c.dims["N"] = std::int64_t{4}, c.dims["T"] = std::int64_t{61}, give_tensors(c, {"cum_seqlens"});
     }},
    {"one_token", [](spec::Case& c) { c.dims["T"] = std::int64_t{1}; }},
    {"fewer_q_heads", [](spec::Case& c) { c.dims["Hq"] = std::int64_t{2}; }},
    {"fewer_k_heads", [](spec::Case& c) { c.dims["Hk"] = std::int64_t{1}; }},
    {"fewer_v_heads", [](spec::Case& c) { c.dims["Hv"] = std::int64_t{2}; }},
    {"more_values", [](spec::Case& c) { c.dims["V"] = std::int64_t{96}; }},
    {"more_keys", [](spec::Case& c) { c.dims["K"] = std::int64_t{96}; }},
    {"odd_sizes", [](spec::Case& c) { c.dims["K"] = std::int64_t{19}, c.dims["V"] = std::int64_t{37}; }},
};

spec::Case recurrent_case(const char* type, const RecurrentOption& first, const RecurrentOption* second) {
  spec::Case c;
  c.types["E"] = type;
  for (const auto& [dim, size] : {std::pair{"B", 2}, {"T", 37}, {"Hq", 4}, {"Hk", 4}, {"Hv", 4}, {"K", 32}, {"V", 48}})
    c.dims[dim] = std::int64_t{size};
  c.name = first.name;
  first.apply(c);
  if (second) second->apply(c), c.name += std::string(" and ") + second->name;
  return c;
}

}  // namespace

spec::Case vary_recurrent(const spec::Case& c, Rng& rng) {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  if (rng.chance(0.25) && is_small(c)) return varied;
  varied.dims.clear();
  set_heads(varied, rng);
  set_tokens(varied, asks(c, "cum_seqlens"), rng);
  const bool whole = rng.chance(0.5);  // sizes that kernels on matrix instructions take
  varied.dims["K"] = whole ? size_in(c, "K") : other_keys(size_in(c, "K"), rng);
  varied.dims["V"] = whole ? 8 * rng.between(1, 18) : rng.nasty_size(1, 130);
  if (varied.attributes.contains("softmax_scale")) varied.attributes["softmax_scale"] = rng.chance(0.1) ? 0.0 : 0.02 + rng.uniform();
  return varied;
}

spec::Case random_recurrent(Rng& rng) {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  spec::Case c;
  c.name = "random";
  c.types["E"] = rng.pick(types);
  const auto maybe = [&](const char* tensor, const char* variable, double chance) {
    if (!rng.chance(chance)) return;
    give_tensors(c, {tensor});
    if (*variable) c.types[variable] = rng.pick(types);
  };
  maybe("g", "Eg", 0.4), maybe("g_gamma", "Em", 0.3), maybe("gk", "Ek", 0.4), maybe("gv", "Ev", 0.3), maybe("beta", "Eb", 0.5);
  maybe("initial_state", "", 0.5), maybe("cum_seqlens", "", 0.3);
  for (const char* attribute : {"l2_norm", "reverse"})
    if (rng.chance(0.3)) c.attributes[attribute] = true;
  if (rng.chance(0.3)) c.attributes["softmax_scale"] = 0.5;
  if (rng.chance(0.2)) c.attributes["num_layers"] = std::int64_t{7}, c.attributes["layer_idx"] = rng.between(0, 7);
  c.dims["K"] = rng.chance(0.1) ? 200 : rng.nasty_size(1, 130);
  return vary_recurrent(c, rng);
}

spec::Case narrowed_recurrent(const std::vector<std::string>& tensors, const std::vector<std::string>& attributes, Rng& rng) {
  spec::Case c = random_recurrent(rng);
  const auto is_in = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  static constexpr std::pair<const char*, const char*> types[] = {
      {"g", "Eg"}, {"g_gamma", "Em"}, {"gk", "Ek"}, {"gv", "Ev"}, {"beta", "Eb"}};
  std::erase_if(c.given, [&](const std::string& name) { return !is_in(tensors, name); });
  std::erase_if(c.attributes, [&](const auto& attribute) { return !is_in(attributes, attribute.first); });
  for (const auto& [tensor, variable] : types)
    if (!is_in(c.given, tensor)) c.types.erase(variable);
  return c;
}

std::vector<OptionCase> recurrent_option_cases() {
  std::vector<OptionCase> cases;
  for (const char* type : {"f32", "bf16"})
    for (const RecurrentOption& first : recurrent_options) {
      cases.push_back({recurrent_case(type, first, nullptr), true});
      for (const RecurrentOption* second = &first + 1; second != std::end(recurrent_options); ++second)
        cases.push_back({recurrent_case(type, first, second), false});
    }
  return cases;
}

}  // namespace ejk::reference
