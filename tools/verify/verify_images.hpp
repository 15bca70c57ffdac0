// Which images `ejk verify` checks: every variant on every arch that runs here, for each of the spec's cases.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "execute/library_state.hpp"
#include "spec/choose/decider.hpp"
#include "spec/render/image.hpp"

namespace ejk::tools {

struct VerifyFilter {
  std::string variant, arch, image = "*";  // arch: "avx2" or "cpu:avx2"; image: a shell pattern over ids
  bool all_configs = false;                // every valid config, not only the heuristic's
  bool built_only = false;                 // only images that some store has
  std::optional<std::uint64_t> cover;      // a covering sample of these, drawn with this seed
  bool brief = false;                      // a sample that meets every variant on every arch, and no more
};

struct VerifyImage {
  std::string id;
  const KernelHandle* kernel = nullptr;
  const spec::Variant* variant = nullptr;
  const spec::Arch* arch = nullptr;
  spec::Config config;
  std::vector<const spec::Case*> cases;  // that lead to this image

  std::string override_json() const;  // forces this variant, arch and config
  // Whether a bound call is served by this very image under the override; else why not.
  std::string why_not(const spec::Binding& binding) const;
};

// Whether a store has the image that this candidate would serve the call by, with its heuristic's config.
bool is_built(const KernelHandle& kernel, const spec::Candidate& candidate, const spec::Binding& binding, const Machine& machine);

// Sorted by id. Archs include parents and those for tests only. left_out grows by the images that filter.cover leaves to other seeds.
std::vector<VerifyImage> images_to_verify(const KernelHandle& kernel, const Machine& machine, const VerifyFilter& filter,
                                          std::size_t& left_out);

}  // namespace ejk::tools
