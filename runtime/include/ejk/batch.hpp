// Several calls of one kernel under one config: along an axis of their tensors, or a shard a device.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>

#include "ejk/json.hpp"

namespace ejk {

// The axis of each tensor along which calls are made; negative ones count from the last. nullopt: every call sees the whole tensor.
// Tensors that are not named have axis 0.
using Axes = std::map<std::string, std::optional<int>>;

struct BatchReport {
  Config config;               // of every call
  std::int64_t calls = 0;      // that were asked for
  std::int64_t made = 0;       // 1 if they were folded into one
  std::string why_not_folded;  // why they were not; empty for shards, which are never folded
};

// Calls the kernel once for each index of the mapped axes, on the tensors without that axis, as a loop would: bit for bit, in order. The
// config is chosen once, by the first call. Where the spec knows a batch dim ("batch"), the variant says that folding keeps the bits
// ("fold"), and the strides allow it, all calls are one launch in which the axis is part of that dim; else they are a loop on one plan.
// Tensors: inputs and outputs, all given; every output is mapped. On an error nothing after the call that failed is made.
EJK_API Result<BatchReport> vmap_with_config(const std::string& kernel, const std::map<std::string, TensorView>& tensors,
                                             const Values& attributes = {}, const Axes& axes = {}, Stream stream = {},
                                             const Config* config = nullptr);

// One shard: the tensors of a call on one device, and the stream there.
struct Shard {
  std::map<std::string, TensorView> tensors;
  Stream stream;
};

// Calls the kernel on every shard under one config, chosen by the first. Shards have equal shapes, types and strides and lie on devices of
// equal fingerprint. On GPUs each shard's launches are put on its stream by the calling thread, so that all devices work at once. On the
// CPU shards run on the threads of the pool, one each, where there are at least as many shards as threads; else one after the other, each
// on all threads. Every shard is tried: the error names all that failed.
EJK_API Result<BatchReport> pmap_with_config(const std::string& kernel, std::span<const Shard> shards, const Values& attributes = {},
                                             const Config* config = nullptr);

}  // namespace ejk
