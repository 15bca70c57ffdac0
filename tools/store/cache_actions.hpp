// What `ejk cache` does, an action a function; each returns an exit code.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "command_line/arguments.hpp"

namespace ejk::tools {

struct CachePlace {
  std::string role;  // "user cache", "pack"
  std::filesystem::path root;
  bool writable = false;
};
std::vector<CachePlace> cache_places();  // in the order of look-up

int list_entries(const Arguments& arguments);
int verify_entries(const Arguments& arguments);
int prune_entries(const Arguments& arguments);
int why_miss(const Arguments& arguments);

// "--limit" as bytes. Throws UsageError.
std::optional<std::int64_t> size_option(const Arguments& arguments, const std::string& name);

}  // namespace ejk::tools
