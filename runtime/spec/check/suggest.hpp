// What an error about an unknown name adds: the nearest known one, or all of them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ejk::spec {

// "a, b, c"; "none" if empty.
std::string listed(const std::vector<std::string>& names);

// "; did you mean 'block_m'?" if one is near, else "; known: a, b, c", or "" if none is known.
std::string suggestion(std::string_view word, const std::vector<std::string>& known);

// At most `count` names, those that contain the word first, then by edit distance.
std::vector<std::string> nearest(std::string_view word, std::vector<std::string> known, std::size_t count);

}  // namespace ejk::spec
