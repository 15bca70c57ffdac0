// Cases and laws of ragged_page_attention, both versions.
#include <algorithm>
#include <numeric>

#include "reference/kernels/ragged_pages.hpp"

namespace ejk::reference {
namespace {

constexpr const char* ragged_types[] = {"f32", "f16", "bf16"};

std::int64_t ragged_size(const spec::Case& c, const char* dim) {
  const auto found = c.dims.find(dim);
  return found == c.dims.end() ? 0 : std::get<std::int64_t>(found->second);
}

bool quantised(const spec::Case& c) { return c.types.at("C") == "i8" || c.types.at("C") == "f8_e4m3"; }

void vary_ragged_attributes(spec::Case& c, Rng& rng) {
  for (auto& [name, value] : c.attributes) {
    if (name == "window_left") {
      if (value != spec::Value{std::int64_t{-1}}) value = rng.chance(0.1) ? far_away(rng) : rng.nasty_size(0, 150);
    } else if (name == "softmax_scale") {
      // Numbers in a quantised cache are large: without a scale they would leave one key all the weight.
      value = rng.chance(0.1) ? 0.0 : (0.02 + 0.3 * rng.uniform()) / (quantised(c) && !names(c, "k_scale") ? 24 : 1);
    } else if (name == "logits_soft_cap") {
      if (std::get<double>(value) > 0) value = rng.chance(0.1) ? 1e6 : 0.5 + 30 * rng.uniform();
    }
  }
}

std::int64_t ragged_group(const spec::Case& c, Rng& rng) {
  static constexpr std::int64_t groups[] = {1, 1, 2, 3, 4, 5, 8, 16};
  if (const std::int64_t rows = ragged_size(c, "Hkv2"); rows > 0 && rng.chance(0.3)) return ragged_size(c, "Hq") / (rows / 2);
  return rng.pick(groups);
}

}  // namespace

spec::Case vary_ragged(const spec::Case& c, bool v3, Rng& rng) {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  varied.fill.clear();
  static constexpr std::int64_t sizes[] = {1, 3, 8, 8, 16, 16, 16, 17, 32, 64, 128};
  const std::int64_t kv_heads = rng.chance(0.03) ? 0 : rng.between(1, 3), own = ragged_size(c, "ps");
  const std::int64_t page =
      own > 0 && rng.chance(0.5) ? own : rng.pick(sizes);  // often the case's own, since page sizes have images of their own
  const std::int64_t columns = rng.chance(0.04) ? 0 : rng.between(1, std::max<std::int64_t>(1, 320 / page));
  const std::int64_t sequences = rng.chance(0.04) ? 0 : rng.between(1, 5);
  varied.dims = {{"D", c.dims.at("D")}};
  varied.dims["Hkv2"] = 2 * kv_heads;
  varied.dims["Hq"] = kv_heads * ragged_group(c, rng);
  varied.dims["N"] = sequences;
  varied.dims["T"] = rng.chance(0.3) ? sequences : rng.nasty_size(0, 100);
  varied.dims["ps"] = page;
  varied.dims["max_pages"] = columns;
  // v3 writes to them: there are enough for all. v2 may have too few, which are shared then.
  varied.dims["P"] = v3 ? sequences * columns + rng.between(0, 2) : rng.chance(0.03) ? 0 : rng.between(1, 2 + 3 * columns);
  if (names(c, "softmax_aux")) varied.dims["A"] = rng.chance(0.3) ? varied.dims["Hq"] : spec::Value{rng.between(0, 4)};
  if (names(c, "tree_mask")) varied.dims["L"] = rng.chance(0.8) ? varied.dims["T"] : spec::Value{rng.nasty_size(0, 130)};
  if (ragged_size(varied, "P") == 0) varied.fill["context_lens"] = "all 0";
  if (rng.chance(0.6)) varied.fill[v3 ? "distribution" : "num_seqs"] = "all N";
  vary_ragged_attributes(varied, rng);
  return varied;
}

spec::Case random_ragged(bool v3, Rng& rng) {
  static constexpr const char* caches[] = {"", "", "i8", "f8_e4m3"};
  spec::Case c;
  c.name = "random";
  const std::string cached = rng.pick(caches);
  c.types["E"] = rng.pick(ragged_types);
  c.types["C"] = cached.empty() ? c.types["E"] : cached;
  c.dims["D"] = rng.chance(0.3) ? rng.nasty_size(1, 257) : 8 * rng.between(2, 32);
  const auto give = [&](const char* tensor) { c.given.push_back(tensor); };
  const bool tree = rng.chance(0.2);
  if (rng.chance(0.3)) give("softmax_aux"), c.types["Es"] = rng.pick(ragged_types);
  if (v3 && rng.chance(cached.empty() ? 0.1 : 0.4)) give("q_scale");
  if (rng.chance(cached.empty() ? 0.1 : 0.8)) give("k_scale");
  if (rng.chance(cached.empty() ? 0.1 : 0.8)) give("v_scale");
  if (tree) give("tree_mask");
  if (!v3 && rng.chance(0.7)) give("lse");
  if (!tree && rng.chance(0.3)) c.attributes["window_left"] = std::int64_t{0};
  if (rng.chance(0.3)) c.attributes["logits_soft_cap"] = 1.0;
  if (rng.chance(0.3) || (!cached.empty() && !names(c, "k_scale"))) c.attributes["softmax_scale"] = 0.1;
  spec::Case varied = vary_ragged(c, v3, rng);
  if (names(c, "softmax_aux") && rng.chance(0.25)) varied.fill["softmax_aux"] = "hidden";
  return varied;
}

// ---- options ----

namespace {

struct RaggedOption {
  const char* name;
  void (*apply)(spec::Case&);
};

const RaggedOption ragged_options[] = {
    {"window_left", [](spec::Case& c) { c.attributes["window_left"] = std::int64_t{20}; }},
    {"softmax_scale", [](spec::Case& c) { c.attributes["softmax_scale"] = 0.3; }},
    {"logits_soft_cap", [](spec::Case& c) { c.attributes["logits_soft_cap"] = 2.0; }},
    {"softmax_aux", [](spec::Case& c) { c.given.push_back("softmax_aux"), c.types["Es"] = "f32", c.dims["A"] = std::int64_t{2}; }},
    {"tree_mask", [](spec::Case& c) { c.given.push_back("tree_mask"), c.dims["L"] = std::int64_t{40}; }},
    {"one_head_a_kv_head", [](spec::Case& c) { c.dims["Hq"] = std::int64_t{2}; }},
    {"one_token_each", [](spec::Case& c) { c.fill["query_start_loc"] = "starts 3*1"; }},
    {"large_pages", [](spec::Case& c) { c.dims["ps"] = std::int64_t{64}, c.dims["max_pages"] = std::int64_t{2}; }},
    {"i8", [](spec::Case& c) { c.types["C"] = "i8", c.given.push_back("k_scale"), c.given.push_back("v_scale"); }},
    {"f8_e4m3", [](spec::Case& c) { c.types["C"] = "f8_e4m3", c.given.push_back("k_scale"), c.given.push_back("v_scale"); }},
};

spec::Case ragged_with(const char* type, bool v3, const RaggedOption& first, const RaggedOption* second) {
  spec::Case c;
  c.name = first.name;
  c.types["E"] = c.types["C"] = type;
  for (const auto& [dim, size] : {std::pair{"T", 40}, {"N", 3}, {"Hq", 4}, {"Hkv2", 4}, {"D", 64}, {"P", 30}, {"ps", 16}, {"max_pages", 9}})
    c.dims[dim] = std::int64_t{size};
  if (!v3) c.given.push_back("lse");
  first.apply(c);
  if (second) second->apply(c), c.name += std::string(" and ") + second->name;
  return c;
}

bool excludes(const RaggedOption& a, const RaggedOption& b) {
  const auto are = [&](std::string_view x, std::string_view y) { return (a.name == x && b.name == y) || (a.name == y && b.name == x); };
  return are("window_left", "tree_mask") || are("i8", "f8_e4m3");
}

}  // namespace

std::vector<OptionCase> ragged_option_cases(bool v3) {
  std::vector<OptionCase> cases;
  for (const char* type : {"f32", "bf16"})
    for (const RaggedOption& first : ragged_options) {
      cases.push_back({ragged_with(type, v3, first, nullptr), true});
      for (const RaggedOption* second = &first + 1; second != std::end(ragged_options); ++second)
        if (!excludes(first, *second)) cases.push_back({ragged_with(type, v3, first, second), false});
      if (!v3 || (first.name != std::string_view("i8") && first.name != std::string_view("f8_e4m3"))) continue;
      cases.push_back({cases.back().c, true});
      cases.back().c = ragged_with(type, v3, first, nullptr);
      cases.back().c.name += " and q_scale", cases.back().c.given.push_back("q_scale");
    }
  return cases;
}

void spoil_unused_sequences(Call& call, const char* count) {
  const std::int64_t used = RaggedBatch(call, count).sequences(), all = call.dim("N"), columns = call.dim("max_pages");
  constexpr double far = 2147483647;
  HostTensor &lengths = call.input("context_lens"), &starts = call.input("query_start_loc"), &table = call.input("block_tables");
  for (std::int64_t n = used; n < all; ++n) {
    if (!lengths.broadcast()) lengths.set(n, n % 2 ? far : -far);
    if (!starts.broadcast()) starts.set(n + 1, n % 2 ? -far : far);
    for (std::int64_t column = 0; column < columns && !table.broadcast(); ++column)
      table.set(n * columns + column, column % 2 ? far : -far);
  }
}

// ---- laws ----

namespace {

bool has_ragged_keys(const Call& call, const char* count) {
  const RaggedBatch batch(call, count);
  bool some = false;
  for (std::int64_t n = 0; n < batch.sequences(); ++n) some = some || (batch.keys(n) > 0 && batch.queries(n) > 0);
  return some && call.dim("Hkv") > 0 && call.dim("D") > 0;
}

// Keys from here on may be seen by some query.
std::int64_t first_seen(const Call& call, const RaggedBatch& batch, std::int64_t n) {
  const std::int64_t left = call.integer("window_left");
  if (left < 0 || left >= batch.keys(n)) return 0;
  return std::max<std::int64_t>(0, (batch.queries(n) > 0 ? batch.old_keys(n) : batch.keys(n) - 1) - left);
}

// What no query sees becomes NaN (the largest number, where there is no NaN), and table entries of pages that none sees go out of range.
std::string unseen_slots(const char* count, const Call& call, const Execute& execute) {
  const Values expected = run_copy(call, execute);
  const RaggedBatch batch(call, count);
  Call changed = call;
  HostTensor &table = changed.input("block_tables"), &pages = changed.input("kv_pages");
  std::vector<bool> seen(at(batch.slots()), false);
  const std::int64_t columns = call.dim("max_pages"), page = call.dim("ps"), slot = call.dim("Hkv2") * call.dim("D");
  for (std::int64_t n = 0; n < batch.sequences(); ++n) {
    for (std::int64_t key = 0; key < batch.keys(n); ++key)
      for (std::int64_t i = 0; i < batch.queries(n); ++i)
        if (batch.sees(n, i, key)) seen[at(batch.slot(n, key))] = true;
    for (std::int64_t column = 0; column < columns; ++column)
      if ((column + 1) * page <= first_seen(call, batch, n) || column * page >= batch.keys(n))
        table.set(n * columns + column, column % 2 ? 1e9 : -1e9);
  }
  for (std::int64_t i = 0; i < pages.elements(); ++i)
    if (!seen[at(i / slot)]) pages.set(i, is_floating(pages.type()) ? nan : 127);
  Values found = run_copy(changed, execute);
  if (found.contains("kv_pages")) found["kv_pages"] = expected.at("kv_pages");  // the slots themselves differ
  return disagreement(call, found, expected);
}

// Pages in another order, and the table with them: bit for bit the same.
std::string moved_pages(const Call& call, const Execute& execute, Rng& rng) {
  std::vector<std::int64_t> order(at(call.dim("P")));
  std::iota(order.begin(), order.end(), 0);
  rng.shuffle(order);
  Call changed = call;
  const HostTensor& from = call.input("kv_pages");
  HostTensor &to = changed.input("kv_pages"), &table = changed.input("block_tables");
  const std::int64_t page = order.empty() ? 0 : from.elements() / call.dim("P");
  for (std::int64_t i = 0; i < from.elements(); ++i) to.set(order[at(i / page)] * page + i % page, from.at(i));
  for (std::int64_t i = 0; i < table.elements(); ++i)
    if (const auto entry = static_cast<std::int64_t>(table.at(i)); entry >= 0 && entry < call.dim("P"))
      table.set(i, static_cast<double>(order[at(entry)]));
  const Values found = run_copy(changed, execute), expected = run_copy(call, execute);
  for (const char* name : {"out", "lse"})
    for (std::size_t i = 0; expected.contains(name) && i < expected.at(name).size(); ++i)
      if (const double a = found.at(name)[i], b = expected.at(name)[i]; a != b && !(std::isnan(a) && std::isnan(b)))
        return std::string(name) + " " + std::to_string(i) + " changed with the places of the pages";
  return "";
}

std::string with_other_pages(const KernelReference& reference, const Call& call, const Execute& execute,
                             const std::function<void(HostTensor&)>& change) {
  Call changed = call;
  change(changed.input("kv_pages"));
  return first_failure(verify_call(reference, changed, execute));
}

// Keys that grow with the position, so that the largest score comes last and is far above the first ones; or fall.
void grow_keys(const Call& call, const char* count, HostTensor& pages, Rng& rng) {
  const RaggedBatch batch(call, count);
  const HostTensor& from = call.input("kv_pages");
  const bool falling = rng.chance(0.5);
  for (std::int64_t n = 0; n < batch.sequences(); ++n)
    for (std::int64_t key = 0; key < batch.keys(n); ++key) {
      const double place = static_cast<double>(key) / static_cast<double>(batch.keys(n));
      const std::int64_t first = batch.key_at(batch.slot(n, key), rng.between(0, call.dim("Hkv") - 1));
      for (std::int64_t d = 0; d < call.dim("D"); ++d)
        pages.set(first + d, from.at(first + d) * (0.1 + 12.0 * (falling ? 1 - place : place)));
    }
}

// The first sequences alone give what they gave, and all other rows are zeros.
std::string fewer_sequences(const char* count, const KernelReference& reference, const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& counts = changed.input(count);
  counts.set(counts.elements() - 1, static_cast<double>(rng.between(0, RaggedBatch(call, count).sequences())));
  return first_failure(verify_call(reference, changed, execute));
}

}  // namespace

std::vector<Property> ragged_properties(const char* count, const KernelReference& reference) {
  const auto usual = [count](const Call& call) { return writable(call) && has_ragged_keys(call, count); };
  const auto floating = [=](const Call& call) { return usual(call) && size_of(call.input("kv_pages").type()) > 1; };
  return {
      repeats_bit_for_bit([](const Call&) { return true; }),
      {"slots that no query sees do not matter, even NaN, and their pages' table entries may be anything", usual,
       [count](const Call& call, const Execute& execute, Rng&) { return unseen_slots(count, call, execute); }},
      {"where a page lies does not matter", writable, moved_pages},
      {"a NaN in the pages reaches the queries that see it and no other", floating,
       [&reference](const Call& call, const Execute& execute, Rng& rng) {
         return with_other_pages(reference, call, execute,
                                 [&](HostTensor& pages) { pages.set(rng.between(0, pages.elements() - 1), nan); });
       }},
      {"scores may grow or fall along the keys", [=](const Call& call) { return floating(call) && call.floating("logits_soft_cap") == 0; },
       [count, &reference](const Call& call, const Execute& execute, Rng& rng) {
         return with_other_pages(reference, call, execute, [&](HostTensor& pages) { grow_keys(call, count, pages, rng); });
       }},
      {"fewer sequences leave the others as they are", writable,
       [count, &reference](const Call& call, const Execute& execute, Rng& rng) {
         return fewer_sequences(count, reference, call, execute, rng);
       }},
  };
}

}  // namespace ejk::reference
