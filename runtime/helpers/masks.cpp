// What ejk/masks.hpp declares: masks, and the rules that make them.
#include "ejk/masks.hpp"

#include <algorithm>
#include <array>

#include "helpers/dense_mask.hpp"
#include "helpers/host_tensors.hpp"

namespace ejk::masks {

using helpers::check_size;
using helpers::DenseMask;
using helpers::elements;
using helpers::refuse;

// Of queries and keys: [B, Sq] and [B, Sk] of i32, one row of which may serve all of the other's.
struct Rows {
  std::int64_t batch = 0, q_len = 0, kv_len = 0;
  std::vector<std::int32_t> q, kv;
  std::int64_t q_rows = 0, kv_rows = 0;

  std::int32_t query(std::int64_t b, std::int64_t i) const { return q[static_cast<std::size_t>((q_rows == 1 ? 0 : b) * q_len + i)]; }
  std::int32_t key(std::int64_t b, std::int64_t j) const { return kv[static_cast<std::size_t>((kv_rows == 1 ? 0 : b) * kv_len + j)]; }
};

static Rows rows_of(const TensorView& q, const TensorView& kv_or_none, const std::string& what) {
  const TensorView& kv = kv_or_none.given() ? kv_or_none : q;
  helpers::check(q, ("q_" + what).c_str(), DType::i32, 2, 2);
  helpers::check(kv, ("kv_" + what).c_str(), DType::i32, 2, 2);
  Rows rows{0, q.shape[1], kv.shape[1], elements<std::int32_t>(q), elements<std::int32_t>(kv), q.shape[0], kv.shape[0]};
  if (rows.q_rows != rows.kv_rows && rows.q_rows != 1 && rows.kv_rows != 1)
    refuse(fmt::format("q_{} has {} rows, kv_{} {}; expected as many, or 1", what, rows.q_rows, what, rows.kv_rows));
  rows.batch = rows.q_rows == 1 ? rows.kv_rows : rows.q_rows;
  return rows;
}

// sees(b, i, j) for each element.
template <class Rule>
static Tensor dense(std::int64_t batch, std::int64_t q_len, std::int64_t kv_len, const Rule& sees) {
  Tensor mask(DType::boolean, {batch, 1, q_len, kv_len});
  auto* out = mask.data<std::uint8_t>();
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < q_len; ++i)
      for (std::int64_t j = 0; j < kv_len; ++j) *out++ = sees(b, i, j) ? 1 : 0;
  return mask;
}

Result<Tensor> segment_mask(const TensorView& q_segment_ids, const TensorView& kv_segment_ids) {
  return guarded([&]() -> Result<Tensor> {
    const Rows ids = rows_of(q_segment_ids, kv_segment_ids, "segment_ids");
    return dense(ids.batch, ids.q_len, ids.kv_len,
                 [&](std::int64_t b, std::int64_t i, std::int64_t j) { return ids.query(b, i) >= 0 && ids.query(b, i) == ids.key(b, j); });
  });
}

// Ids of one row of the batch: a rectangle is named by the first key that its queries see.
static void name_rectangles(const DenseMask& mask, std::int64_t b, std::int32_t* q, std::int32_t* kv) {
  std::vector<std::int64_t> first_key(static_cast<std::size_t>(mask.q_len()), -1);
  std::vector<char> opens(static_cast<std::size_t>(mask.kv_len()));
  for (std::int64_t i = 0; i < mask.q_len(); ++i)
    for (std::int64_t j = 0; j < mask.kv_len() && first_key[static_cast<std::size_t>(i)] < 0; ++j)
      if (mask.at(b, 0, i, j)) opens[static_cast<std::size_t>(j)] = 1, first_key[static_cast<std::size_t>(i)] = j;
  std::vector<std::int32_t> number(opens.size());
  for (std::size_t j = 0, next = 0; j < opens.size(); ++j) number[j] = static_cast<std::int32_t>(opens[j] ? next++ : next);
  std::fill_n(kv, mask.kv_len(), -1);
  for (std::int64_t i = mask.q_len() - 1; i >= 0; --i) {
    const std::int64_t first = first_key[static_cast<std::size_t>(i)];
    q[i] = first < 0 ? -1 : number[static_cast<std::size_t>(first)];
    for (std::int64_t j = 0; j < mask.kv_len(); ++j)
      if (mask.at(b, 0, i, j)) kv[j] = q[i];
  }
}

Result<Segments> segments_from_mask(const TensorView& view) {
  return guarded([&]() -> Result<Segments> {
    const DenseMask mask(view, "mask");
    Segments found{Tensor(DType::i32, {mask.batch(), mask.q_len()}), Tensor(DType::i32, {mask.batch(), mask.kv_len()})};
    auto *q = found.q.data<std::int32_t>(), *kv = found.kv.data<std::int32_t>();
    for (std::int64_t b = 0; b < mask.batch(); ++b, q += mask.q_len(), kv += mask.kv_len()) {
      if (mask.heads() == 0) {
        std::fill_n(q, mask.q_len(), -1);
        std::fill_n(kv, mask.kv_len(), -1);
        continue;
      }
      name_rectangles(mask, b, q, kv);
      for (std::int64_t h = 0; h < mask.heads(); ++h)
        for (std::int64_t i = 0; i < mask.q_len(); ++i)
          for (std::int64_t j = 0; j < mask.kv_len(); ++j)
            if (mask.at(b, h, i, j) != (q[i] >= 0 && q[i] == kv[j]))
              refuse(fmt::format(
                  "mask is no union of rectangles without a row or column in common: segments would say otherwise at [{}, {}, {}, {}]; "
                  "pass it as it is",
                  b, h, i, j));
    }
    return found;
  });
}

static std::int64_t floor_divided(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && a < 0); }

Result<Tensor> position_mask(std::int64_t q_len, std::int64_t kv_len, const Positions& rule) {
  return guarded([&]() -> Result<Tensor> {
    check_size(q_len, "q_len", 0);
    check_size(kv_len, "kv_len", 0);
    check_size(rule.window_left, "window_left", -1);
    check_size(rule.window_right, "window_right", -1);
    check_size(rule.chunk_size, "chunk_size", 0);
    const std::int64_t offset = rule.causal_offset.value_or(kv_len - q_len), c = rule.chunk_size;
    if (offset < -(1LL << 31) || offset > (1LL << 31)) refuse(fmt::format("causal_offset is {}; expected -2^31 to 2^31", offset));
    return dense(1, q_len, kv_len, [&](std::int64_t, std::int64_t query, std::int64_t j) {
      const std::int64_t i = query + offset;
      return (!rule.causal || j <= i) && (rule.window_left < 0 || j >= i - rule.window_left) &&
             (rule.window_right < 0 || j <= i + rule.window_right) && (c == 0 || (j <= i && floor_divided(i, c) == j / c));
    });
  });
}

Result<Tensor> token_type_mask(const TensorView& q_types, const TensorView& kv_types, ZeroPolicy zero) {
  return guarded([&]() -> Result<Tensor> {
    const Rows types = rows_of(q_types, kv_types, "types");
    return dense(types.batch, types.q_len, types.kv_len, [&](std::int64_t b, std::int64_t i, std::int64_t j) {
      return types.query(b, i) == types.key(b, j) &&
             (zero == ZeroPolicy::none || types.query(b, i) != 0);  // if one of two equal ones is 0, so is the other
    });
  });
}

Result<Tensor> kv_length_mask(const TensorView& kv_lengths, std::int64_t q_len, std::int64_t kv_len) {
  return guarded([&]() -> Result<Tensor> {
    helpers::check(kv_lengths, "kv_lengths", DType::i32, 1, 1);
    check_size(q_len, "q_len", 0);
    check_size(kv_len, "kv_len", 0);
    const auto lengths = elements<std::int32_t>(kv_lengths);
    return dense(kv_lengths.shape[0], q_len, kv_len,
                 [&](std::int64_t b, std::int64_t, std::int64_t j) { return j < lengths[static_cast<std::size_t>(b)]; });
  });
}

template <class Join>
static Result<Tensor> joined(const TensorView& a, const TensorView& b, const Join& join) {
  return guarded([&]() -> Result<Tensor> {
    const DenseMask one(a, "a"), other(b, "b");
    const auto larger = [](std::int64_t x, std::int64_t y) { return x == 1 ? y : x; };
    if (one.q_len() != other.q_len() || one.kv_len() != other.kv_len() ||
        (one.batch() != other.batch() && one.batch() != 1 && other.batch() != 1) ||
        (one.heads() != other.heads() && one.heads() != 1 && other.heads() != 1))
      refuse(fmt::format("masks of {} and {}; expected the same sizes, or 1 row or head in one", one.sizes(), other.sizes()));
    Tensor mask(DType::boolean, {larger(one.batch(), other.batch()), larger(one.heads(), other.heads()), one.q_len(), one.kv_len()});
    const std::int64_t* shape = mask.view().shape;
    auto* out = mask.data<std::uint8_t>();
    for (std::int64_t n = 0; n < shape[0]; ++n)
      for (std::int64_t h = 0; h < shape[1]; ++h)
        for (std::int64_t i = 0; i < shape[2]; ++i)
          for (std::int64_t j = 0; j < shape[3]; ++j) *out++ = join(one.at(n, h, i, j), other.at(n, h, i, j)) ? 1 : 0;
    return mask;
  });
}

Result<Tensor> both(const TensorView& a, const TensorView& b) {
  return joined(a, b, [](bool x, bool y) { return x && y; });
}

Result<Tensor> either(const TensorView& a, const TensorView& b) {
  return joined(a, b, [](bool x, bool y) { return x || y; });
}

}  // namespace ejk::masks
