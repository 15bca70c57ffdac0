// What ejk/sequences.hpp declares.
#include "ejk/sequences.hpp"

#include <algorithm>
#include <type_traits>

#include "helpers/host_tensors.hpp"

namespace ejk::sequences {

using helpers::check_size;
using helpers::elements;
using helpers::made;
using helpers::offsets_of;
using helpers::refuse;
using Integers = std::vector<std::int32_t>;

static Tensor row(const Integers& values) {
  return made<std::int32_t>(DType::i32, std::vector{static_cast<std::int64_t>(values.size())}, values);
}

static Integers differences(const Integers& offsets) {
  Integers found;
  for (std::size_t i = 1; i < offsets.size(); ++i) found.push_back(offsets[i] - offsets[i - 1]);
  return found;
}

static Integers sums_of(const Integers& counts, const char* name) {
  Integers found{0};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0) refuse(fmt::format("{} has {} at [{}]; expected no negative length", name, counts[i], i));
    if (counts[i] > 0x7fffffff - found.back()) refuse(fmt::format("{} has more than 2^31 - 1 tokens in all", name));
    found.push_back(found.back() + counts[i]);
  }
  return found;
}

static Integers counts_of(const TensorView& mask) {
  helpers::check(mask, "mask", DType::boolean, 2, 2);
  const auto all = elements<std::uint8_t>(mask);
  Integers counts(static_cast<std::size_t>(mask.shape[0]));
  for (std::size_t b = 0; b < counts.size(); ++b) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(b) * mask.shape[1];
    counts[b] = static_cast<std::int32_t>(std::count_if(begin, begin + mask.shape[1], [](std::uint8_t each) { return each != 0; }));
  }
  return counts;
}

struct Place {
  std::int32_t part = -1, inside = -1;  // -1: behind the last part
};

static std::vector<Place> places(const Integers& offsets, std::optional<std::int64_t> extent, const char* name) {
  if (extent) {
    check_size(*extent, name, 0);
    if (*extent < offsets.back()) refuse(fmt::format("{} is {}; expected at least {}, the last offset", name, *extent, offsets.back()));
  }
  std::vector<Place> found(static_cast<std::size_t>(extent.value_or(offsets.back())));
  for (std::size_t n = 1; n < offsets.size(); ++n)
    for (std::int32_t t = offsets[n - 1]; t < offsets[n]; ++t)
      found[static_cast<std::size_t>(t)] = {static_cast<std::int32_t>(n - 1), t - offsets[n - 1]};
  return found;
}

static Tensor of(const std::vector<Place>& found, std::int32_t Place::*field) {
  Integers values;
  for (const Place& each : found) values.push_back(each.*field);
  return row(values);
}

static Tensor pairs(const std::vector<Place>& found) {
  Integers values;
  for (const Place& each : found) values.insert(values.end(), {each.part, each.inside});
  return made<std::int32_t>(DType::i32, std::vector<std::int64_t>{static_cast<std::int64_t>(found.size()), 2}, values);
}

static Integers chunks_before(const TensorView& cum_seqlens, std::int64_t chunk_size) {
  check_size(chunk_size, "chunk_size", 1);
  Integers counts = differences(offsets_of(cum_seqlens));
  for (std::int32_t& count : counts) count = static_cast<std::int32_t>((count + chunk_size - 1) / chunk_size);
  return sums_of(counts, "cum_seqlens");
}

Result<Tensor> lens(const TensorView& cum_seqlens) {
  return guarded([&]() -> Result<Tensor> { return row(differences(offsets_of(cum_seqlens))); });
}

Result<Tensor> lens_from_mask(const TensorView& mask) {
  return guarded([&]() -> Result<Tensor> { return row(counts_of(mask)); });
}

Result<Tensor> cum_seqlens_from_lens(const TensorView& lens) {
  return guarded([&]() -> Result<Tensor> {
    helpers::check(lens, "lens", DType::i32, 1, 1);
    return row(sums_of(elements<std::int32_t>(lens), "lens"));
  });
}

Result<Tensor> cum_seqlens_from_mask(const TensorView& mask) {
  return guarded([&]() -> Result<Tensor> { return row(sums_of(counts_of(mask), "mask")); });
}

Result<Tensor> position_ids(const TensorView& cum_seqlens, std::optional<std::int64_t> total) {
  return guarded([&]() -> Result<Tensor> { return of(places(offsets_of(cum_seqlens), total, "total"), &Place::inside); });
}

Result<Tensor> sequence_ids(const TensorView& cum_seqlens, std::optional<std::int64_t> total) {
  return guarded([&]() -> Result<Tensor> { return of(places(offsets_of(cum_seqlens), total, "total"), &Place::part); });
}

Result<Tensor> token_indices(const TensorView& cum_seqlens, std::optional<std::int64_t> total) {
  return guarded([&]() -> Result<Tensor> { return pairs(places(offsets_of(cum_seqlens), total, "total")); });
}

Result<Tensor> chunk_offsets(const TensorView& cum_seqlens, std::int64_t chunk_size) {
  return guarded([&]() -> Result<Tensor> { return row(chunks_before(cum_seqlens, chunk_size)); });
}

Result<Tensor> chunk_indices(const TensorView& cum_seqlens, std::int64_t chunk_size, std::optional<std::int64_t> count) {
  return guarded([&]() -> Result<Tensor> { return pairs(places(chunks_before(cum_seqlens, chunk_size), count, "count")); });
}

static std::int64_t product(std::span<const std::int64_t> extents) {
  std::int64_t found = 1;
  for (const std::int64_t each : extents) found *= each;
  return found;
}

// x is [before, tokens, after]; the sum over the tokens of a token's chunk or sequence, up to it or from it on.
template <class T>
static Tensor summed(const TensorView& x, int axis, const Integers& offsets, std::int64_t chunk, bool reverse) {
  using Sum = std::conditional_t<std::is_integral_v<T>, std::uint32_t, T>;  // whole numbers wrap
  const std::span<const std::int64_t> shape(x.shape, static_cast<std::size_t>(x.rank));
  const std::int64_t before = product(shape.first(static_cast<std::size_t>(axis))), tokens = x.shape[axis];
  const std::int64_t after = product(shape.subspan(static_cast<std::size_t>(axis) + 1));
  const std::vector<T> values = elements<T>(x);
  std::vector<T> sums(values.size());
  const auto sum_part = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = 0; b < before; ++b)
      for (std::int64_t a = 0; a < after; ++a) {
        Sum sum = 0;
        for (std::int64_t i = begin; i < end; ++i) {
          const auto at = static_cast<std::size_t>((b * tokens + (reverse ? begin + end - 1 - i : i)) * after + a);
          sum += static_cast<Sum>(values[at]);
          sums[at] = static_cast<T>(sum);
        }
      }
  };
  for (std::size_t n = 1; n < offsets.size(); ++n) {
    const std::int64_t step = chunk > 0 ? chunk : offsets[n];
    for (std::int64_t begin = offsets[n - 1]; begin < offsets[n]; begin += step)
      sum_part(begin, std::min<std::int64_t>(offsets[n], begin + step));
  }
  return made(x.type, shape, sums);
}

Result<Tensor> cumsum(const TensorView& x, const CumsumOptions& options) {
  return guarded([&]() -> Result<Tensor> {
    if (x.type != DType::f32 && x.type != DType::f64 && x.type != DType::i32)
      refuse(fmt::format("x has type {}, expected f32, f64 or i32", name_of(x.type)));
    helpers::check(x, "x", x.type, 1, max_rank);
    check_size(options.chunk_size, "chunk_size", 0);
    const int axis = options.axis < 0 ? options.axis + x.rank : options.axis;
    if (axis < 0 || axis >= x.rank)
      refuse(fmt::format("axis is {}; expected an axis of x, which has {} dimensions", options.axis, static_cast<int>(x.rank)));
    check_size(x.shape[axis], "the tokens' axis of x", 0);
    Integers offsets{0, static_cast<std::int32_t>(x.shape[axis])};
    if (options.cum_seqlens.given()) offsets = offsets_of(options.cum_seqlens);
    if (offsets.back() > x.shape[axis])
      refuse(fmt::format("the tokens' axis of x is {}; expected at least {}, the last offset", x.shape[axis], offsets.back()));
    const auto with = [&](auto zero) { return summed<decltype(zero)>(x, axis, offsets, options.chunk_size, options.reverse); };
    return x.type == DType::f32 ? with(0.0f) : x.type == DType::f64 ? with(0.0) : with(std::int32_t(0));
  });
}

}  // namespace ejk::sequences
