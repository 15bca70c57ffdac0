// Writing a pack: built beside its place, put there in one step.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "store/pack_plan.hpp"

namespace ejk::tools {

class PackWriter {
 public:
  // Throws UsageError if `out` holds something that is no pack of ours; std::runtime_error if its folder cannot be written.
  explicit PackWriter(std::filesystem::path out);
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;
  ~PackWriter();

  std::int64_t add_texts();  // specs and templates in use; their bytes
  // Builds what no store has. The images' bytes: source, binary and image.json; an image that could not be built has none and a line in
  // report.failures.
  std::vector<std::int64_t> obtain(std::vector<PackedImage>& images, int jobs,
                                   const std::function<void(const store::BuildEvent&)>& on_event, store::BuildReport& report);
  void add(const PackedImage& image);
  void finish(const std::string& summary);  // pack.json; then the pack takes the place of the one before it

 private:
  std::filesystem::path out_, staging_;
};

}  // namespace ejk::tools
