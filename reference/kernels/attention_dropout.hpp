// The law of dropout: which weights are dropped is told by docs/semantics.md, "Dropout", bit for bit, so every backend, tile size and pass
// draws one pattern.
#pragma once
#include "reference/reference.hpp"

namespace ejk::reference {

// Of out: with values that are 1 in one feature each, it is a table of the weights of some keys.
Property drops_what_philox_says();

// Of dv, likewise by cotangents of some queries. `complete` makes the forward pass of a changed call anew.
Property drops_what_the_forward_pass_dropped(void (*complete)(Call&));

}  // namespace ejk::reference
