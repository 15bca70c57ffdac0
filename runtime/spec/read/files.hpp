// Spec, arch and template files: which of a folder are read, and bounded reads of regular files alone.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spec/fault.hpp"

namespace ejk::spec {

// The files *.json of a folder that kernels or archs may be named by, sorted; what is passed over is told. Hidden files (an editor's
// .#x.json, the ._x.json that macOS leaves beside a copy) are nobody's specs and are not told. Throws std::runtime_error if the folder
// cannot be read.
struct JsonFiles {
  std::vector<std::filesystem::path> files;
  std::vector<Fault> passed_over;
};
JsonFiles json_files(const std::filesystem::path& folder);

inline constexpr std::size_t longest_text = 8u << 20;      // of a spec or an arch; the longest here has 0.2 MB
inline constexpr std::size_t longest_template = 1u << 20;  // the longest here has 0.05 MB
inline constexpr std::size_t longest_records = 1u << 30;   // of a file of tuning records

// The whole of a regular file of at most `limit` bytes. A pipe or a device in its place does not hang the reader: it is a fault, as is what
// cannot be read. The second throws SpecError.
std::optional<std::string> read_text(const std::filesystem::path& file, std::vector<Fault>& faults, std::size_t limit = longest_text);
std::string read_text(const std::filesystem::path& file);

}  // namespace ejk::spec
