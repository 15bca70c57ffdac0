// Laws of mla_attention that any implementation obeys.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/kernels/mla_attention.hpp"

namespace ejk::reference::mla_attention {
namespace {

const char* keys_of(const Call& call) { return is_paged(call) ? "cache" : "kv_latent"; }

bool sees_something(const Call& call) {
  const Sight sight(call);
  for (std::int64_t n = 0; n < sight.sequences(); ++n)
    if (!sight.keys_of_any(n).empty()) return call.dim("H") > 0 && call.dim("Dv") > 0;
  return false;
}

// What no query sees becomes NaN, and table entries of pages that none sees garbage.
std::string unseen(const Call& call, const Execute& execute, Rng& rng) {
  const Values expected = run_copy(call, execute);
  Call changed = call;
  for (std::int64_t n = 0; is_paged(call) && n < call.dim("N"); ++n)
    for (std::int64_t column = 0, columns = call.dim("max_pages"); column < columns; ++column)
      if (static_cast<double>(column * call.dim("ps")) >= call.input("context_lens").at(n))
        changed.input("block_tables").set(n * columns + column, rng.chance(0.5) ? 1e9 : -1e9);
  spoil_unseen(changed);
  return disagreement(call, run_copy(changed, execute), expected);
}

// Pages in another order, and the table with them: bit for bit the same.
std::string moved_pages(const Call& call, const Execute& execute, Rng& rng) {
  std::vector<std::int64_t> order(at(call.dim("P")));
  std::iota(order.begin(), order.end(), 0);
  rng.shuffle(order);
  Call changed = call;
  const HostTensor& from = call.input("cache");
  const std::int64_t page = order.empty() ? 0 : from.elements() / call.dim("P");
  for (std::int64_t i = 0; i < from.elements(); ++i) changed.input("cache").set(order[at(i / page)] * page + i % page, from.at(i));
  HostTensor& table = changed.input("block_tables");
  for (std::int64_t i = 0; i < table.elements(); ++i)
    if (const double entry = table.at(i); entry >= 0 && entry < static_cast<double>(call.dim("P")))
      table.set(i, static_cast<double>(order[at(static_cast<std::int64_t>(entry))]));
  const Values found = run_copy(changed, execute), expected = run_copy(call, execute);
  for (const auto& [name, values] : expected)
    for (std::size_t i = 0; i < values.size(); ++i)
      if (found.at(name)[i] != values[i] && !(std::isnan(values[i]) && std::isnan(found.at(name)[i])))
        return name + " " + std::to_string(i) + " changed with the places of the pages";
  return "";
}

// One number of a key becomes NaN: exactly the queries that see it may know (the reference tells which).
std::string one_nan(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& keys = changed.input(!is_paged(call) && call.dim("Dr") > 0 && rng.chance(0.3) ? "k_rope" : keys_of(call));
  keys.set(rng.between(0, keys.elements() - 1), nan);
  return first_failure(verify_call(MlaAttention(), changed, execute));
}

// Keys that grow with the position, so that the largest score comes last and is far above the first ones; and the other way round.
std::string growing_keys(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& keys = changed.input(keys_of(call));
  const std::int64_t width = keys.shape().back(), rows = keys.elements() / width;
  const bool falling = rng.chance(0.5);
  for (std::int64_t i = 0; i < keys.elements(); ++i) {
    const double place = static_cast<double>(i / width) / static_cast<double>(rows);
    keys.set(i, keys.at(i) * (0.1 + 1.5 * (falling ? 1 - place : place)));
  }
  return first_failure(verify_call(MlaAttention(), changed, execute));
}

// Where all latent rows are one unit vector, every value is that row of w_vc, and so is a mean of them; a query without keys gives 0.
std::string equal_values(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& keys = changed.input(keys_of(call));
  const std::int64_t width = keys.shape().back(), unit = rng.between(0, call.dim("R") - 1);
  for (std::int64_t i = 0; i < keys.elements(); ++i)
    if (i % width < call.dim("R"))
      keys.set(i, i % width == unit ? 1 : 0);
    else if (std::isnan(keys.at(i)))
      keys.set(i, 0);
  const Problem p(changed);
  const HostTensor& out = call.input("out");
  std::vector<double> expected(at(out.elements()), 0.0);
  for (std::int64_t n = 0; n < p.sight.sequences(); ++n)
    for (std::int64_t i = 0; i < p.sight.queries(); ++i) {
      if (p.sight.keys(n, i).empty()) continue;
      for (std::int64_t h = 0; h < p.heads; ++h)
        for (std::int64_t d = 0; d < p.value_dim; ++d) expected[at(p.query_row(n, i, h) * p.value_dim + d)] = p.vc(unit, h, d);
    }
  return compare("out", out.shape(), run_copy(changed, execute).at("out"), expected, tolerance_of(call, out)).message;
}

// Heads, and their parts of the weights, in the reverse order.
std::string other_heads(const Call& call, const Execute& execute, Rng&) {
  const std::int64_t heads = call.dim("H");
  const auto turned = [&](const std::vector<double>& values, std::int64_t inner) {
    std::vector<double> to(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto index = static_cast<std::int64_t>(i), block = index / inner;
      to[at((block / heads * heads + heads - 1 - block % heads) * inner + index % inner)] = values[i];
    }
    return to;
  };
  Call changed = call;
  for (const char* name : {"q_nope", "q_rope", "w_kc", "w_vc"}) {
    HostTensor& tensor = changed.input(name);
    if (tensor.elements() > 0) tensor.assign(turned(tensor.values(), tensor.shape().back()));
  }
  Values expected = run_copy(call, execute);
  expected["out"] = turned(expected["out"], call.dim("Dv"));
  if (call.given("lse")) expected["lse"] = turned(expected["lse"], is_paged(call) ? 1 : call.dim("Sq"));
  return disagreement(call, run_copy(changed, execute), expected);
}

// A weight of the values that is twice as large makes outputs twice as large.
std::string larger_values(const Call& call, const Execute& execute, Rng&) {
  Call changed = call;
  HostTensor& weight = changed.input("w_vc");
  for (std::int64_t i = 0; i < weight.elements(); ++i) weight.set(i, 2 * weight.at(i));
  Values expected = run_copy(call, execute);
  for (double& x : expected["out"]) x *= 2;
  return disagreement(call, run_copy(changed, execute), expected);
}

}  // namespace

std::vector<Property> MlaAttention::properties() const {
  const auto usual = [](const Call& call) { return writable(call) && call.dim("R") > 0 && sees_something(call); };
  const auto uncapped = [=](const Call& call) { return usual(call) && call.floating("logits_soft_cap") == 0; };
  return {
      repeats_bit_for_bit([](const Call&) { return true; }),
      {"keys that no query sees do not matter, even NaN, and their pages' table entries may be anything", writable, unseen},
      {"where a page lies does not matter", [](const Call& call) { return writable(call) && is_paged(call); }, moved_pages},
      {"a NaN in a key reaches the queries that see it and no other", usual, one_nan},
      {"scores may grow or fall along the keys", uncapped, growing_keys},
      {"equal values come out as they went in", usual, equal_values},
      {"the order of the heads does not matter", usual, other_heads},
      {"outputs grow with w_vc", usual, larger_values},
  };
}

}  // namespace ejk::reference::mla_attention
