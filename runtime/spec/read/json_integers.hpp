// JSON text to a tree, of more integers than an int64 holds.
#pragma once
#include "spec/read/json.hpp"

namespace ejk::spec {

// any_64_bits: integers from 2^63 to 2^64 - 1 are legal, too; they alone are unsigned numbers of the tree.
enum class Integers { signed_64_bits, any_64_bits };
std::optional<Json> parse_json(const std::string& file, const std::string& text, std::vector<Fault>& faults, Integers integers);

}  // namespace ejk::spec
