// A covering sample of images: few of many, in which everything that an image can be made of is still met.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "spec/render/image.hpp"

namespace ejk::tools {

// What a sample is to meet of an image. Ids are unique among those that are sampled together.
struct CoverItem {
  std::string id;
  std::vector<std::string> features;
  bool built = false;  // its binary is at hand
};

// Pairs are many: a seed, the day's, has a part of them, and so many days in turn have all.
constexpr std::uint64_t pair_days = 8;
bool pair_drawn(std::uint64_t seed, const std::string& name);

// Compilers for GPUs take seconds an image, and a variant's source is nearly the same for all archs of a platform: each arch is met every
// day, and so is each variant, but a variant on a given arch of CUDA or HIP ("cuda:sm_80") every second day.
constexpr std::uint64_t arch_days = 2;
bool arch_drawn(std::uint64_t seed, const std::string& variant, const std::string& arch);

// The image's kernel and variant, its arch, and if the seed draws them these together; and of its variant, on any arch: each value of a
// specialisation, each two of them that the seed draws, and each value of a config parameter.
CoverItem cover_item(const std::string& id, const std::string& kernel, const std::string& variant, const std::string& arch,
                     std::span<const std::pair<std::string, spec::Value>> specialisation, const spec::Config& config, std::uint64_t seed);

// The image's kernel, variant and arch together, and nothing else: for a first look at each.
CoverItem brief_item(const std::string& id, const std::string& kernel, const std::string& variant, const std::string& arch);

// Indices into the items, ascending, such that every feature of any item is one of a chosen item's. Greedy: next is always what has most
// of the features still missing; among equals seed and id decide, so that another seed meets other images. Built items come first, and the
// others add what those lack: to compile takes longer than to run. One seed gives the same sample on every machine where the same are
// built, in whatever order the items stand.
std::vector<std::size_t> covering_sample(std::span<const CoverItem> items, std::uint64_t seed);

// A number below `count`, by seed and name: a single choice of a sample.
std::size_t drawn(std::uint64_t seed, const std::string& name, std::size_t count);

}  // namespace ejk::tools
