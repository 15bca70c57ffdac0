// How a call would be carried out, as data; `ejk explain` and ejk_explain print it.
#pragma once
#include <nlohmann/json.hpp>
#include <span>

#include "ejk/call.hpp"
#include "execute/library_state.hpp"

namespace ejk {

// {kernel, form, dims, types, attributes, device, key (as in records), variants: [{name, arch, state, reason}], tiers: [{tier, answer,
// detail, config}],
//  evidence: null or {of, median_us, noise, samples, baseline, baseline_us, gain, residual, ..., alternatives: [{config, median_us}]},
//  near: [{where, measured, config, median_us, fault}], image: {id, hash, origin, from, seconds, fallback, tried}, workspace_bytes,
//  launches: [{entry, grid, block, shared_bytes}], cost: {flops, bytes}}. Makes the plan (so it may compile), launches nothing. Throws what
//  make_plan throws.
nlohmann::ordered_json explain(const KernelHandle& kernel, std::span<const TensorView* const> tensors,
                               std::span<const AttributeValue> attributes, const Config* config);

}  // namespace ejk
