// page_attention in float64: docs/semantics.md, "page_attention", every option.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/kernels/decode_reference.hpp"

namespace ejk::reference::page_attention {
namespace {

constexpr std::int64_t far = 1'000'000'000;  // no page is that far out

// Where the tokens of a call lie.
class Pages {
 public:
  explicit Pages(const Call& call)
      : lengths_(call.input("context_lens").values()),
        table_(call.input("block_tables").values()),
        columns_(call.dim("max_pages")),
        size_(call.dim("ps")),
        heads_(call.dim("Hkv")),
        dim_(call.dim("D")),
        left_(call.integer("window_left")),
        tokens_first_(call.binding.form == "nhd") {}

  std::int64_t size() const { return size_; }
  std::int64_t length(std::int64_t n) const { return static_cast<std::int64_t>(lengths_[at(n)]); }
  // The keys that the query of sequence n sees: [first, length).
  std::int64_t first(std::int64_t n) const { return left_ < 0 || left_ >= length(n) ? 0 : length(n) - 1 - left_; }
  std::int64_t page(std::int64_t n, std::int64_t key) const { return static_cast<std::int64_t>(table_[at(n * columns_ + key / size_)]); }
  // Row-major index of a slot's first feature.
  std::int64_t slot(std::int64_t page, std::int64_t head, std::int64_t token) const {
    return (tokens_first_ ? (page * size_ + token) * heads_ + head : (page * heads_ + head) * size_ + token) * dim_;
  }
  std::int64_t row(std::int64_t n, std::int64_t head, std::int64_t key) const { return slot(page(n, key), head, key % size_); }

 private:
  std::vector<double> lengths_, table_;
  std::int64_t columns_, size_, heads_, dim_, left_;
  bool tokens_first_;
};

double scale_of(const Call& call, const char* name, std::int64_t head) {
  const HostTensor* scales = call.find(name);
  if (!scales) return 1;
  return scales->at(scales->elements() == 1 ? 0 : head);
}

// One call's numbers, read once.
struct Problem {
  explicit Problem(const Call& call)
      : call(call),
        pages(call),
        heads(call.dim("Hq")),
        group(call.dim("Hkv") > 0 ? heads / call.dim("Hkv") : 1),
        dim(call.dim("D")),
        scale(call.floating("softmax_scale")),
        cap(call.floating("logits_soft_cap")),
        query(call.input("query").values()) {}

  const Call& call;
  Pages pages;
  std::int64_t heads, group, dim;
  double scale, cap;
  std::vector<double> query;
};

// Of query head h of sequence n, for the keys that it sees. Only the caches' elements that it sees are read: the others may be large.
std::vector<double> scores_of(const Problem& p, std::int64_t n, std::int64_t h) {
  const HostTensor& keys = p.call.input("key_cache");
  const double k_scale = scale_of(p.call, "k_scale", h / p.group);
  std::vector<double> scores;
  for (std::int64_t key = p.pages.first(n); key < p.pages.length(n); ++key) {
    double dot = 0;
    for (std::int64_t d = 0; d < p.dim; ++d)
      dot += p.query[at((n * p.heads + h) * p.dim + d)] * k_scale * keys.at(p.pages.row(n, h / p.group, key) + d);
    scores.push_back(capped_score(p.scale * dot, p.cap));
  }
  return scores;
}

// Writes the row of out; returns its LSE.
double attend(const Problem& p, std::int64_t n, std::int64_t h, double* out) {
  const HostTensor& values = p.call.input("value_cache");
  const double v_scale = scale_of(p.call, "v_scale", h / p.group);
  return attend_row(p.call, h, scores_of(p, n, h), [&](std::int64_t i, double weight) {
    const std::int64_t value = p.pages.row(n, h / p.group, p.pages.first(n) + i);
    for (std::int64_t d = 0; d < p.dim; ++d) out[d] += weight * v_scale * values.at(value + d);
  });
}

DecodeRows rows_of(const Problem& p) {
  return {p.call.dim("N") * p.heads, p.dim, [&p](std::int64_t row, double* out) { return attend(p, row / p.heads, row % p.heads, out); },
          [&p](std::int64_t row) { return p.pages.length(row / p.heads) - p.pages.first(row / p.heads); }};
}

class PageAttention : public KernelReference {
 public:
  std::string kernel() const override { return "page_attention"; }

  Values compute(const Call& call) const override {
    const Problem p(call);
    return all_rows(rows_of(p));
  }
  Samples sample(const Call& call, Rng& rng) const override {
    const Problem p(call);
    return some_rows(rows_of(p), rng);
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override;
  spec::Case random_case(Rng& rng) const override;
  std::vector<Property> properties() const override;
};

// ---- cases ----

// Numbers in a quantised cache are large: without a scale they would leave one key all the weight.
double scale_divisor(const spec::Case& c) {
  const bool large = !names(c, "k_scale") && (c.types.at("C") == "i8" || c.types.at("C") == "f8_e4m3");
  return large ? 24 : 1;
}

spec::Case PageAttention::vary(const spec::Case& c, Rng& rng) const {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  varied.fill.clear();
  varied.dims = {{"D", c.dims.at("D")}};
  static constexpr std::int64_t sizes[] = {1, 2, 3, 5, 8, 16, 16, 17, 32, 64};
  const std::int64_t kv_heads = rng.chance(0.03) ? 0 : rng.between(1, 3), size = rng.pick(sizes);
  const std::int64_t columns = rng.chance(0.04) ? 0 : rng.between(1, std::max<std::int64_t>(1, 600 / size));
  varied.dims["Hkv"] = kv_heads;
  varied.dims["Hq"] = kv_heads * random_group(c, rng);
  varied.dims["N"] = rng.chance(0.04) ? 0 : rng.between(1, 5);
  varied.dims["ps"] = size;
  varied.dims["max_pages"] = columns;
  varied.dims["P"] = rng.chance(0.03) ? 0 : rng.between(1, 2 + 3 * columns);  // often too few for all: then sequences share
  if (names(c, "softmax_aux")) varied.dims["A"] = rng.chance(0.3) ? varied.dims["Hq"] : spec::Value{rng.between(0, 4)};
  vary_decode_attributes(varied, rng, scale_divisor(varied));
  return varied;
}

spec::Case PageAttention::random_case(Rng& rng) const {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  static constexpr const char* caches[] = {"", "", "i8", "f8_e4m3"};
  spec::Case c;
  c.name = "random";
  const std::string cached = rng.pick(caches);
  c.types["E"] = rng.pick(types);
  c.types["C"] = cached.empty() ? c.types["E"] : cached;
  c.dims["D"] = rng.chance(0.3) ? rng.nasty_size(1, 257) : 8 * rng.between(2, 32);
  const auto give = [&](const char* tensor) { c.given.push_back(tensor); };
  if (rng.chance(0.3)) give("softmax_aux"), c.types["Es"] = rng.pick(types);
  if (rng.chance(cached.empty() ? 0.1 : 0.8)) give("k_scale");
  if (rng.chance(cached.empty() ? 0.1 : 0.8)) give("v_scale");
  if (rng.chance(0.7)) give("lse");
  if (rng.chance(0.5)) c.attributes["layout"] = std::string("NHD");
  if (rng.chance(0.3)) c.attributes["window_left"] = std::int64_t{0};
  if (rng.chance(0.1)) c.attributes["window_right"] = std::int64_t{0};
  if (rng.chance(0.3)) c.attributes["logits_soft_cap"] = 1.0;
  if (rng.chance(0.3) || (!cached.empty() && !names(c, "k_scale"))) c.attributes["softmax_scale"] = 0.1;
  spec::Case varied = vary(c, rng);
  if (names(c, "softmax_aux") && rng.chance(0.25)) varied.fill["softmax_aux"] = "hidden";
  return varied;
}

// ---- properties ----

bool has_tokens(const Call& call) {
  const std::vector<double> lengths = call.input("context_lens").values();
  return call.dim("Hkv") > 0 && call.dim("D") > 0 && std::any_of(lengths.begin(), lengths.end(), [](double length) { return length > 0; });
}

void fill_row(HostTensor& cache, std::int64_t row, std::int64_t dim, double value) {
  for (std::int64_t d = 0; d < dim; ++d) cache.set(row + d, value);
}

// What no query sees becomes NaN (the largest number, where there is no NaN), and table entries of pages that none sees go out of range.
std::string unseen(const Call& call, const Execute& execute, Rng& rng) {
  const Values expected = run_copy(call, execute);
  const Pages pages(call);
  Call changed = call;
  HostTensor& table = changed.input("block_tables");
  std::vector<bool> seen(at(call.dim("P") * pages.size()), false);
  for (std::int64_t n = 0; n < call.dim("N"); ++n) {
    for (std::int64_t key = pages.first(n); key < pages.length(n); ++key)
      seen[at(pages.page(n, key) * pages.size() + key % pages.size())] = true;
    const std::int64_t columns = call.dim("max_pages");
    for (std::int64_t column = 0; column < columns; ++column)
      if (column < pages.first(n) / pages.size() || column * pages.size() >= pages.length(n))
        table.set(n * columns + column, static_cast<double>(rng.chance(0.5) ? far : -far));
  }
  for (std::int64_t slot = 0; slot < static_cast<std::int64_t>(seen.size()); ++slot)
    for (std::int64_t head = 0; !seen[at(slot)] && head < call.dim("Hkv"); ++head)
      for (const char* name : {"key_cache", "value_cache"})
        fill_row(changed.input(name), pages.slot(slot / pages.size(), head, slot % pages.size()), call.dim("D"),
                 is_floating(changed.input(name).type()) ? nan : 127);
  return disagreement(call, run_copy(changed, execute), expected);
}

// Pages in another order, and the table with them: bit for bit the same.
std::string shuffled_pages(const Call& call, const Execute& execute, Rng& rng) {
  std::vector<std::int64_t> order(at(call.dim("P")));
  std::iota(order.begin(), order.end(), 0);
  rng.shuffle(order);
  Call changed = call;
  for (const char* name : {"key_cache", "value_cache"}) {
    const HostTensor& from = call.input(name);
    HostTensor& to = changed.input(name);
    const std::int64_t page = order.empty() ? 0 : from.elements() / call.dim("P");
    for (std::int64_t i = 0; i < from.elements(); ++i) to.set(order[at(i / page)] * page + i % page, from.at(i));
  }
  HostTensor& table = changed.input("block_tables");
  for (std::int64_t i = 0; i < table.elements(); ++i)
    if (const auto page = static_cast<std::int64_t>(table.at(i)); page >= 0 && page < call.dim("P"))
      table.set(i, static_cast<double>(order[at(page)]));
  const Values found = run_copy(changed, execute), expected = run_copy(call, execute);
  for (const auto& [name, values] : expected)
    for (std::size_t i = 0; i < values.size(); ++i)
      if (found.at(name)[i] != values[i] && !(std::isnan(values[i]) && std::isnan(found.at(name)[i])))
        return name + index_text(call.input(name).shape(), static_cast<std::int64_t>(i)) + " changed with the places of the pages";
  return "";
}

// One key becomes NaN: exactly the queries that see it may know (the reference tells which).
std::string one_nan_key(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& keys = changed.input("key_cache");
  keys.set(rng.between(0, keys.elements() - 1), nan);
  return first_failure(verify_call(PageAttention(), changed, execute));
}

// Keys that grow with the position, so that the largest score comes last and is far above the first ones; and the other way round. A key of
// a page that several positions share grows once.
std::string growing_keys(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  const Pages pages(call);
  const HostTensor& from = call.input("key_cache");
  HostTensor& keys = changed.input("key_cache");
  const bool falling = rng.chance(0.5);
  for (std::int64_t n = 0; n < call.dim("N"); ++n)
    for (std::int64_t key = 0; key < pages.length(n); ++key) {
      const double place = static_cast<double>(key) / static_cast<double>(pages.length(n));
      for (std::int64_t d = 0; d < call.dim("D"); ++d) {
        const std::int64_t element = pages.row(n, rng.between(0, call.dim("Hkv") - 1), key) + d;
        keys.set(element, from.at(element) * (0.1 + 12.0 * (falling ? 1 - place : place)));
      }
    }
  return first_failure(verify_call(PageAttention(), changed, execute));
}

// Where all values are equal, a mean of them is that value, and a sequence without tokens gives 0.
std::string equal_values(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  HostTensor& values = changed.input("value_cache");
  for (std::int64_t i = 0; i < values.elements(); ++i) values.set(i, 3);
  const HostTensor& out = call.input("out");
  const Pages pages(call);
  std::vector<double> expected(at(out.elements()), 0.0);
  const std::int64_t row = call.dim("D"), heads = call.dim("Hq"), group = heads / call.dim("Hkv");
  for (std::int64_t i = 0; i < out.elements(); ++i)
    if (pages.length(i / row / heads) > 0) expected[at(i)] = 3 * scale_of(call, "v_scale", i / row % heads / group);
  return compare("out", out.shape(), run_copy(changed, execute).at("out"), expected, tolerance_of(call, out)).message;
}

// The call on the first `pages` pages of each sequence, or on what follows them.
Call half_of(const Call& call, std::int64_t pages, bool later) {
  Call half = call;
  HostTensor &lengths = half.input("context_lens"), &table = half.input("block_tables");
  const std::int64_t tokens = pages * call.dim("ps"), columns = call.dim("max_pages");
  for (std::int64_t n = 0; n < call.dim("N"); ++n) {
    const double length = lengths.at(n), first = std::min(length, static_cast<double>(tokens));
    lengths.set(n, later ? length - first : first);
    for (std::int64_t column = 0; later && column + pages < columns; ++column)
      table.set(n * columns + column, table.at(n * columns + column + pages));
  }
  return half;
}

// Attention over two halves of each sequence, put together by their LSE, is attention over all of it.
std::string two_halves(const Call& call, const Execute& execute, Rng& rng) {
  const std::int64_t pages = rng.between(0, call.dim("max_pages"));
  const Values first = run_copy(half_of(call, pages, false), execute), second = run_copy(half_of(call, pages, true), execute);
  Values both = first;
  for (std::size_t row = 0; row < both.at("lse").size(); ++row) {
    const double a = first.at("lse")[row], b = second.at("lse")[row];
    both.at("lse")[row] = log_sum_exp({a, b});
    for (std::size_t i = row * at(call.dim("D")); i < (row + 1) * at(call.dim("D")); ++i) {
      const double total = both.at("lse")[row];
      both.at("out")[i] = total == -infinity ? 0 : std::exp(a - total) * first.at("out")[i] + std::exp(b - total) * second.at("out")[i];
    }
  }
  return disagreement(call, run_copy(call, execute), both);
}

std::vector<Property> PageAttention::properties() const {
  const auto usual = [](const Call& call) { return writable(call) && has_tokens(call); };
  const auto floating = [=](const Call& call) { return usual(call) && is_floating(call.input("key_cache").type()); };
  return {
      repeats_bit_for_bit([](const Call&) { return true; }),
      {"tokens that no query sees do not matter, even NaN, and their pages' table entries may be anything", writable, unseen},
      {"where a page lies does not matter", writable, shuffled_pages},
      {"a NaN in a key reaches the queries that see it and no other", floating, one_nan_key},
      {"scores may grow or fall along the keys",
       [=](const Call& call) {
         return floating(call) && call.floating("logits_soft_cap") == 0 && size_of(call.input("key_cache").type()) > 1;
       },
       growing_keys},
      {"two halves of a sequence make the whole",
       [=](const Call& call) { return usual(call) && call.given("lse") && !call.given("softmax_aux") && call.integer("window_left") < 0; },
       two_halves},
      {"equal values come out as they went in", [=](const Call& call) { return usual(call) && !call.given("softmax_aux"); }, equal_values},
  };
}

const Registration registration{std::make_unique<PageAttention>()};

}  // namespace
}  // namespace ejk::reference::page_attention
