// manifest.json of ejk-gen: the rendered images, as `ejk build` compiles them; and its kernels.lock, what they were at another time.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "spec/read/catalogue.hpp"
#include "store/build.hpp"

namespace ejk::tools {

// Images of <generated>/manifest.json whose id matches `select` (a shell pattern), with their sources. Throws UsageError naming the file
// and what is wrong: no manifest, an unknown schema, a missing or edited source, an arch the catalogue does not have, a pattern that fits
// nothing.
std::vector<store::BuildItem> read_manifest(const std::filesystem::path& generated, const spec::Catalogue& catalogue,
                                            const std::string& select);

// Takes out the images that the kernels.lock `lock` ("<id> <hash>" a line) has with the same hash. Throws UsageError naming the file, the
// line and what is wrong.
void keep_other_than(std::vector<store::BuildItem>& items, const std::filesystem::path& lock);

}  // namespace ejk::tools
