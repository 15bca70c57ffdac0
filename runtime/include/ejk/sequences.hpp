// Sequences laid end to end: lengths, places, chunks and sums of their tokens, on the host. docs/semantics.md, "Masks and sequence
// helpers". Offsets cum_seqlens are i32 [N + 1]; they begin with 0 and do not fall. Views are of host memory, of any strides. Results are
// new tensors, of i32 but for cumsum's; an Error of bad_input names the argument.
#pragma once
#include <cstdint>
#include <optional>

#include "ejk/result.hpp"
#include "ejk/tensor.hpp"

namespace ejk::sequences {

EJK_API Result<Tensor> lens(const TensorView& cum_seqlens);            // [N]: tokens of each sequence
EJK_API Result<Tensor> lens_from_mask(const TensorView& mask);         // [B]: tokens that count of each row of a bool [B, S]
EJK_API Result<Tensor> cum_seqlens_from_lens(const TensorView& lens);  // [N + 1] of lengths [N]
EJK_API Result<Tensor> cum_seqlens_from_mask(const TensorView& mask);  // [B + 1] of a bool [B, S]

// [total]: the place of each token in its sequence; its sequence, which is its segment id too; [total, 2]: sequence and place. -1 behind
// the last sequence. Without a total: as many as cum_seqlens says; fewer are an error.
EJK_API Result<Tensor> position_ids(const TensorView& cum_seqlens, std::optional<std::int64_t> total = std::nullopt);
EJK_API Result<Tensor> sequence_ids(const TensorView& cum_seqlens, std::optional<std::int64_t> total = std::nullopt);
EJK_API Result<Tensor> token_indices(const TensorView& cum_seqlens, std::optional<std::int64_t> total = std::nullopt);

// Each sequence cut into chunks of chunk_size tokens of its own, the last of which may be shorter.
EJK_API Result<Tensor> chunk_offsets(const TensorView& cum_seqlens, std::int64_t chunk_size);  // [N + 1]: chunks before each sequence
EJK_API Result<Tensor> chunk_indices(
    const TensorView& cum_seqlens, std::int64_t chunk_size,
    std::optional<std::int64_t> count = std::nullopt);  // [count, 2]: (sequence, number in it) of each chunk

struct CumsumOptions {
  std::int64_t chunk_size = 0;  // above 0: the sum begins anew with each chunk
  TensorView cum_seqlens = {};  // sequences laid end to end along the tokens; tokens behind the last give 0
  bool reverse = false;         // from the end of each chunk or sequence
  int axis = 1;                 // the tokens'
};
// Of x's shape, f32, f64 or i32, summed in that type.
EJK_API Result<Tensor> cumsum(const TensorView& x, const CumsumOptions& options = {});

}  // namespace ejk::sequences
