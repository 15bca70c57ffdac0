// How tensors are spread over the devices of a mesh, as plain data, and keys that tell shardings apart.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ejk/kernel.hpp"

namespace ejk {

// Devices in a grid with named axes: {{"data", "model"}, {4, 2}}.
struct Mesh {
  std::vector<std::string> axes;
  std::vector<std::int64_t> shape;  // one size an axis
};

// The mesh axes that each dimension of a tensor is split over, outermost first; none: the dimension is whole on every device. Dimensions
// left out at the end are whole.
struct Sharding {
  Mesh mesh;
  std::vector<std::vector<std::string>> dims;
};

// Stable text: mesh[data=4,model=2]:[data|-|model]. An error for a mesh or dims that make no sense (an axis named twice, unknown, of size
// 0).
EJK_API Result<std::string> sharding_fingerprint(const Sharding& sharding);

// The invocation's key with the sharding of its tensors, by name: calls on shards of differently spread tensors have different keys.
// Tensors that are not named are not sharded. An error for the name of a tensor that the invocation does not have.
EJK_API Result<std::string> default_key_builder_with_sharding(const Invocation& invocation,
                                                              const std::map<std::string, Sharding>& shardings);

}  // namespace ejk
