// The options of attention as data, and their pairs.
#include "reference/kernels/attention_options.hpp"

#include <tuple>

namespace ejk::reference {
namespace {

void give(spec::Case& c, std::initializer_list<const char*> tensors) { c.given.insert(c.given.end(), tensors.begin(), tensors.end()); }

enum class Form { any, batched, packed };
enum class Kernel { any, flash, blocksparse };

struct Option {
  const char* name;
  void (*apply)(spec::Case&);
  Form form = Form::any;
  Kernel kernel = Kernel::any;
};

const Option options[] = {
    {"causal", [](spec::Case& c) { c.attributes["causal"] = true; }},
    {"causal_offset", [](spec::Case& c) { c.attributes["causal_offset"] = std::int64_t{7}; }},
    {"window_left", [](spec::Case& c) { c.attributes["window_left"] = std::int64_t{20}; }},
    {"window_right", [](spec::Case& c) { c.attributes["window_right"] = std::int64_t{5}; }},
    {"softmax_scale", [](spec::Case& c) { c.attributes["softmax_scale"] = 0.3; }},
    {"logits_soft_cap", [](spec::Case& c) { c.attributes["logits_soft_cap"] = 2.0; }},
    {"dropout", [](spec::Case& c) { c.attributes["dropout_prob"] = 0.3, c.attributes["dropout_seed"] = std::int64_t{-77}; }},
    {"deterministic", [](spec::Case& c) { c.attributes["deterministic"] = true; }},
    {"bias", [](spec::Case& c) { give(c, {"bias"}), c.types["Eb"] = "f32"; }, Form::batched},
    {"attention_mask", [](spec::Case& c) { give(c, {"attention_mask"}); }, Form::batched},
    {"segments",
     [](spec::Case& c) {
       give(c, {"q_segment_ids", "kv_segment_ids"});
     },
     Form::batched},
    {"query_seq_lengths", [](spec::Case& c) { give(c, {"query_seq_lengths"}); }, Form::batched},
    {"key_value_seq_lengths", [](spec::Case& c) { give(c, {"key_value_seq_lengths"}); }, Form::batched},
    {"weights", [](spec::Case& c) { give(c, {"weights"}); }, Form::batched, Kernel::flash},
    {"softmax_aux", [](spec::Case& c) { give(c, {"softmax_aux"}), c.types["Es"] = "f32", c.dims["A"] = std::int64_t{2}; }},
    {"one_head_a_kv_head", [](spec::Case& c) { c.dims["Hkv"] = c.dims["Hq"]; }},
    {"more_queries", [](spec::Case& c) { c.dims["Sq"] = std::int64_t{100}, c.dims["Sk"] = std::int64_t{33}; }, Form::batched},
    {"packed",
     [](spec::Case& c) {
       for (const char* dim : {"B", "Sq", "Sk"}) c.dims.erase(dim);
       c.dims["N"] = std::int64_t{4}, c.dims["Tq"] = std::int64_t{130}, c.dims["Tk"] = std::int64_t{150};
       give(c, {"cum_seqlens_q", "cum_seqlens_k"});
     },
     Form::packed},
    {"chunk_size", [](spec::Case& c) { c.attributes["chunk_size"] = std::int64_t{37}; }, Form::any, Kernel::blocksparse},
    {"one_mask_for_all_heads", [](spec::Case& c) { c.dims["Hm"] = std::int64_t{1}; }, Form::any, Kernel::blocksparse},
    {"blocks_of_16", [](spec::Case& c) { c.attributes["block_q"] = c.attributes["block_k"] = std::int64_t{16}; }, Form::any,
     Kernel::blocksparse},
};

// Alone only.
const Option extremes[] = {
    {"a cap that most scores reach", [](spec::Case& c) { c.attributes["logits_soft_cap"] = 0.05; }},
    {"a cap that no score comes near", [](spec::Case& c) { c.attributes["logits_soft_cap"] = 1e6; }},
};

spec::Case plain_case(const char* type, Kernel kernel) {
  spec::Case c;
  if (kernel == Kernel::blocksparse) {
    c.dims["Hm"] = std::int64_t{4};
    c.attributes["block_q"] = std::int64_t{32}, c.attributes["block_k"] = std::int64_t{48};
  }
  c.types["E"] = type;
  for (const auto& [dim, size] : {std::pair{"B", 2}, {"Sq", 70}, {"Sk", 90}, {"Hq", 4}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}})
    c.dims[dim] = std::int64_t{size};
  return c;
}

// A packed call's mask has blocks for a sequence of all tokens.
void size_mask(spec::Case& c) {
  for (const auto& [blocks, tokens, size] : {std::tuple{"Mq", "Tq", "block_q"}, {"Mk", "Tk", "block_k"}}) {
    const std::int64_t block = std::get<std::int64_t>(c.attributes.at(size));
    c.dims[blocks] = (std::get<std::int64_t>(c.dims.at(tokens)) + block - 1) / block;
  }
}

void want_all_gradients(spec::Case& c) {
  if (names(c, "weights")) give(c, {"dweights"});
  if (names(c, "softmax_aux")) give(c, {"dsoftmax_aux"});
  if (!names(c, "bias")) return;
  give(c, {"dbias"});
  c.dims["Bb"] = c.dims["B"], c.dims["Hb"] = c.dims["Hq"];
}

spec::Case with(const char* type, const Option& first, const Option* second, bool gradient, Kernel kernel) {
  spec::Case c = plain_case(type, kernel);
  c.name = first.name;
  first.apply(c);
  if (second) second->apply(c), c.name += std::string(" and ") + second->name;
  if (kernel == Kernel::blocksparse && names(c, "cum_seqlens_q")) size_mask(c);
  if (gradient)
    want_all_gradients(c);
  else
    give(c, {"lse"});
  return c;
}

bool agree(const Option& a, const Option& b) { return a.form == Form::any || b.form == Form::any || a.form == b.form; }

bool is_of(const Option& option, Kernel kernel) { return option.kernel == Kernel::any || option.kernel == kernel; }

std::vector<OptionCase> cases_of(Kernel kernel, bool gradient) {
  std::vector<OptionCase> cases;
  for (const char* type : {"f32", "bf16"}) {
    for (const Option& first : options) {
      if (!is_of(first, kernel)) continue;
      cases.push_back({with(type, first, nullptr, gradient, kernel), true});
      for (const Option* second = &first + 1; second != std::end(options); ++second)
        if (is_of(*second, kernel) && agree(first, *second)) cases.push_back({with(type, first, second, gradient, kernel), false});
    }
    for (const Option& extreme : extremes) cases.push_back({with(type, extreme, nullptr, gradient, kernel), true});
  }
  return cases;
}

}  // namespace

std::vector<OptionCase> attention_option_cases(bool gradient) { return cases_of(Kernel::flash, gradient); }

std::vector<OptionCase> blocksparse_option_cases(bool gradient) { return cases_of(Kernel::blocksparse, gradient); }

}  // namespace ejk::reference
