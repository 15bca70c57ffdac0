// Cases and calls of the attention kernels.
#include "reference/kernels/attention_cases.hpp"

#include <algorithm>
#include <cstdint>

#include "reference/data.hpp"

namespace ejk::reference {

std::int64_t far_away(Rng& rng) {
  static constexpr std::int64_t distances[] = {INT32_MAX - 1,         INT32_MAX, std::int64_t{INT32_MAX} + 1, UINT32_MAX,
                                               std::int64_t{1} << 40, INT64_MAX};
  return rng.pick(distances);
}

namespace {

void vary_attributes(spec::Case& c, Rng& rng) {
  static constexpr double probabilities[] = {1e-6, 0.99, 0.99999};
  static constexpr double caps[] = {0.05, 300, 1e6};  // a smaller one makes much of f32's own error in a score
  for (auto& [name, value] : c.attributes) {
    const bool extreme = rng.chance(0.1);
    if (name == "window_left" || name == "window_right") {
      if (value != spec::Value{std::int64_t{-1}}) value = extreme ? far_away(rng) : rng.nasty_size(0, 150);
    } else if (name == "causal_offset") {
      value = !extreme ? rng.between(-40, 150) : rng.chance(0.5) ? far_away(rng) : -far_away(rng) - 1;
    } else if (name == "dropout_seed") {
      value = static_cast<std::int64_t>(rng.next());
    } else if (name == "softmax_scale") {
      value = extreme ? rng.chance(0.7) ? 0.0 : 1e-30 : 0.02 + 0.5 * rng.uniform();
    } else if (name == "logits_soft_cap" || name == "dropout_prob") {
      const double* number = std::get_if<double>(&value);
      if (!number || *number <= 0) continue;
      if (name == "dropout_prob")
        value = extreme ? rng.pick(probabilities) : 0.02 + 0.9 * rng.uniform();
      else
        value = extreme ? rng.pick(caps) : (*number > 50 ? 60 : 0.5) + 30 * rng.uniform();  // above 50 some variants have other code
    }
  }
}

}  // namespace

spec::Case vary_attention(const spec::Case& c, Rng& rng) {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  varied.fill.clear();
  varied.dims = {{"D", c.dims.at("D")}, {"Dv", c.dims.at("Dv")}};
  static constexpr std::int64_t groups[] = {1, 1, 2, 3, 4, 8};
  const std::int64_t kv_heads = rng.chance(0.03) ? 0 : rng.between(1, 3);
  varied.dims["Hkv"] = kv_heads;
  varied.dims["Hq"] = kv_heads * rng.pick(groups);
  if (names(c, "cum_seqlens_q")) {
    varied.dims["N"] = rng.nasty_size(0, 5);
    varied.dims["Tq"] = rng.nasty_size(0, 257);
    varied.dims["Tk"] = rng.nasty_size(0, 257);
  } else {
    varied.dims["B"] = rng.chance(0.03) ? 0 : rng.between(1, 3);
    varied.dims["Sq"] = rng.nasty_size(0, 191);
    varied.dims["Sk"] = rng.nasty_size(0, 257);
  }
  if (names(c, "softmax_aux")) varied.dims["A"] = rng.chance(0.3) ? varied.dims["Hq"] : spec::Value{rng.between(0, 4)};
  vary_attributes(varied, rng);
  return varied;
}

constexpr std::int64_t block_sizes[] = {16, 16, 32, 48, 64, 80, 128, 256};

void add_blocks(spec::Case& c, Rng& rng) {
  for (const char* name : {"block_q", "block_k"}) c.attributes[name] = rng.pick(block_sizes);
  if (rng.chance(0.3)) c.attributes["chunk_size"] = std::int64_t{0};
  vary_blocks(c, rng);
}

namespace {

// Of a packed call: as many blocks as the longest sequence may have, or any number.
void set_blocks_of_mask(spec::Case& c, const char* dim, const char* tokens, const char* attribute, Rng& rng) {
  const auto found = c.attributes.find(attribute);
  const std::int64_t size = found == c.attributes.end() ? 128 : std::get<std::int64_t>(found->second);
  const std::int64_t all = (std::get<std::int64_t>(c.dims.at(tokens)) + size - 1) / size;
  c.dims[dim] = rng.chance(0.2) ? rng.between(0, all + 1) : all;
}

}  // namespace

void vary_blocks(spec::Case& c, Rng& rng) {
  c.dims["Hm"] = rng.chance(0.5) ? spec::Value{std::int64_t{1}} : c.dims.at("Hq");
  for (const char* name : {"block_q", "block_k"})
    if (rng.chance(0.5)) c.attributes[name] = rng.pick(block_sizes);
  const auto chunk = c.attributes.find("chunk_size");
  if (chunk != c.attributes.end()) chunk->second = rng.chance(0.1) ? far_away(rng) : rng.nasty_size(0, 130);
  if (!names(c, "cum_seqlens_q")) return;
  set_blocks_of_mask(c, "Mq", "Tq", "block_q", rng);
  set_blocks_of_mask(c, "Mk", "Tk", "block_k", rng);
}

spec::Case random_attention(Rng& rng) {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  spec::Case c;
  c.name = "random";
  c.types["E"] = rng.pick(types);
  c.dims["D"] = 8 * rng.between(2, 32);
  c.dims["Dv"] = rng.chance(0.6) ? c.dims["D"] : spec::Value{8 * rng.between(2, 32)};
  const bool packed = rng.chance(0.3);
  const auto give = [&](const char* tensor) { c.given.push_back(tensor); };
  if (packed) give("cum_seqlens_q"), give("cum_seqlens_k");
  if (!packed && rng.chance(0.3)) give("bias"), c.types["Eb"] = rng.pick(types);
  if (!packed && rng.chance(0.3)) give("attention_mask");
  if (!packed && rng.chance(0.3)) give("q_segment_ids"), give("kv_segment_ids");
  if (!packed && rng.chance(0.2)) give("query_seq_lengths");
  if (!packed && rng.chance(0.3)) give("key_value_seq_lengths");
  if (!packed && rng.chance(0.15)) give("weights");
  if (rng.chance(0.3)) give("softmax_aux"), c.types["Es"] = rng.pick(types);
  if (rng.chance(0.7)) give("lse");
  if (rng.chance(0.5)) c.attributes["causal"] = true;
  if (rng.chance(0.3)) c.attributes["causal_offset"] = std::int64_t{0};
  if (rng.chance(0.3)) c.attributes["window_left"] = std::int64_t{0};
  if (rng.chance(0.2)) c.attributes["window_right"] = std::int64_t{0};
  if (rng.chance(0.3)) c.attributes["logits_soft_cap"] = 1.0;
  if (rng.chance(0.3)) c.attributes["softmax_scale"] = 1.0;
  if (rng.chance(0.25)) c.attributes["dropout_prob"] = 0.5, c.attributes["dropout_seed"] = std::int64_t{0};
  for (const char* scores : {"bias", "softmax_aux"})
    if (names(c, scores) && rng.chance(0.25)) c.fill[scores] = "hidden";
  if (names(c, "bias") && rng.chance(0.2)) c.fill["bias"] = "lowest";
  return vary_attention(c, rng);
}

Seen seen_by_any(const Call& call) {
  const std::int64_t kv_heads = call.dim("Hkv"), group = kv_heads > 0 ? call.dim("Hq") / kv_heads : 1;
  const HostTensor* bias_tensor = call.find("bias");
  const Broadcast bias(call, "bias");
  const HostTensor& k = call.input("k");
  Seen seen{std::vector<bool>(at(call.dim("D") > 0 ? k.elements() / call.dim("D") : 0), false),
            std::vector<bool>(at(bias_tensor ? bias_tensor->elements() : 0), false),
            std::vector<bool>(at(call.dim("D") > 0 ? call.input("q").elements() / call.dim("D") : 0), false)};
  each_visible(call, [&](const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) {
    seen.keys[at((s.k_begin + j) * kv_heads + h / group)] = true;
    seen.queries[at((s.q_begin + i) * call.dim("Hq") + h)] = true;
    if (bias.given()) seen.bias[at(bias.index(s.number, h, i, j))] = true;
  });
  return seen;
}

void overwrite_unseen(Call& call) {
  const Seen seen = seen_by_any(call);
  const auto overwrite = [](HostTensor& tensor, const std::vector<bool>& kept, std::int64_t row) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (!kept[at(i / row)]) tensor.set(i, i / row % 2 ? infinity : nan);
  };
  overwrite(call.input("q"), seen.queries, call.dim("D"));
  overwrite(call.input("k"), seen.keys, call.dim("D"));
  overwrite(call.input("v"), seen.keys, call.dim("Dv"));
  if (HostTensor* bias = call.find("bias")) overwrite(*bias, seen.bias, 1);
}

bool takes_lowest_bias(const Call& call) {
  const HostTensor* bias = call.find("bias");
  return bias && bias->type() != DType::f16;
}

void lower_bias(Call& call, Rng& rng) {
  HostTensor& bias = call.input("bias");
  const std::int64_t keys = bias.shape().back();
  for (std::int64_t row = 0; keys > 0 && row < bias.elements() / keys; ++row) {
    const double share = rng.chance(0.3) ? 1 : rng.chance(0.5) ? 0.5 : 0;
    for (std::int64_t j = 0; j < keys; ++j)
      if (rng.uniform() < share) bias.set(row * keys + j, lowest_of(bias.type()));
  }
}

void reorder_keys(const Call& from, Call& to, const char* tensor, std::int64_t inner, const std::vector<std::int64_t>& order) {
  const HostTensor* source = from.find(tensor);
  HostTensor* target = to.find(tensor);
  const auto keys = static_cast<std::int64_t>(order.size());
  for (std::int64_t i = 0; source && i < source->elements(); ++i) {
    const std::int64_t outer = i / (inner * keys), j = i / inner % keys;
    target->set((outer * keys + order[at(j)]) * inner + i % inner, source->at(i));
  }
}

}  // namespace ejk::reference
