// mla_decode in float64: docs/semantics.md, "mla_decode", every form.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "reference/element.hpp"
#include "reference/kernels/decode_reference.hpp"

namespace ejk::reference::mla_decode {
namespace {

constexpr std::int64_t far = 1'000'000'000;  // no page is that far out
constexpr std::int64_t block = 128;          // values of an 8-bit row that share a scale

bool is_bytes(const Call& call) { return call.given("cache") && call.input("cache").type() == DType::u8; }
std::int64_t width_of(const Call& call) { return call.input("cache").shape().back(); }  // elements of a slot

// Which rows of the cache, or of kv_latent and k_rope, each query sees.
class Sight {
 public:
  explicit Sight(const Call& call)
      : form_(call.binding.form),
        queries_(call.dim("Sq")),
        tokens_(form_ == "contiguous" ? call.dim("Sk") : 0),
        columns_(call.given("block_tables") ? call.dim("max_pages") : 0),
        page_(form_ == "contiguous" ? 1 : call.dim("ps")) {
    if (call.given("context_lens")) lengths_ = call.input("context_lens").values();
    if (call.given("block_tables")) table_ = call.input("block_tables").values();
    if (form_ == "sparse") indices_ = call.input("indices").values(), listed_ = call.dim("M");
  }

  // By its lengths.
  std::int64_t length(std::int64_t n) const { return lengths_.empty() ? tokens_ : static_cast<std::int64_t>(lengths_[at(n)]); }
  std::int64_t visible(std::int64_t n, std::int64_t i) const { return std::max<std::int64_t>(0, length(n) - queries_ + 1 + i); }
  std::int64_t row(std::int64_t n, std::int64_t key) const {
    if (form_ == "contiguous") return n * tokens_ + key;
    return static_cast<std::int64_t>(table_[at(n * columns_ + key / page_)]) * page_ + key % page_;
  }
  // What query i of sequence n sees, in the order of keys or of the list.
  std::vector<std::int64_t> rows(std::int64_t n, std::int64_t i) const {
    std::vector<std::int64_t> seen;
    if (form_ == "sparse") {
      for (std::int64_t m = 0; m < listed_; ++m)
        if (const double slot = indices_[at((n * queries_ + i) * listed_ + m)]; slot >= 0) seen.push_back(static_cast<std::int64_t>(slot));
      return seen;
    }
    for (std::int64_t key = 0; key < visible(n, i); ++key) seen.push_back(row(n, key));
    return seen;
  }

 private:
  std::string form_;
  std::int64_t queries_, tokens_, columns_, page_, listed_ = 0;
  std::vector<double> lengths_, table_, indices_;
};

// One call's numbers, read once; of the cache only what somebody sees, since it may be large.
struct Problem {
  explicit Problem(const Call& call)
      : call(call),
        sight(call),
        queries(call.dim("Sq")),
        heads(call.dim("H")),
        latent(call.dim("R")),
        rope(call.dim("Dr")),
        scale(call.floating("softmax_scale")),
        cap(call.floating("logits_soft_cap")) {}

  std::uint8_t byte(std::int64_t index) const { return static_cast<std::uint8_t>(call.input("cache").at(index)); }

  // Latent, then rope, of a row.
  void read(std::int64_t row, double* key) const {
    if (!call.given("cache")) {
      const HostTensor &latents = call.input("kv_latent"), &ropes = call.input("k_rope");
      for (std::int64_t d = 0; d < latent; ++d) key[d] = latents.at(row * latent + d);
      for (std::int64_t d = 0; d < rope; ++d) key[latent + d] = ropes.at(row * rope + d);
      return;
    }
    const HostTensor& cache = call.input("cache");
    const std::int64_t first = row * width_of(call);
    if (!is_bytes(call)) {
      for (std::int64_t d = 0; d < latent + rope; ++d) key[d] = cache.at(first + d);
      return;
    }
    for (std::int64_t d = 0; d < latent; ++d) {
      std::uint32_t bits = 0;
      for (std::int64_t i = 0; i < 4; ++i) bits |= std::uint32_t{byte(first + latent + d / block * 4 + i)} << (8 * i);
      key[d] = decode_e4m3(byte(first + d)) * static_cast<double>(std::bit_cast<float>(bits));
    }
    for (std::int64_t d = 0; d < rope; ++d) {
      const std::int64_t at = first + latent + latent / block * 4 + 2 * d;
      key[latent + d] = decode16(static_cast<std::uint16_t>(byte(at) | byte(at + 1) << 8), 8, 7);
    }
  }

  // The keys that query i of sequence n sees, one after another.
  std::vector<double> keys(std::int64_t n, std::int64_t i) const {
    const std::vector<std::int64_t> rows = sight.rows(n, i);
    std::vector<double> all(rows.size() * at(latent + rope));
    for (std::size_t j = 0; j < rows.size(); ++j) read(rows[j], all.data() + j * at(latent + rope));
    return all;
  }

  // Writes the row of out of a query head, which is 0 before; returns its LSE.
  double attend(std::int64_t n, std::int64_t i, std::int64_t h, const std::vector<double>& keys, double* out) const {
    const HostTensor &q = call.input("q_latent"), &q_rope = call.input("q_rope");
    const std::int64_t width = latent + rope, query = (n * queries + i) * heads + h;
    std::vector<double> one(at(width));
    for (std::int64_t d = 0; d < latent; ++d) one[at(d)] = q.at(query * latent + d);
    for (std::int64_t d = 0; d < rope; ++d) one[at(latent + d)] = q_rope.at(query * rope + d);
    std::vector<double> scores;
    for (std::size_t j = 0; width > 0 && j < keys.size(); j += at(width)) {
      const double* key = keys.data() + j;
      double dot = 0;
      for (std::int64_t d = 0; d < width; ++d) dot += one[at(d)] * key[d];
      scores.push_back(capped_score(scale * dot, cap));
    }
    const double lse = log_sum_exp(scores);
    if (lse == -infinity) return lse;
    for (std::size_t j = 0; j < scores.size(); ++j)
      if (const double weight = std::exp(scores[j] - lse); weight != 0)
        for (std::int64_t d = 0; d < latent; ++d) out[d] += weight * keys[j * at(width) + at(d)];
    return lse;
  }

  const Call& call;
  Sight sight;
  std::int64_t queries, heads, latent, rope;
  double scale, cap;
};

class MlaDecode : public KernelReference {
 public:
  std::string kernel() const override { return "mla_decode"; }

  Values compute(const Call& call) const override {
    const Problem p(call);
    const std::int64_t sequences = call.dim("N");
    std::vector<double> out(at(sequences * p.queries * p.heads * p.latent), 0.0), lse(at(sequences * p.queries * p.heads), -infinity);
    for (std::int64_t n = 0; n < sequences; ++n)
      for (std::int64_t i = 0; i < p.queries; ++i) {
        const std::vector<double> keys = p.keys(n, i);
        for (std::int64_t h = 0; h < p.heads; ++h)
          lse[at((n * p.heads + h) * p.queries + i)] = p.attend(n, i, h, keys, out.data() + ((n * p.queries + i) * p.heads + h) * p.latent);
      }
    return {{"out", out}, {"lse", lse}};
  }

  // Some heads of a few queries, whose keys are read once.
  Samples sample(const Call& call, Rng& rng) const override {
    const Problem p(call);
    Samples samples;
    for (const std::int64_t query : some_below(call.dim("N") * p.queries, 7, rng)) {
      const std::int64_t n = query / p.queries, i = query % p.queries;
      const std::vector<double> keys = p.keys(n, i);
      for (const std::int64_t h : some_below(p.heads, 7, rng)) {
        std::vector<double> out(at(p.latent), 0.0);
        const double lse = p.attend(n, i, h, keys, out.data());
        samples["out"].add((query * p.heads + h) * p.latent, out.data(), p.latent);
        samples["lse"].add((n * p.heads + h) * p.queries + i, &lse, 1);
      }
    }
    return samples;
  }

  void complete(Call& call) const override;
  spec::Case vary(const spec::Case& c, Rng& rng) const override;
  spec::Case random_case(Rng& rng) const override;
  std::vector<OptionCase> option_cases() const override;
  std::vector<Property> properties() const override;
};

// ---- data ----

// Different slots in no order, -1 between them, at the end, or nowhere.
void fill_indices(HostTensor& indices, std::int64_t slots, Rng& rng) {
  const std::int64_t listed = indices.shape().back();
  if (listed == 0) return;
  for (std::int64_t query = 0; query < indices.elements() / listed; ++query) {
    std::int64_t step = rng.between(1, std::max<std::int64_t>(1, slots - 1));
    while (std::gcd(step, slots) != 1 && slots > 0) ++step;
    const std::int64_t start = rng.between(0, slots - 1), kind = listed >= 1024 ? 0 : rng.between(0, 3);
    const double missing = kind == 0 ? 0 : kind == 1 ? 0.3 : kind == 2 ? 0.9 : 0.02;
    for (std::int64_t m = 0; m < listed; ++m) {
      const bool none = m >= slots || rng.chance(missing);
      indices.set(query * listed + m, none ? -1 : static_cast<double>((start + m % std::max<std::int64_t>(slots, 1) * step) % slots));
    }
  }
}

// An 8-bit row: numbers of deviation 1, by scales that differ.
void fill_bytes(HostTensor& cache, std::int64_t first, std::int64_t latent, std::int64_t rope, Rng& rng) {
  std::int64_t place = first;
  const auto put = [&](std::uint32_t bits, int bytes) {
    for (int i = 0; i < bytes; ++i) cache.set(place++, static_cast<double>(bits >> (8 * i) & 255));
  };
  for (std::int64_t d = 0; d < latent; ++d) put(encode_e4m3(24 * rng.normal()), 1);
  for (std::int64_t d = 0; d < latent; d += block) put(std::bit_cast<std::uint32_t>(static_cast<float>((1 + 2 * rng.uniform()) / 48)), 4);
  for (std::int64_t d = 0; d < rope; ++d) put(encode16(rng.normal(), 8, 7), 2);
}

std::vector<bool> seen_rows(const Call& call, std::int64_t rows) {
  std::vector<bool> seen(at(rows), false);
  const Sight sight(call);
  for (std::int64_t n = 0; n < call.dim("N"); ++n)
    for (std::int64_t i = call.binding.form == "sparse" ? 0 : std::max<std::int64_t>(call.dim("Sq") - 1, 0); i < call.dim("Sq"); ++i)
      for (const std::int64_t row : sight.rows(n, i)) seen[at(row)] = true;
  return seen;
}

void fill_row(HostTensor& tensor, std::int64_t row, std::int64_t width, double value) {
  for (std::int64_t d = 0; d < width; ++d) tensor.set(row * width + d, value);
}

// What no query sees becomes NaN: of 8 bits each byte 255, which is NaN in all three parts.
void spoil_unseen(Call& call) {
  for (const char* name : {"cache", "kv_latent", "k_rope"}) {
    if (!call.given(name) || call.input(name).broadcast() || call.input(name).elements() == 0) continue;
    HostTensor& tensor = call.input(name);
    const std::int64_t width = tensor.shape().back(), rows = tensor.elements() / width;
    const std::vector<bool> seen = seen_rows(call, rows);
    for (std::int64_t row = 0; row < rows; ++row)
      if (!seen[at(row)]) fill_row(tensor, row, width, is_floating(tensor.type()) ? nan : 255);
  }
}

void MlaDecode::complete(Call& call) const {
  std::uint64_t seed = 1;
  const HostTensor& queries = call.input("q_latent");
  for (std::int64_t i = 0; i < std::min<std::int64_t>(queries.elements(), 8); ++i)
    seed = seed * 31 + std::bit_cast<std::uint64_t>(queries.at(i));
  Rng rng = Rng::stream(seed, "mla_decode");
  if (call.given("indices")) fill_indices(call.input("indices"), call.dim("P") * call.dim("ps"), rng);
  if (is_bytes(call)) {
    constexpr std::int64_t own_rows = 4096;  // after these the first ones again: a large cache would take long
    HostTensor& cache = call.input("cache");
    const std::int64_t width = width_of(call), rows = call.dim("P") * call.dim("ps");
    const bool copied = rows > own_rows && cache.contiguous();
    for (std::int64_t row = 0; row < (copied ? own_rows : rows); ++row) fill_bytes(cache, row * width, call.dim("R"), call.dim("Dr"), rng);
    auto* bytes = static_cast<std::byte*>(cache.data());
    for (std::int64_t row = own_rows; copied && row < rows; ++row) std::copy_n(bytes + row % own_rows * width, width, bytes + row * width);
  }
  spoil_unseen(call);
}

// ---- cases ----

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

// ---- laws ----

bool sees_something(const Call& call) {
  const Sight sight(call);
  for (std::int64_t n = 0; n < call.dim("N"); ++n)
    for (std::int64_t i = 0; i < call.dim("Sq"); ++i)
      if (!sight.rows(n, i).empty()) return call.dim("H") > 0 && call.dim("R") > 0;
  return false;
}

// What no query sees becomes NaN; table entries of pages that none sees, and lengths and tables beside indices, become garbage.
std::string unseen(const Call& call, const Execute& execute, Rng& rng) {
  const Values expected = run_copy(call, execute);
  Call changed = call;
  const Sight sight(call);
  const bool sparse = call.binding.form == "sparse";
  const auto garbage = [&] { return static_cast<double>(rng.chance(0.5) ? far : -far); };
  for (std::int64_t n = 0; call.given("block_tables") && n < call.dim("N"); ++n)
    for (std::int64_t column = 0, columns = call.dim("max_pages"); column < columns; ++column)
      if (sparse || column * call.dim("ps") >= sight.length(n)) changed.input("block_tables").set(n * columns + column, garbage());
  for (std::int64_t n = 0; sparse && call.given("context_lens") && n < call.dim("N"); ++n) changed.input("context_lens").set(n, garbage());
  spoil_unseen(changed);
  return disagreement(call, run_copy(changed, execute), expected);
}

// Pages in another order, and table and indices with them: bit for bit the same.
std::string moved_pages(const Call& call, const Execute& execute, Rng& rng) {
  std::vector<std::int64_t> order(at(call.dim("P")));
  std::iota(order.begin(), order.end(), 0);
  rng.shuffle(order);
  Call changed = call;
  const HostTensor& from = call.input("cache");
  const std::int64_t page = order.empty() ? 0 : from.elements() / call.dim("P"), slots = call.dim("ps");
  for (std::int64_t i = 0; i < from.elements(); ++i) changed.input("cache").set(order[at(i / page)] * page + i % page, from.at(i));
  const auto is_page = [&](double entry) { return entry >= 0 && entry < static_cast<double>(call.dim("P")); };
  const auto moved = [&](double entry) { return static_cast<double>(order[at(static_cast<std::int64_t>(entry))]); };
  for (std::int64_t i = 0; call.given("block_tables") && i < call.input("block_tables").elements(); ++i)
    if (const double entry = call.input("block_tables").at(i); is_page(entry)) changed.input("block_tables").set(i, moved(entry));
  for (std::int64_t i = 0; call.given("indices") && i < call.input("indices").elements(); ++i)
    if (const auto slot = static_cast<std::int64_t>(call.input("indices").at(i)); slot >= 0)
      changed.input("indices").set(
          i, moved(static_cast<double>(slot / slots)) * static_cast<double>(slots) + static_cast<double>(slot % slots));
  const Values found = run_copy(changed, execute), expected = run_copy(call, execute);
  for (const auto& [name, values] : expected)
    for (std::size_t i = 0; i < values.size(); ++i)
      if (found.at(name)[i] != values[i] && !(std::isnan(values[i]) && std::isnan(found.at(name)[i])))
        return name + " " + std::to_string(i) + " changed with the places of the pages";
  return "";
}

const char* keys_of(const Call& call) { return call.given("cache") ? "cache" : "kv_latent"; }

// One number of a key becomes NaN: exactly the queries that see it may know (the reference tells which).
std::string one_nan(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& keys = changed.input(!call.given("cache") && call.dim("Dr") > 0 && rng.chance(0.3) ? "k_rope" : keys_of(call));
  keys.set(rng.between(0, keys.elements() - 1), nan);
  return first_failure(verify_call(MlaDecode(), changed, execute));
}

// Keys that grow with the position, so that the largest score comes last and is far above the first ones; and the other way round.
std::string growing_keys(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& keys = changed.input(keys_of(call));
  const std::int64_t width = keys.shape().back(), rows = keys.elements() / width;
  const bool falling = rng.chance(0.5);
  for (std::int64_t row = 0; row < rows; ++row) {
    const double place = static_cast<double>(row) / static_cast<double>(rows);
    for (std::int64_t d = 0; d < width; ++d)
      keys.set(row * width + d, keys.at(row * width + d) * (0.1 + 6.0 * (falling ? 1 - place : place)));
  }
  return first_failure(verify_call(MlaDecode(), changed, execute));
}

// Where all values are equal, a mean of them is that value, and a query without keys gives 0.
std::string equal_values(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  HostTensor& keys = changed.input(keys_of(call));
  const std::int64_t width = keys.shape().back();
  for (std::int64_t i = 0; i < keys.elements(); ++i)
    if (i % width < call.dim("R")) keys.set(i, 3);
  const HostTensor& out = call.input("out");
  const std::int64_t query = call.dim("H") * call.dim("R");
  const Sight sight(call);
  std::vector<double> expected(at(out.elements()), 0.0);
  for (std::int64_t i = 0; i < out.elements(); ++i)
    if (!sight.rows(i / query / call.dim("Sq"), i / query % call.dim("Sq")).empty()) expected[at(i)] = 3;
  return compare("out", out.shape(), run_copy(changed, execute).at("out"), expected, tolerance_of(*call.spec, out)).message;
}

// Indices in another order: the same but for rounding.
std::string other_order(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& indices = changed.input("indices");
  const std::int64_t listed = call.dim("M");
  for (std::int64_t first = 0; first < indices.elements(); first += listed) {
    std::vector<double> row;
    for (std::int64_t m = 0; m < listed; ++m) row.push_back(indices.at(first + m));
    rng.shuffle(row);
    for (std::int64_t m = 0; m < listed; ++m) indices.set(first + m, row[at(m)]);
  }
  return disagreement(call, run_copy(changed, execute), run_copy(call, execute));
}

// The outputs of two disjoint sets of keys, put together by their LSE, are those of both.
std::string halves_make(const Call& call, const Call& one, const Call& other, const Execute& execute) {
  const Values first = run_copy(one, execute), second = run_copy(other, execute);
  Values both = first;
  const std::int64_t latent = call.dim("R"), heads = call.dim("H"), queries = call.dim("Sq");
  for (std::int64_t row = 0; row < call.dim("N") * queries * heads; ++row) {
    const std::size_t lse = at((row / heads / queries * heads + row % heads) * queries + row / heads % queries);
    const double a = first.at("lse")[lse], b = second.at("lse")[lse], total = log_sum_exp({a, b});
    both.at("lse")[lse] = total;
    for (std::size_t i = at(row * latent); i < at((row + 1) * latent); ++i)
      both.at("out")[i] = total == -infinity ? 0 : std::exp(a - total) * first.at("out")[i] + std::exp(b - total) * second.at("out")[i];
  }
  return disagreement(call, run_copy(call, execute), both);
}

std::string two_lists(const Call& call, const Execute& execute, Rng& rng) {
  Call one = call, other = call;
  for (std::int64_t i = 0; i < call.input("indices").elements(); ++i) (rng.chance(0.5) ? one : other).input("indices").set(i, -1);
  return halves_make(call, one, other, execute);
}

// The first `cut` keys of every sequence (whole pages), and the others.
std::string two_parts(const Call& call, const Execute& execute, Rng& rng) {
  Call one = call, other = call;
  const bool paged = call.given("block_tables");
  const std::int64_t page = paged ? call.dim("ps") : 1, columns = call.dim(paged ? "max_pages" : "Sk"), pages = rng.between(0, columns);
  for (std::int64_t n = 0; n < call.dim("N"); ++n) {
    const double length = call.input("context_lens").at(n), first = std::min(length, static_cast<double>(pages * page));
    one.input("context_lens").set(n, first);
    other.input("context_lens").set(n, length - first);
    for (std::int64_t column = 0; column + pages < columns; ++column) {
      const std::int64_t to = n * columns + column, from = to + pages;
      if (paged) other.input("block_tables").set(to, call.input("block_tables").at(from));
      for (const char* name : {"kv_latent", "k_rope"})
        for (std::int64_t d = 0; !paged && d < call.input(name).shape().back(); ++d)
          other.input(name).set(to * call.input(name).shape().back() + d, call.input(name).at(from * call.input(name).shape().back() + d));
    }
  }
  return halves_make(call, one, other, execute);
}

// Indices of all that lengths let a query see are what lengths alone are.
std::string all_indices(const Call& call, const Execute& execute, Rng& rng) {
  Call dense = call, sparse = call;
  std::erase_if(dense.inputs, [](const HostTensor& input) { return input.name() == "indices"; });
  dense.rebind();
  const Sight sight(dense);
  const std::int64_t listed = call.dim("M");
  for (std::int64_t query = 0; query < call.dim("N") * call.dim("Sq"); ++query) {
    std::vector<std::int64_t> rows = sight.rows(query / call.dim("Sq"), query % call.dim("Sq"));
    rows.resize(at(listed), -1);
    rng.shuffle(rows);
    for (std::int64_t m = 0; m < listed; ++m) sparse.input("indices").set(query * listed + m, static_cast<double>(rows[at(m)]));
  }
  // What only indices showed is NaN no more, and all keys are numbers.
  for (Call* each : {&dense, &sparse}) {
    Rng same(7);
    HostTensor& cache = each->input("cache");
    const std::int64_t width = width_of(call);
    for (std::int64_t row = 0; row < cache.elements() / width; ++row) {
      if (is_bytes(call)) fill_bytes(cache, row * width, call.dim("R"), call.dim("Dr"), same);
      for (std::int64_t d = 0; !is_bytes(call) && d < width; ++d) cache.set(row * width + d, same.normal());
    }
  }
  return disagreement(call, run_copy(sparse, execute), run_copy(dense, execute));
}

std::vector<Property> MlaDecode::properties() const {
  const auto usual = [](const Call& call) { return writable(call) && sees_something(call); };
  const auto floating = [=](const Call& call) { return usual(call) && !is_bytes(call); };
  const auto sparse = [](const Call& call) { return call.given("indices"); };
  return {
      repeats_bit_for_bit([](const Call&) { return true; }),
      {"keys that no query sees do not matter, even NaN, and their pages' table entries may be anything", writable, unseen},
      {"where a page lies does not matter", [](const Call& call) { return writable(call) && call.given("cache"); }, moved_pages},
      {"a NaN in a key reaches the queries that see it and no other", floating, one_nan},
      {"scores may grow or fall along the keys", [=](const Call& call) { return floating(call) && call.floating("logits_soft_cap") == 0; },
       growing_keys},
      {"equal values come out as they went in", floating, equal_values},
      {"the order of indices does not matter", [=](const Call& call) { return usual(call) && sparse(call); }, other_order},
      {"two lists of indices make the whole", [=](const Call& call) { return usual(call) && sparse(call) && call.given("lse"); },
       two_lists},
      {"two parts of the keys make the whole",
       [=](const Call& call) {
         return usual(call) && !sparse(call) && call.given("lse") && call.given("context_lens") && call.dim("Sq") == 1;
       },
       two_parts},
      {"indices of all keys are what lengths are",
       [=](const Call& call) {
         return usual(call) && sparse(call) && call.given("block_tables") && call.dim("M") >= call.dim("max_pages") * call.dim("ps");
       },
       all_indices},
  };
}

const Registration registration{std::make_unique<MlaDecode>()};

}  // namespace
}  // namespace ejk::reference::mla_decode
