// Calls of mla_attention that tests draw, and those of each option and every two.
#include <algorithm>

#include "reference/kernels/mla_attention.hpp"

namespace ejk::reference::mla_attention {
namespace {

std::int64_t size_in(const spec::Case& c, const char* dim) { return std::get<std::int64_t>(c.dims.at(dim)); }

void give(spec::Case& c, std::initializer_list<const char*> tensors) { c.given.insert(c.given.end(), tensors.begin(), tensors.end()); }

struct Option {
  const char* name;
  void (*apply)(spec::Case&);
  bool dense;  // not of the paged form
};

void make_paged(spec::Case& c) {
  for (const char* dim : {"B", "Sq", "Sk"}) c.dims.erase(dim);
  for (const auto& [dim, size] : {std::pair{"N", 2}, {"P", 8}, {"ps", 16}, {"max_pages", 3}}) c.dims[dim] = std::int64_t{size};
  c.given = {"cache", "context_lens", "block_tables", "lse"};
}

const Option options[] = {
    {"paged", make_paged, false},
    {"causal", [](spec::Case& c) { c.attributes["causal"] = true; }, true},
    {"causal_offset", [](spec::Case& c) { c.attributes["causal_offset"] = std::int64_t{7}; }, true},
    {"window_left", [](spec::Case& c) { c.attributes["window_left"] = std::int64_t{20}; }, false},
    {"window_right", [](spec::Case& c) { c.attributes["window_right"] = std::int64_t{5}; }, true},
    {"softmax_scale", [](spec::Case& c) { c.attributes["softmax_scale"] = 0.05; }, false},
    {"logits_soft_cap", [](spec::Case& c) { c.attributes["logits_soft_cap"] = 2.0; }, false},
    {"segments",
     [](spec::Case& c) {
       give(c, {"q_segment_ids", "kv_segment_ids"});
     },
     true},
    {"one_query", [](spec::Case& c) { c.dims["Sq"] = std::int64_t{1}; }, true},
    {"more_queries", [](spec::Case& c) { c.dims["Sq"] = std::int64_t{40}, c.dims["Sk"] = std::int64_t{19}; }, true},
};

spec::Case with(const char* type, const Option& first, const Option* second, bool gradient) {
  spec::Case c;
  c.name = first.name;
  c.types["E"] = type;
  for (const auto& [dim, size] : {std::pair{"B", 1}, {"Sq", 26}, {"Sk", 40}, {"H", 2}, {"Dn", 16}, {"Dr", 16}, {"R", 32}, {"Dv", 16}})
    c.dims[dim] = std::int64_t{size};
  if (!gradient) give(c, {"lse"});
  first.apply(c);
  if (second) second->apply(c), c.name += std::string(" and ") + second->name;
  if (names(c, "cache") || size_in(c, "Sq") == 1) c.dims["R"] = std::int64_t{128};  // as variants by absorbed queries have it
  return c;
}

}  // namespace

void vary_sizes(spec::Case& c, Rng& rng) {
  // Keys to expand: the reference takes R (Dn + Dv) steps for each.
  const std::int64_t cost = size_in(c, "R") * (size_in(c, "Dn") + size_in(c, "Dv"));
  const std::int64_t most_heads = std::clamp<std::int64_t>(55'000'000 / std::max<std::int64_t>(cost * 100, 1), 1, 24);
  static constexpr std::int64_t heads[] = {1, 2, 3, 5, 8, 16, 17, 24};
  const std::int64_t own_heads = c.dims.count("H") ? size_in(c, "H") : 0;
  c.dims["H"] = rng.chance(0.03) ? 0 : std::min(rng.pick(heads), most_heads);
  if (names(c, "cache")) {
    if (own_heads > 24 && rng.chance(0.7))
      c.dims["H"] = own_heads;  // such cases have images of their own; a paged call has one query a sequence
    static constexpr std::int64_t pages[] = {1, 2, 3, 5, 8, 16, 16, 17, 32, 64};
    const std::int64_t page = rng.pick(pages), columns = rng.chance(0.04) ? 0 : rng.between(1, std::max<std::int64_t>(1, 130 / page));
    c.dims["N"] = rng.chance(0.04) ? 0 : rng.between(1, 3);
    c.dims["ps"] = page, c.dims["max_pages"] = columns;
    c.dims["P"] = rng.chance(0.03) ? 0 : rng.between(1, 2 + 3 * columns);  // often too few for all: then sequences share
    return;
  }
  c.dims["B"] = rng.chance(0.03) ? 0 : rng.between(1, 2);
  c.dims["Sq"] = rng.chance(0.3) ? rng.between(1, 3) : rng.nasty_size(0, 100);
  c.dims["Sk"] = rng.nasty_size(0, 130);
}

spec::Case MlaAttention::vary(const spec::Case& c, Rng& rng) const {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  varied.fill.clear();
  varied.dims = {};
  for (const char* dim : {"Dn", "Dr", "R", "Dv", "H"})
    if (const auto own = c.dims.find(dim); own != c.dims.end()) varied.dims[dim] = own->second;
  vary_sizes(varied, rng);
  vary_decode_attributes(varied, rng, 4);
  if (const auto offset = varied.attributes.find("causal_offset"); offset != varied.attributes.end())
    offset->second = rng.chance(0.1) ? (rng.chance(0.5) ? far_away(rng) : -far_away(rng)) : rng.between(-40, 90);
  return varied;
}

spec::Case random_call(Rng& rng, bool dense) {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  spec::Case c;
  c.name = "random";
  c.types["E"] = rng.pick(types);
  c.dims["R"] = rng.chance(0.5) ? rng.nasty_size(1, 130) : 16 * rng.between(1, 16);
  c.dims["Dr"] = rng.chance(0.5) ? rng.nasty_size(0, 70) : 16 * rng.between(1, 4);
  for (const char* dim : {"Dn", "Dv"}) c.dims[dim] = rng.chance(0.5) ? rng.nasty_size(0, 130) : 16 * rng.between(1, 8);
  if (rng.chance(0.2)) c.dims["R"] = std::int64_t{512}, c.dims["Dr"] = std::int64_t{64}, c.dims["Dn"] = c.dims["Dv"] = std::int64_t{128};
  if (!dense && rng.chance(0.35)) {
    give(c, {"cache", "context_lens", "block_tables"});
  } else {
    give(c, {"kv_latent", "k_rope"});
    if (rng.chance(0.3)) give(c, {"q_segment_ids", "kv_segment_ids"});
    if (rng.chance(0.5)) c.attributes["causal"] = true;
    if (rng.chance(0.3)) c.attributes["causal_offset"] = std::int64_t{0};
    if (rng.chance(0.2)) c.attributes["window_right"] = std::int64_t{0};
  }
  if (rng.chance(0.3)) c.attributes["window_left"] = std::int64_t{0};
  if (rng.chance(0.3)) c.attributes["logits_soft_cap"] = 1.0;
  if (rng.chance(0.3)) c.attributes["softmax_scale"] = 1.0;
  if (!dense && rng.chance(0.7)) give(c, {"lse"});
  return MlaAttention().vary(c, rng);
}

std::vector<OptionCase> option_cases_of(bool gradient) {
  std::vector<OptionCase> cases;
  for (const char* type : {"f32", "bf16"})
    for (const Option& first : options) {
      if (gradient && first.apply == make_paged) continue;
      cases.push_back({with(type, first, nullptr, gradient), true});
      for (const Option* second = &first + 1; second != std::end(options); ++second)
        if (first.apply != make_paged || !second->dense) cases.push_back({with(type, first, second, gradient), false});
    }
  for (OptionCase& one : cases)
    if (!names(one.c, "cache")) give(one.c, {"kv_latent", "k_rope"});
  return cases;
}

std::vector<OptionCase> MlaAttention::option_cases() const { return option_cases_of(false); }

}  // namespace ejk::reference::mla_attention
