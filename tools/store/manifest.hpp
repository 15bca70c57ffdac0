// manifest.json of ejk-gen: the rendered images, as `ejk build` compiles them.
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

}  // namespace ejk::tools
