// The images that tuning records name: specs/tuned/<device>/<kernel>.jsonl.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "generator/enumerate.hpp"

namespace ejk::generator {

// One for each row that still holds: its call binds, its variant takes it, its config is valid, and the source is the one that was
// measured. Others are left out, as a call would pass them over. case_name is the row's file and line.
std::vector<ImagePlan> tuned_images(const spec::Catalogue& catalogue, const std::filesystem::path& specs,
                                    const std::shared_ptr<const spec::Spec>& spec);

}  // namespace ejk::generator
