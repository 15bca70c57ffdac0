// Calls whose data is not there yet, for compilers that trace a program before it runs: what a call means, which config it gets and how
// much scratch it takes. Tensors have no data; an output that is not given is left to the call.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "ejk/export.hpp"
#include "ejk/kernel.hpp"
#include "ejk/result.hpp"
#include "ejk/tensor.hpp"
#include "ejk/value.hpp"

namespace ejk {

// The call by its kernel's contract, as JSON; "batch" is null where calls cannot be one call of a larger batch:
//   {"form": "batched", "dims": {"B": 2, ...},
//    "batch": {"dim": "B", "axes": {"q": 0, "bias": 0, "softmax_aux": null, ...}, "or_one": ["bias"]},
//    "outputs": {"out": {"type": "bf16", "shape": [2, 5, 4, 64]}, ...}}
// outputs: all of the kernel's; one whose shape only data tells has {"unknown": why}. axes: of the tensors given and of the outputs.
EJK_API Result<std::string> bind_call(const std::string& kernel, const std::map<std::string, TensorView>& tensors,
                                      const std::map<std::string, Value>& attributes);

// The config that such a call gets on its tensors' device; a binary of its image is made now. Addresses are taken to be multiples of 64.
struct Choice {
  Config config;
  std::string image;
  std::int64_t workspace_bytes = 0;  // what call() wants of the caller's Workspace
};
EJK_API Result<Choice> choose(const std::string& kernel, const std::map<std::string, TensorView>& tensors,
                              const std::map<std::string, Value>& attributes, const Config* config = nullptr);

}  // namespace ejk
