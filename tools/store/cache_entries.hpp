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
  double age_days = 0;      // since it was written
  double idle_days = 0;     // since a call last took it from the user's cache; of packs, and of all but images: age_days
  bool superseded = false;  // an image of the same id, made later from another source, is there too
  bool in_use = false;      // a temporary folder whose process lives
};

const char* kind_text(CacheEntry::Kind kind);

// Those whose "<kernel>/<name>", name or id matches a shell pattern, sorted by kernel and name. A root that does not exist is empty.
std::vector<CacheEntry> entries_of(const std::filesystem::path& root, const std::string& pattern = "*");

// "" or what is wrong with an image (image.json, the binary's hash, the source's hash) or with a failed build's words.
std::string fault_of(const CacheEntry& entry);

}  // namespace ejk::tools
