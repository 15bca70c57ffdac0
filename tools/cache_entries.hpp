// What lies in a store: entries by scanning its folders, for the cache commands. The runtime never scans.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "store/store.hpp"

namespace ejk::tools {

struct CacheEntry {
  enum class Kind { image, failed, aside, leftover };  // a remembered failed build; a bad entry set aside; what a killed process left
  Kind kind = Kind::image;
  std::filesystem::path path;
  std::string kernel, name;  // name: "<id>-<source hash>" for images
  std::string id, hash;      // of images
  std::uintmax_t bytes = 0;
  double age_days = 0;  // since it was written
};

// Sorted by kernel and name. A root that does not exist is empty.
std::vector<CacheEntry> entries_of(const std::filesystem::path& root);

// "" or what is wrong with an image entry: image.json, the binary's hash, the source's hash.
std::string fault_of(const CacheEntry& entry);

}  // namespace ejk::tools
