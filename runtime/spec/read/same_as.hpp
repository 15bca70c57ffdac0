// A kernel whose calls are calls of another one ("same_as"): it has a contract and cases of its own, and the other's variants and images.
#pragma once
#include <memory>

#include "spec/call/binding.hpp"

namespace ejk::spec {

// Adds the faults of what `spec` asks of `other`: tensors, attributes, dims and types of the same names and kinds, all that is required.
void check_same_as(const Spec& spec, const Spec& other, std::vector<Fault>& faults);

// Makes the other's variants those of `spec`, which is sound. What `other` knows and `spec` does not has no value, or its default.
void serve(Spec& spec, std::shared_ptr<const Spec> other);

}  // namespace ejk::spec
