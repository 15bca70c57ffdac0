// Calls of mla_decode that tests draw, and those of each option and every two.
#include <algorithm>

#include "reference/kernels/mla_decode.hpp"

namespace ejk::reference::mla_decode {
namespace {

const char* form_of(const spec::Case& c) { return names(c, "indices") ? "sparse" : names(c, "cache") ? "paged" : "contiguous"; }
std::int64_t size_in(const spec::Case& c, const char* dim) { return std::get<std::int64_t>(c.dims.at(dim)); }

void vary_sizes(spec::Case& c, Rng& rng) {
  static constexpr std::int64_t heads[] = {1, 2, 3, 5, 8, 16, 16, 17, 24, 40, 128}, pages[] = {1, 2, 3, 5, 8, 16, 16, 17, 32, 64};
  const std::string form = form_of(c);
  c.dims["N"] = rng.chance(0.04) ? 0 : rng.between(1, 4);
  c.dims["Sq"] = rng.chance(0.03) ? 0 : rng.chance(0.5) ? 1 : rng.between(2, 8);
  c.dims["H"] = rng.chance(0.03) ? 0 : rng.pick(heads);
  if (size_in(c, "H") * size_in(c, "Sq") > 128) c.dims["Sq"] = std::int64_t{2};
  if (form == "contiguous") {
    c.dims["Sk"] = rng.chance(0.04) ? 0 : rng.chance(0.2) ? rng.between(150, 400) : rng.nasty_size(1, 150);
  } else {
    const std::int64_t page = rng.pick(pages), columns = rng.chance(0.04) ? 0 : rng.between(1, std::max<std::int64_t>(1, 250 / page));
    c.dims["ps"] = page;
    c.dims["P"] = rng.chance(0.03) ? 0 : rng.between(1, 2 + 3 * columns);  // often too few for all: then sequences share
    if (names(c, "block_tables")) c.dims["max_pages"] = columns;
    if (form == "sparse") c.dims["M"] = rng.chance(0.3) ? columns * page : rng.nasty_size(0, 200);
  }
}

struct Option {
  const char* name;
  void (*apply)(spec::Case&);
};

void make_sparse(spec::Case& c) { c.given.push_back("indices"), c.dims["M"] = std::int64_t{70}; }
void make_contiguous(spec::Case& c) {
  c.given = {"kv_latent", "k_rope", "context_lens", "lse"};
  for (const char* dim : {"P", "ps", "max_pages"}) c.dims.erase(dim);
  c.dims["Sk"] = std::int64_t{90};
}

const Option options[] = {
    {"contiguous", make_contiguous},
    {"indices", make_sparse},
    {"bytes", [](spec::Case& c) { c.types["C"] = "u8"; }},
    {"three_queries", [](spec::Case& c) { c.dims["Sq"] = std::int64_t{3}; }},
    {"forty_heads", [](spec::Case& c) { c.dims["H"] = std::int64_t{40}; }},
    {"logits_soft_cap", [](spec::Case& c) { c.attributes["logits_soft_cap"] = 2.0; }},
    {"large_pages", [](spec::Case& c) { c.dims["ps"] = std::int64_t{64}, c.dims["max_pages"] = std::int64_t{2}; }},
};

bool excludes(const Option& a, const Option& b) {
  const std::string_view first = a.name, second = b.name;
  return first == "contiguous" && (second == "indices" || second == "bytes" || second == "large_pages");
}

spec::Case with(const char* type, const Option& first, const Option* second) {
  spec::Case c;
  c.name = first.name;
  c.types["E"] = c.types["C"] = type;
  for (const auto& [dim, size] : {std::pair{"N", 2}, {"Sq", 1}, {"H", 4}, {"R", 128}, {"Dr", 16}, {"P", 20}, {"ps", 16}, {"max_pages", 6}})
    c.dims[dim] = std::int64_t{size};
  c.given = {"cache", "context_lens", "block_tables", "lse"};
  c.attributes["softmax_scale"] = 0.1;
  first.apply(c);
  if (second) second->apply(c), c.name += std::string(" and ") + second->name;
  return c;
}

}  // namespace

spec::Case MlaDecode::vary(const spec::Case& c, Rng& rng) const {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  varied.fill.clear();
  varied.dims = {{"R", c.dims.at("R")}, {"Dr", c.dims.at("Dr")}};
  vary_sizes(varied, rng);
  vary_decode_attributes(varied, rng);
  varied.attributes["softmax_scale"] = rng.chance(0.1) ? 0.0 : 0.02 + 0.1 * rng.uniform();
  return varied;
}

spec::Case MlaDecode::random_case(Rng& rng) const {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  spec::Case c;
  c.name = "random";
  c.types["E"] = rng.pick(types);
  const double form = rng.uniform();
  const bool bytes = form > 0.3 && rng.chance(0.35);
  c.types["C"] = bytes ? "u8" : c.types["E"];
  const auto give = [&](const char* tensor) { c.given.push_back(tensor); };
  if (form < 0.3) {
    give("kv_latent"), give("k_rope");
    if (rng.chance(0.7)) give("context_lens");
  } else {
    give("cache");
    if (form > 0.65) give("indices");
    if (form <= 0.65 || rng.chance(0.5)) give("context_lens"), give("block_tables");
  }
  if (rng.chance(0.7)) give("lse");
  c.dims["R"] = bytes ? block * rng.between(1, 4) : rng.chance(0.3) ? rng.nasty_size(1, 130) : 16 * rng.between(1, 32);
  c.dims["Dr"] = rng.chance(0.3) ? rng.nasty_size(0, 70) : 8 * rng.between(1, 8);
  if (rng.chance(0.3)) c.dims["R"] = std::int64_t{512}, c.dims["Dr"] = std::int64_t{64};
  if (rng.chance(0.3)) c.attributes["logits_soft_cap"] = 1.0;
  return vary(c, rng);
}

std::vector<OptionCase> MlaDecode::option_cases() const {
  std::vector<OptionCase> cases;
  for (const char* type : {"f32", "bf16"})
    for (const Option& first : options) {
      cases.push_back({with(type, first, nullptr), true});
      for (const Option* second = &first + 1; second != std::end(options); ++second)
        if (!excludes(first, *second)) cases.push_back({with(type, first, second), false});
    }
  return cases;
}

}  // namespace ejk::reference::mla_decode
