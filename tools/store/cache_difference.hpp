// What a wanted image and the nearest entry of a place differ in, field by field.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "spec/render/image.hpp"
#include "store/cache_entries.hpp"

namespace ejk::tools {

struct Wanted {
  spec::Image image;
  const spec::Arch* arch = nullptr;
  Backend* backend = nullptr;
  std::string call;  // for people; empty: the image was named
};

struct Difference {
  std::string field;  // "variant", "arch", "specialisation", "config", "source, line 12", "compile command"
  std::string stored, wanted;
};

// The entry of the same id if there is one (then it is the source that differs), else the one whose id differs in the fewest parts.
struct Nearest {
  std::optional<CacheEntry> entry;
  std::vector<Difference> differences;
};
Nearest nearest_of(const Wanted& wanted, const std::vector<CacheEntry>& entries);

// A remembered failed build of the image: who refused it, and whether that still counts. nullopt: there is none.
std::optional<std::string> failure_of(const store::Store& place, const Wanted& wanted);

}  // namespace ejk::tools
