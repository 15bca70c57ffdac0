// Masks of attention, on the host: bool tensors [B or 1, H or 1, Sq, Sk], true where a query sees a key, and the segment ids that say some
// of them shorter. docs/semantics.md, "Visibility" and "Masks and sequence helpers". Views are of host memory, of any strides; ids, types
// and lengths are i32.
#pragma once
#include <cstdint>
#include <optional>

#include "ejk/result.hpp"
#include "ejk/tensor.hpp"

namespace ejk::masks {

// Ids [B, Sq] and [B, Sk]; negative: padding.
struct Segments {
  Tensor q, kv;
};

// [B, 1, Sq, Sk]: true where ids are equal and not negative. kv_segment_ids not given: the queries'.
EJK_API Result<Tensor> segment_mask(const TensorView& q_segment_ids, const TensorView& kv_segment_ids = {});

// The ids that say the same as a mask [B, H, Sq, Sk], [B, Sq, Sk] or [Sq, Sk], which count up from 0 by the first key. An error unless the
// mask is a union of rectangles of which no two share a row or a column.
EJK_API Result<Segments> segments_from_mask(const TensorView& mask);

// Where query and key stand, as the kernels of attention have it.
struct Positions {
  bool causal = false;
  std::optional<std::int64_t> causal_offset = std::nullopt;  // of query 0 among the keys, also for windows and chunks; none: kv_len - q_len
  std::int64_t window_left = -1;                             // keys before the query's position, itself besides; -1: no limit
  std::int64_t window_right = -1;
  std::int64_t chunk_size = 0;  // above 0: keys of the query's own chunk of so many places, up to it
};
EJK_API Result<Tensor> position_mask(std::int64_t q_len, std::int64_t kv_len, const Positions& positions);  // [1, 1, q_len, kv_len]

// Which tokens of type 0, that of ordinary ones, match nothing: `none` makes it a type like others.
enum class ZeroPolicy { queries, keys, both, none };
// [B, 1, Sq, Sk]: true where types are equal. kv_types not given: the queries'.
EJK_API Result<Tensor> token_type_mask(const TensorView& q_types, const TensorView& kv_types = {}, ZeroPolicy zero = ZeroPolicy::queries);

EJK_API Result<Tensor> kv_length_mask(const TensorView& kv_lengths, std::int64_t q_len,
                                      std::int64_t kv_len);  // [B, 1, q_len, kv_len]: keys before a length

EJK_API Result<Tensor> both(const TensorView& a, const TensorView& b);    // where both masks are true; B and H as large as either's
EJK_API Result<Tensor> either(const TensorView& a, const TensorView& b);  // where one is

// A mask: dense, by segment ids, or both, which then must both allow a key. It is not changed: each method gives a new one.
class EJK_API MaskInfo {
 public:
  static Result<MaskInfo> from_attention_mask(const TensorView& mask);  // the mask is copied
  static Result<MaskInfo> from_segments(const TensorView& q_segment_ids, const TensorView& kv_segment_ids = {});
  static Result<MaskInfo> from_cu_seqlens(const TensorView& cum_seqlens_q, const TensorView& cum_seqlens_kv = {});  // a batch of one row

  std::int64_t q_len() const;
  std::int64_t kv_len() const;
  const Tensor& attention_mask() const { return mask_; }  // the dense part, not given where there is none
  const Segments& segments() const { return segments_; }  // likewise

  Result<Tensor> get_or_compute_attention_mask() const;  // all of it
  Result<Segments> get_or_compute_segment_ids() const;   // all of it, or an error

  Result<MaskInfo> apply_positions(const Positions& positions) const;  // causal, windows, chunks
  Result<MaskInfo> apply_kv_lengths(const TensorView& kv_lengths) const;
  enum class Combine { unite, intersect, replace };  // tokens of one type also see each other; see no others; that alone counts
  Result<MaskInfo> apply_token_type_ids(const TensorView& q_types, const TensorView& kv_types = {}, Combine combine = Combine::unite,
                                        ZeroPolicy zero = ZeroPolicy::queries) const;

 private:
  Result<MaskInfo> with(const Result<Tensor>& mask) const;
  Tensor mask_;
  Segments segments_;
};

}  // namespace ejk::masks
