// The quick no-op: what the last run read and wrote, so that a run with nothing to do only reads and compares.
#pragma once
#include <string>

#include "generator/options.hpp"

namespace ejk::generator {

// Hash over specs, archs, templates, options and the program. Throws std::runtime_error for an unreadable folder.
std::string inputs_hash(const Options& options);

// state.json holds these inputs, and the folder has the files that it had then, byte for byte, and no others with our mark. images: how
// many there are.
bool is_up_to_date(const Options& options, const std::string& inputs, std::size_t& images);

// fingerprint: of the folder's files.
void write_state(const Options& options, const std::string& inputs, const std::string& fingerprint, std::size_t images);

}  // namespace ejk::generator
