// What of a spec's text a process needs that calls on CPUs: neither its cases nor the variants that only GPUs run. Those are most of it.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/read/loader.hpp"

namespace ejk::spec {

struct Excerpt {
  std::string text;           // a spec whose cases are none, and whose variants that are left out are null
  std::string_view variants;  // the list as the whole text has it
  std::vector<bool> left;     // which variants are left out; empty: none
};

// A variant is left out if its archs, own or those of what it is like, are a plain list without a CPU, and no other that is taken is like
// it. nullopt: the text's outline cannot be told. Refers to `text`.
std::optional<Excerpt> excerpt_of(std::string_view text, Later later);

}  // namespace ejk::spec
