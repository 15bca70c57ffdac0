// What is "like" another, made whole: variants and cases by name, launches by entry.
//
// It has everything of the other but its name; what it says itself differs:
//   an object (config, let, specialize, limits, ...) is merged with the other's by key, at every depth; null removes a key. What is new
//   comes before the next of its own keys that the other has, too, else last (the order of config and specialize is that of ids);
//   a list takes the place of the other's. {"change": {K: value}, "also": [more]} edits the other's list instead: K names elements by their
//   text, name, entry or tensor_map. An object is merged with each, null removes it, a list puts several in its place, anything else one;
//   what `also` has comes after the rest;
//   anything else takes the place of what the other has.
// The other may be like a third one; circles are faults. A launch is like the first of that entry in its own variant, or else in the
// variant that its variant is like.
#pragma once
#include "spec/read/spec_size.hpp"

namespace ejk::spec {

// kernel: a whole spec, its cases spread (spread_cases.hpp). Afterwards nothing in it depends on another part, and the faults' origins know
// what came from where.
void resolve_like(Json& kernel, FileFaults& faults, CopyRoom& room);

}  // namespace ejk::spec
