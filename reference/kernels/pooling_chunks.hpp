// Which token rows each mean of mean_pooling is over: docs/semantics.md, "mean_pooling". Shared by the forward and the backward reference.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/call.hpp"

namespace ejk::reference {

// Rows [begin, end) of x, all tokens counted in one row-major list (batched: token s of sequence b is row b * S + s). One chunk an output
// row.
struct PoolingChunk {
  std::int64_t begin, end;
};

std::vector<PoolingChunk> pooling_chunks(const Call& call);
std::int64_t pooling_tokens(const Call& call);  // rows of x: B * S, or T
// Which rows count: the mask, or all.
std::vector<bool> pooling_visible(const Call& call);

// Sizes of another case of the same form, mask and chunking; for both directions.
spec::Case vary_pooling(const spec::Case& c, Rng& rng);
spec::Case random_pooling_case(Rng& rng);

}  // namespace ejk::reference
