// Lengths, tables and pages.
#include "reference/paged_data.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "reference/data.hpp"
#include "reference/element.hpp"

namespace ejk::reference {
namespace {

constexpr double quantised_deviation = 24;

class DimScope : public spec::Scope {
 public:
  explicit DimScope(const std::map<std::string, spec::Value>& dims) : dims_(dims) {}
  std::optional<spec::Value> lookup(std::string_view name) const override {
    const auto found = dims_.find(std::string(name));
    return found == dims_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  const std::map<std::string, spec::Value>& dims_;
};

std::int64_t value_of(const HostTensor& tensor, const std::string& expression, const std::map<std::string, spec::Value>& dims) {
  try {
    return spec::Expression::parse(expression).integer(DimScope(dims));
  } catch (const spec::ExpressionError& e) {
    throw std::invalid_argument(fmt::format("{}: its fill needs `{}`: {}", tensor.name(), expression, e.what()));
  }
}

std::vector<std::string> split_words(const std::string& fill) {
  std::istringstream stream(fill);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Which pages hold items, and how the items of a row lie on them.
struct Paging {
  std::vector<double> lengths;
  std::int64_t per = 1;

  std::int64_t pages(std::size_t row) const { return (static_cast<std::int64_t>(lengths[row]) + per - 1) / per; }
  std::int64_t all_pages() const {
    std::int64_t sum = 0;
    for (std::size_t row = 0; row < lengths.size(); ++row) sum += pages(row);
    return sum;
  }
};

Paging paging_of(const Call& call, const std::string& lengths, const std::string& per) {
  return {call.input(lengths).values(), std::max<std::int64_t>(call.dim(per), 1)};
}

// Used entries of all rows, in order: a random permutation of the pool, or where that is too small, any of it.
std::vector<std::int64_t> drawn_pages(std::int64_t count, std::int64_t pool, Rng& rng) {
  std::vector<std::int64_t> pages(static_cast<std::size_t>(pool));
  std::iota(pages.begin(), pages.end(), std::int64_t{0});
  rng.shuffle(pages);
  for (std::int64_t i = pool; i < count; ++i) pages.push_back(rng.between(0, pool - 1));
  return pages;
}

void fill_pages(HostTensor& table, const Paging& paging, std::int64_t pool, Rng& rng) {
  if (table.shape().size() != 2) throw std::invalid_argument(fmt::format("{}: pages need two dimensions", table.name()));
  const std::int64_t columns = table.shape()[1];
  const auto pages = drawn_pages(paging.all_pages(), pool, rng);
  if (table.broadcast()) {  // a row's garbage would be another's page
    for (std::int64_t i = 0; i < table.elements(); ++i) table.set(i, static_cast<double>(rng.between(0, pool - 1)));
    return;
  }
  auto next = pages.begin();
  for (std::int64_t row = 0; row < table.shape()[0]; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      const bool used = column < paging.pages(static_cast<std::size_t>(row));
      const double garbage = rng.chance(0.5) ? std::numeric_limits<std::int32_t>::max() : std::numeric_limits<std::int32_t>::min();
      table.set(row * columns + column, used ? static_cast<double>(*next++) : garbage);
    }
}

// By slot, page * per + place: whether it holds an item.
std::vector<bool> used_slots(const HostTensor& table, const Paging& paging, std::int64_t pool) {
  std::vector<bool> used(static_cast<std::size_t>(pool * paging.per), false);
  const std::int64_t columns = table.shape()[1];
  for (std::size_t row = 0; row < paging.lengths.size(); ++row)
    for (std::int64_t item = 0; item < static_cast<std::int64_t>(paging.lengths[row]); ++item) {
      const auto page = static_cast<std::int64_t>(table.at(static_cast<std::int64_t>(row) * columns + item / paging.per));
      used[static_cast<std::size_t>(page * paging.per + item % paging.per)] = true;
    }
  return used;
}

// Which dim of the cache counts the places on a page.
std::size_t axis_of(const Call& call, const HostTensor& cache, const std::string& per) {
  const auto* shape = spec::shape_for(*call.spec->tensor(cache.name()), call.binding.form, cache.shape().size());
  for (std::size_t axis = 1; shape && axis < shape->extents.size(); ++axis)
    if (shape->extents[axis].dim == per) return axis;
  throw std::invalid_argument(fmt::format("{}: no dim after its first is {}", cache.name(), per));
}

// Visits the innermost rows of one place on a page.
void spoil_place(HostTensor& cache, std::int64_t page, std::int64_t place, std::size_t axis, const std::vector<std::byte>& row) {
  const auto& shape = cache.shape();
  const auto& strides = cache.strides();
  std::vector<std::int64_t> index(shape.size(), 0);
  index[0] = page, index[axis] = place;
  for (;;) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
    std::memcpy(static_cast<std::byte*>(cache.data()) + offset * size_of(cache.type()), row.data(), row.size());
    std::size_t i = shape.size() - 1;
    do --i;
    while (i > 0 && (i == axis || ++index[i] == shape[i]) && (i == axis || (index[i] = 0, true)));
    if (i == 0) return;
  }
}

// An innermost row of what stands where nothing may be read.
std::vector<std::byte> spoiled_row(const HostTensor& cache) {
  const auto size = static_cast<std::size_t>(size_of(cache.type()));
  std::vector<std::byte> row(static_cast<std::size_t>(cache.shape().back()) * size);
  for (std::size_t i = 0; i < row.size(); i += size)
    store_element(cache.type(), row.data() + i, is_floating(cache.type()) ? std::numeric_limits<double>::quiet_NaN() : -128);
  return row;
}

void spoil_unused(HostTensor& cache, const std::vector<bool>& used, std::int64_t per, std::size_t axis) {
  if (cache.broadcast() || cache.elements() == 0) return;  // a place would stand for others too
  const std::vector<std::byte> row = spoiled_row(cache);
  for (std::size_t slot = 0; slot < used.size(); ++slot)
    if (!used[slot]) spoil_place(cache, static_cast<std::int64_t>(slot) / per, static_cast<std::int64_t>(slot) % per, axis, row);
}

// Tokens of row n outside [starts[n], ends[n]) of a cache [rows, tokens, ...].
void spoil_outside(HostTensor& cache, const std::vector<double>& starts, const std::vector<double>& ends) {
  if (cache.broadcast() || cache.elements() == 0) return;
  const std::vector<std::byte> row = spoiled_row(cache);
  for (std::size_t n = 0; n < starts.size(); ++n)
    for (std::int64_t t = 0; t < cache.shape()[1]; ++t)
      if (const auto token = static_cast<double>(t); token < starts[n] || token >= ends[n])
        spoil_place(cache, static_cast<std::int64_t>(n), t, 1, row);
}

// "each 2*4096 1*7": 4096, 4096, 7; "starts 2*4096 1*7": what lies before each of these, and all. False: there are more or fewer values.
bool fill_runs(std::vector<double>& values, const std::string& fill) {
  std::vector<double> each;
  const auto words = split_words(fill);
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::int64_t count = 0, value = 0;
    char times = 0;
    std::istringstream(words[i]) >> count >> times >> value;
    if (times != '*' || count < 0 || count > static_cast<std::int64_t>(values.size())) return false;
    each.insert(each.end(), static_cast<std::size_t>(count), static_cast<double>(value));
  }
  if (words[0] == "starts") {
    double before = 0;
    for (double& value : each) before += std::exchange(value, before);
    each.push_back(before);
  }
  if (each.size() != values.size()) return false;
  values = std::move(each);
  return true;
}

// Row n has at least what STARTS leaves between n and n + 1, mostly, and at most `most`.
void fill_contexts(HostTensor& contexts, const HostTensor& starts, std::int64_t most, Rng& rng) {
  for (std::int64_t n = 0; n < contexts.elements(); ++n) {
    const auto least = std::min(static_cast<std::int64_t>(starts.at(n + 1) - starts.at(n)), most);
    const double kind = rng.uniform();
    contexts.set(n, static_cast<double>(kind < 0.2 ? least : kind < 0.3 ? most : rng.between(kind < 0.35 ? 0 : least, most)));
  }
}

}  // namespace

bool fill_lengths(HostTensor& tensor, const std::string& fill, const std::map<std::string, spec::Value>& dims, Rng& rng) {
  const std::string all = "all ", lengths = "lengths ", to = " to ";
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  if (fill == "scales") {
    for (double& value : values) value = (1 + 2 * rng.uniform()) / 48;
  } else if (fill.starts_with(all)) {
    std::fill(values.begin(), values.end(), static_cast<double>(value_of(tensor, fill.substr(all.size()), dims)));
  } else if (const auto middle = fill.find(to); fill.starts_with(lengths) && middle != std::string::npos) {
    const std::int64_t low = value_of(tensor, fill.substr(lengths.size(), middle - lengths.size()), dims);
    const std::int64_t high = value_of(tensor, fill.substr(middle + to.size()), dims);
    for (double& value : values) {
      const double kind = high <= 1024 ? rng.uniform() : 1;
      value = static_cast<double>(kind < 0.1 ? low : kind < 0.2 ? high : rng.between(low, high));
    }
  } else if (fill.starts_with("each ") || fill.starts_with("starts ")) {
    if (!fill_runs(values, fill))
      throw std::invalid_argument(fmt::format("{}: '{}' does not have its {} elements", tensor.name(), fill, values.size()));
  } else {
    return false;
  }
  tensor.assign(values);
  return true;
}

void fill_related(Call& call, const std::function<std::string(const spec::TensorSpec&)>& fill_of, std::uint64_t seed) {
  const auto each = [&](const char* kind, std::size_t names, const auto& visit) {
    for (HostTensor& tensor : call.inputs) {
      const auto words = split_words(fill_of(*call.spec->tensor(tensor.name())));
      if (words.size() != names + 1 || words[0] != kind) continue;
      Rng rng = Rng::stream(seed, tensor.name());
      visit(tensor, words, rng);
    }
  };
  each("contexts", 2, [&](HostTensor& contexts, const std::vector<std::string>& words, Rng& rng) {
    std::map<std::string, spec::Value> dims;
    for (const auto& [name, size] : call.binding.dims) dims[name] = size;
    fill_contexts(contexts, call.input(words[1]), value_of(contexts, words[2], dims), rng);
  });
  each("pages", 3, [&](HostTensor& table, const std::vector<std::string>& words, Rng& rng) {
    fill_pages(table, paging_of(call, words[1], words[2]), call.dim(words[3]), rng);
  });
  each("paged", 3, [&](HostTensor& cache, const std::vector<std::string>& words, Rng& rng) {
    const auto paging = paging_of(call, words[2], words[3]);
    fill_normal(cache, size_of(cache.type()) == 1 ? quantised_deviation : 1, rng);
    spoil_unused(cache, used_slots(call.input(words[1]), paging, cache.shape()[0]), paging.per, axis_of(call, cache, words[3]));
  });
  each("between", 2, [&](HostTensor& cache, const std::vector<std::string>& words, Rng& rng) {
    fill_normal(cache, 1, rng);
    spoil_outside(cache, call.input(words[1]).values(), call.input(words[2]).values());
  });
}

}  // namespace ejk::reference
