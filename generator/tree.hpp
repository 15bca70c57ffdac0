// The output tree: what it should hold, and bringing a folder to that state.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "spec/read/catalogue.hpp"
#include "spec/render/image.hpp"

namespace ejk::generator {

// Path below the output folder → bytes.
using Tree = std::map<std::string, std::string>;

// src/, include/ejk/, python/, kernels.lock, compile_commands.json, manifest.json. images: sorted by id.
Tree make_tree(const spec::Catalogue& catalogue, std::vector<spec::Image> images);

// Files of `out` that earlier runs wrote and the tree does not hold: below src/, include/ejk/ and python/, with our mark in their first
// lines.
std::vector<std::string> stale_files(const std::filesystem::path& out, const Tree& tree);

struct WriteReport {
  std::size_t written = 0, unchanged = 0, removed = 0;
};

// Unchanged files keep their mtime; others appear by rename of a finished temporary file. Throws std::runtime_error with the path.
WriteReport write_tree(const std::filesystem::path& out, const Tree& tree);

// One line a difference between the tree and the folder: every line of kernels.lock, and the bytes of other files where they are present.
std::vector<std::string> differences(const std::filesystem::path& out, const Tree& tree);

// false: there is no such file. Throws std::runtime_error if it cannot be read.
bool read_file(const std::filesystem::path& path, std::string& bytes);
void write_file(const std::filesystem::path& path, const std::string& bytes);

}  // namespace ejk::generator
