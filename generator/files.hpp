// Files read and written whole.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace ejk::generator {

// false: there is no such file. Throws std::runtime_error if it cannot be read.
bool read_file(const std::filesystem::path& path, std::string& bytes);

// By rename of a finished temporary file beside it. Throws std::runtime_error with the path.
void write_file(const std::filesystem::path& path, const std::string& bytes);

// Whether our mark (spec/render/banner.hpp) is where generated files have it.
bool carries_mark(std::string_view bytes);
bool file_carries_mark(const std::filesystem::path& path);

// The files below src/, include/ejk/ and python/ that carry our mark, by their names below `out`; in no order.
void for_each_marked_file(const std::filesystem::path& out, const std::function<void(const std::string& name)>& visit);

// Folders from this one up to `out`, without it, as long as they hold nothing.
void remove_empty_parents(std::filesystem::path folder, const std::filesystem::path& out);

}  // namespace ejk::generator
