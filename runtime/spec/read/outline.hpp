// Where the parts of a JSON text stand, told by quotes and brackets alone, for a tenth of what reading costs. Of a text that is no JSON it
// may tell anything, or nothing; of JSON it tells the truth.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

namespace ejk::spec {

struct Outline {
  std::string_view key;        // of a field: what stands between its quotes, escapes and all
  std::string_view text;       // the value without the space around it
  std::vector<Outline> parts;  // an object's fields, a list's elements; below the depth asked for, none

  bool is_object() const { return text.starts_with('{'); }
  bool is_list() const { return text.starts_with('['); }
};

// depth: 1 has the parts of the whole, 2 also theirs. nullopt: the ends of its parts are not found.
std::optional<Outline> outline_of(std::string_view text, int depth);

}  // namespace ejk::spec
