// Laws of mla_decode that any implementation obeys.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/kernels/mla_decode.hpp"

namespace ejk::reference::mla_decode {
namespace {

constexpr std::int64_t far = 1'000'000'000;  // no page is that far out

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

// One number of a key becomes NaN, often of a sequence's newest, which only its last query sees: exactly the queries that see it may know
// (the reference tells which).
std::string one_nan(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& keys = changed.input(!call.given("cache") && call.dim("Dr") > 0 && rng.chance(0.3) ? "k_rope" : keys_of(call));
  const std::int64_t width = keys.shape().back(), rows = keys.elements() / width;
  const std::vector<std::int64_t> seen = Sight(call).rows(rng.between(0, call.dim("N") - 1), call.dim("Sq") - 1);
  const std::int64_t row = !seen.empty() && rng.chance(0.7) ? seen.back() : rng.between(0, rows - 1);
  keys.set(row * width + rng.between(0, width - 1), nan);
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
  return compare("out", out.shape(), run_copy(changed, execute).at("out"), expected, tolerance_of(call, out)).message;
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
      if (is_bytes(call)) fill_bytes(cache, row, width, call.dim("R"), call.dim("Dr"), same);
      for (std::int64_t d = 0; !is_bytes(call) && d < width; ++d) cache.set(row * width + d, same.normal());
    }
  }
  return disagreement(call, run_copy(sparse, execute), run_copy(dense, execute));
}

}  // namespace

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

}  // namespace ejk::reference::mla_decode
