// Block sizes of a forward and of a backward pass as plain structs, to Config and back. What is not set is left to the kernel's choice.
#pragma once
#include <cstdint>
#include <optional>

#include "ejk/kernel.hpp"

namespace ejk {

struct FwdParams {
  std::optional<std::int64_t> blocksize_m = {}, blocksize_n = {}, blocksize_k = {};  // rows, columns and reduction of a product
  std::optional<std::int64_t> q_blocksize = {}, kv_blocksize = {};                   // query rows and keys of an attention tile
  std::optional<std::int64_t> blocksize_heads = {}, blocksize_keys = {};             // heads a block, keys a block of paged attention
  std::optional<std::int64_t> num_key_splits = {};                                   // parts that the keys of a row are split into
  std::optional<std::int64_t> num_warps = {}, num_stages = {};                       // warps a block, copies under way
  friend bool operator==(const FwdParams&, const FwdParams&) = default;
};

struct BwdParams {
  std::optional<std::int64_t> blocksize_m = {}, blocksize_n = {}, blocksize_k = {};
  std::optional<std::int64_t> q_blocksize = {}, kv_blocksize = {};
  std::optional<std::int64_t> num_warps = {}, num_stages = {};
  friend bool operator==(const BwdParams&, const BwdParams&) = default;
};

// A config whose values are the fields that are set, under their own names: for kernels that name their parameters so. Variant and arch
// are left open.
EJK_API Config to_config(const FwdParams& params);
EJK_API Config to_config(const BwdParams& params);

// The fields that the config has; its other values are left aside. An error for a field that is no integer above 0.
EJK_API Result<FwdParams> fwd_params(const Config& config);
EJK_API Result<BwdParams> bwd_params(const Config& config);

}  // namespace ejk
