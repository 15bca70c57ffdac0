// What names and name-taking functions mean in a bound call.
#include <fmt/format.h>
#include <algorithm>

#include "spec/call/binder.hpp"
#include "spec/call/host_integers.hpp"

namespace ejk::spec {
namespace {

[[noreturn]] void fail(std::string sentence) { throw ExpressionError(std::move(sentence), 0); }

// Why a name of the contract has no value in this call.
[[noreturn]] void unbound(const Binding& binding, std::string_view name, std::string_view what) {
  const std::string form = binding.form.empty() ? "" : fmt::format(" ({} form)", binding.form);
  fail(fmt::format("{} {} has no value in this call{}: no tensor that is given binds it", what, name, form));
}

// Row-major without gaps; dims of size 1 do not count.
bool is_contiguous(const TensorFacts& facts) {
  std::int64_t expected = 1;
  for (std::size_t i = facts.shape.size(); i-- > 0;) {
    if (facts.shape[i] == 0) return true;
    if (facts.shape[i] == 1) continue;
    if (facts.strides[i] != expected) return false;
    expected *= facts.shape[i];
  }
  return true;
}

bool is_aligned(const TensorFacts& facts, std::int64_t bytes) {
  if (bytes <= 0) fail(fmt::format("aligned() takes a positive number of bytes, found {}", bytes));
  if (is_empty(facts)) return true;
  if (facts.alignment % bytes != 0) return false;
  for (std::size_t i = 0; i + 1 < facts.shape.size(); ++i)
    if (facts.shape[i] > 1 && facts.strides[i] % bytes * size_of(facts.type) % bytes != 0) return false;
  return true;
}

// Whether a tensor map reaches it as it lies (backends/cuda/cuda_tensor_map.cpp). A dim of one element is never stepped over.
bool is_mappable(const TensorFacts& facts) {
  if (!is_aligned(facts, 16)) return false;
  const std::int64_t longest = (std::int64_t{1} << 40) / size_of(facts.type);
  for (std::size_t i = 0; i + 1 < facts.shape.size() && !is_empty(facts); ++i)
    if (facts.shape[i] > 1 && (facts.strides[i] <= 0 || facts.strides[i] >= longest)) return false;
  return true;
}

// The step of dimensions [first, end) walked as one: each steps over the whole of the next. 0 if they have at most one element; none: they
// do not step as one.
std::optional<std::int64_t> common_step(const TensorFacts& facts, std::size_t first, std::size_t end) {
  if (is_empty(facts)) return 0;
  std::optional<std::int64_t> step;
  std::int64_t expected = 0;
  for (std::size_t i = end; i-- > first;) {
    if (facts.shape[i] == 1) continue;
    if (!step) step = expected = facts.strides[i];
    if (facts.strides[i] != expected || __builtin_mul_overflow(expected, facts.shape[i], &expected)) return std::nullopt;
  }
  return step.value_or(0);
}

// Of the dimensions of a tensor's rest extent: 0 where it has none. Trailing ones are walked by 1, as a row is.
std::optional<std::int64_t> folded_step(const TensorSpec& tensor, const std::string& form, const TensorFacts& facts) {
  const std::size_t rank = facts.shape.size();
  const Shape* shape = shape_for(tensor, form, rank);
  if (!shape || !shape->has_rest()) return 0;
  const std::size_t first = shape->rest(), end = first + rank + 1 - shape->extents.size();
  const auto step = common_step(facts, first, end);
  return step && end == rank && *step != 0 && *step != 1 ? std::nullopt : step;
}

std::int64_t folded_stride(const TensorSpec& tensor, const std::string& form, const TensorFacts& facts) {
  if (const auto step = folded_step(tensor, form, facts)) return *step;
  fail(fmt::format("folded_stride({}): the dimensions of `{}` do not step as one in shape {} with strides {}; ask foldable({})",
                   tensor.name, shape_text(*shape_for(tensor, form, facts.shape.size())), shape_text(facts.shape),
                   shape_text(facts.strides), tensor.name));
}

// Of dim `index`, which may be negative.
std::int64_t extent_or_stride(std::string_view function, const TensorFacts& facts, std::string_view name, std::int64_t index) {
  const auto rank = static_cast<std::int64_t>(facts.shape.size());
  const std::int64_t i = index < 0 ? index + rank : index;
  if (i < 0 || i >= rank) fail(fmt::format("{}({}, {}): {} has {} dimensions", function, name, index, name, rank));
  const auto at = static_cast<std::size_t>(i);
  return function == "extent" ? facts.shape[at] : facts.shape[at] == 1 ? 0 : facts.strides[at];
}

std::int64_t integer_argument(std::string_view function, std::string_view name, std::span<const Value> rest) {
  const auto* value = rest.empty() ? nullptr : std::get_if<std::int64_t>(&rest[0]);
  if (!value) fail(fmt::format("{}({}, n): n must be an integer", function, name));
  return *value;
}

// Elements above rest[0] count as rest[0].
Value sum_of(const HostIntegers& data, std::string_view name, std::span<const Value> rest) {
  const std::int64_t most = integer_argument("sum", name, rest);
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < data.count(); ++i)
    if (__builtin_add_overflow(total, std::min(data[i], most), &total)) fail(fmt::format("sum({}) overflows", name));
  return total;
}

// Elements that count: all, or the first ones where the call says how many.
std::int64_t counted(std::string_view function, const HostIntegers& data, std::string_view name, std::span<const Value> count) {
  return count.empty() ? data.count() : std::min(data.count(), integer_argument(function, name, count));
}

Value outside(const HostIntegers& data, std::string_view name, std::span<const Value> rest) {
  const std::int64_t low = integer_argument("outside", name, rest), high = integer_argument("outside", name, rest.subspan(1));
  for (std::int64_t i = 0; i < counted("outside", data, name, rest.subspan(2)); ++i)
    if (data[i] < low || data[i] > high) return fmt::format("{}[{}] is {}", name, i, data[i]);
  return std::string();
}

}  // namespace

bool reads_data(std::string_view function) {
  static constexpr std::string_view readers[] = {"first", "last", "nondecreasing", "smallest", "chunks", "sum", "outside", "outside_rows"};
  return std::find(std::begin(readers), std::end(readers), function) != std::end(readers);
}

Value read_data(std::string_view function, std::string_view name, const TensorFacts& facts, const void* host_data,
                std::span<const Value> rest) {
  if (function == "sum" && !host_data && !is_empty(facts)) return rest[1];
  const bool of_all = function == "outside" && rest.size() == 2;
  const HostIntegers data({name, &facts, host_data}, function, of_all ? 0 : 1);
  if (of_all) return data.outside(name, integer_argument(function, name, rest), integer_argument(function, name, rest.subspan(1)));
  if (function == "sum") return sum_of(data, name, rest);
  if (function == "outside") return outside(data, name, rest);
  if (function == "nondecreasing") {
    for (std::int64_t i = 1; i < counted(function, data, name, rest); ++i)
      if (data[i] < data[i - 1]) return false;
    return true;
  }
  if (function == "chunks") {
    const auto* size = rest.empty() ? nullptr : std::get_if<std::int64_t>(&rest[0]);
    if (!size || *size <= 0) fail(fmt::format("chunks({}, c): c must be a positive integer", name));
    std::int64_t total = 0;
    for (std::int64_t i = 1; i < data.count(); ++i) {
      const std::int64_t length = std::max<std::int64_t>(data[i] - data[i - 1], 0);
      if (__builtin_add_overflow(total, length / *size + (length % *size > 0), &total)) fail(fmt::format("chunks({}) overflows", name));
    }
    return total;
  }
  if (data.count() == 0) fail(fmt::format("{}({}): {} has no elements", function, name, name));
  if (function == "smallest") {
    std::int64_t least = data[0];
    for (std::int64_t i = 1; i < data.count(); ++i) least = std::min(least, data[i]);
    return least;
  }
  return data[function == "first" ? 0 : data.count() - 1];
}

std::optional<Value> Binding::lookup(std::string_view name) const {
  if (const auto dim = dims.find(name); dim != dims.end()) return Value(dim->second);
  if (const auto attribute = attributes.find(name); attribute != attributes.end()) return attribute->second;
  if (const auto type = types.find(name); type != types.end()) return Value(type->second);
  if (name == "form") return Value(form);
  for (const Dim& dim : spec->dims)
    if (dim.name == name) unbound(*this, name, "dim");
  for (const auto& [variable, allowed] : spec->types)
    if (variable == name) unbound(*this, name, "type");
  if (const Attribute* attribute = spec->attribute(name)) {
    if (attribute->optional && !attribute->fallback)
      fail(fmt::format("attribute {} is not given and has no default; test given({})", name, name));
    fail(fmt::format("attribute {} has no value yet", name));
  }
  return std::nullopt;
}

std::optional<Value> Binding::call(std::string_view function, std::string_view name, std::span<const Value> rest) const {
  const TensorSpec* tensor = spec->tensor(name);
  const std::string key(name);
  if (function == "given" && !tensor && spec->server().attribute(name))
    return Value(facts.attributes.count(key) > 0 || (spec->same_as && spec->same_as->fixed(name)));
  if (!tensor) tensor = spec->server().tensor(name);  // never given
  if (!tensor) fail(fmt::format("{}({}): there is no tensor {}", function, name, name));
  const auto found = facts.tensors.find(key);
  const bool is_given = found != facts.tensors.end();
  if (function == "given") return Value(is_given);
  if (function == "contiguous") return Value(!is_given || is_contiguous(found->second));
  if (function == "aligned") return Value(!is_given || is_aligned(found->second, integer_argument(function, name, rest)));
  if (function == "mappable") return Value(!is_given || is_mappable(found->second));
  if (function == "foldable") return Value(!is_given || folded_step(*tensor, form, found->second).has_value());
  if (function == "nondecreasing" && !is_given) return Value(true);
  if (function == "sum" && !is_given) return rest[1];
  if (!is_given) fail(fmt::format("{}({}): {} is not given; test given({})", function, name, name, name));
  if (function == "folded_stride") return Value(folded_stride(*tensor, form, found->second));
  if (function == "rank") return Value(static_cast<std::int64_t>(found->second.shape.size()));
  if (function == "extent" || function == "stride")
    return Value(extent_or_stride(function, found->second, name, integer_argument(function, name, rest)));
  if (function == "outside_rows") return call_rows(name, found->second, rest);
  if (reads_data(function)) return read_data(function, name, found->second, found->second.host_data, rest);
  return std::nullopt;
}

Value Binding::call_rows(std::string_view name, const TensorFacts& table, std::span<const Value> rest) const {
  const auto& second = std::get<std::string>(rest[0]);
  const auto counts = facts.tensors.find(second);
  if (counts == facts.tensors.end()) fail(fmt::format("outside_rows({}, {}): {} is not given", name, second, second));
  return outside_rows({name, &table, table.host_data}, {second, &counts->second, counts->second.host_data}, rest.subspan(1));
}

}  // namespace ejk::spec
