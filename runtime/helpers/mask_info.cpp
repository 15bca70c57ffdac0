// MaskInfo: a mask, dense, by segment ids, or both.
#include "ejk/masks.hpp"
#include "ejk/sequences.hpp"
#include "helpers/dense_mask.hpp"
#include "helpers/host_tensors.hpp"

namespace ejk::masks {

static Tensor copied(const TensorView& ids) {
  return helpers::made(DType::i32, std::span(ids.shape, static_cast<std::size_t>(ids.rank)), helpers::elements<std::int32_t>(ids));
}

Result<MaskInfo> MaskInfo::from_attention_mask(const TensorView& mask) {
  return guarded([&]() -> Result<MaskInfo> {
    const helpers::DenseMask dense(mask, "attention_mask");
    MaskInfo info;
    info.mask_ = helpers::made(DType::boolean, std::vector{dense.batch(), dense.heads(), dense.q_len(), dense.kv_len()},
                               helpers::elements<std::uint8_t>(mask));
    return info;
  });
}

Result<MaskInfo> MaskInfo::from_segments(const TensorView& q_segment_ids, const TensorView& kv_segment_ids) {
  return guarded([&]() -> Result<MaskInfo> {
    const TensorView& kv = kv_segment_ids.given() ? kv_segment_ids : q_segment_ids;
    helpers::check(q_segment_ids, "q_segment_ids", DType::i32, 2, 2);
    helpers::check(kv, "kv_segment_ids", DType::i32, 2, 2);
    if (q_segment_ids.shape[0] != kv.shape[0])
      helpers::refuse(fmt::format("q_segment_ids has {} rows, kv_segment_ids {}; expected as many", q_segment_ids.shape[0], kv.shape[0]));
    MaskInfo info;
    info.segments_ = {copied(q_segment_ids), copied(kv)};
    return info;
  });
}

// [1, total]: each token's sequence.
static Tensor one_row(const TensorView& cum_seqlens) {
  auto ids = sequences::sequence_ids(cum_seqlens);
  if (!ids) throw CodedError(ids.error().code, ids.error().message);
  return helpers::made(DType::i32, std::vector<std::int64_t>{1, ids->view().shape[0]}, helpers::elements<std::int32_t>(*ids));
}

Result<MaskInfo> MaskInfo::from_cu_seqlens(const TensorView& cum_seqlens_q, const TensorView& cum_seqlens_kv) {
  return guarded([&]() -> Result<MaskInfo> {
    MaskInfo info;
    info.segments_.q = one_row(cum_seqlens_q);
    info.segments_.kv = cum_seqlens_kv.given() ? one_row(cum_seqlens_kv) : info.segments_.q;
    return info;
  });
}

std::int64_t MaskInfo::q_len() const { return mask_.view().given() ? mask_.view().shape[2] : segments_.q.view().shape[1]; }
std::int64_t MaskInfo::kv_len() const { return mask_.view().given() ? mask_.view().shape[3] : segments_.kv.view().shape[1]; }

Result<Tensor> MaskInfo::get_or_compute_attention_mask() const {
  if (!segments_.q.view().given()) return mask_;
  auto dense = segment_mask(segments_.q, segments_.kv);
  return mask_.view().given() && dense ? both(*dense, mask_) : dense;
}

Result<Segments> MaskInfo::get_or_compute_segment_ids() const {
  if (!mask_.view().given()) return segments_;
  const auto dense = get_or_compute_attention_mask();
  if (!dense) return dense.error();
  return segments_from_mask(*dense);
}

// This and the mask.
Result<MaskInfo> MaskInfo::with(const Result<Tensor>& mask) const {
  if (!mask) return mask.error();
  const auto dense = mask_.view().given() ? both(mask_, *mask) : *mask;
  if (!dense) return dense.error();
  MaskInfo info;
  info.mask_ = *dense;
  info.segments_ = segments_;
  return info;
}

Result<MaskInfo> MaskInfo::apply_positions(const Positions& positions) const { return with(position_mask(q_len(), kv_len(), positions)); }

Result<MaskInfo> MaskInfo::apply_kv_lengths(const TensorView& kv_lengths) const {
  return with(kv_length_mask(kv_lengths, q_len(), kv_len()));
}

Result<MaskInfo> MaskInfo::apply_token_type_ids(const TensorView& q_types, const TensorView& kv_types, Combine combine,
                                                ZeroPolicy zero) const {
  auto types = token_type_mask(q_types, kv_types, zero);
  if (!types) return types.error();
  const std::int64_t* shape = types->view().shape;
  if (shape[2] != q_len() || shape[3] != kv_len())
    return Error{ErrorCode::bad_input,
                 fmt::format("token types are of {} queries and {} keys; expected {} and {}", shape[2], shape[3], q_len(), kv_len())};
  if (combine == Combine::intersect) return with(types);
  if (combine == Combine::unite) {
    const auto whole = get_or_compute_attention_mask();
    types = whole ? either(*types, *whole) : whole;
  }
  if (!types) return types.error();
  MaskInfo info;
  info.mask_ = *types;
  return info;
}

}  // namespace ejk::masks
