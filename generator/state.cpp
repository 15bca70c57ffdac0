// state.json of the output folder. It is about this machine's last run, so it stays out of the manifest and of git.
#include "generator/state.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "generator/files.hpp"
#include "generator/staged_tree.hpp"

namespace ejk::generator {
namespace {

namespace fs = std::filesystem;

// "name hash" of each file below the folder, sorted by name.
std::string folder_listing(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw std::runtime_error(fmt::format("{}: there is no such folder", folder.string()));
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::string listing, bytes;
  for (const fs::path& file : files)
    if (read_file(file, bytes))
      listing += fmt::format("{} {}\n", file.lexically_relative(folder).generic_string(), to_text(hash_of(bytes)));
  return listing;
}

}  // namespace

std::string inputs_hash(const Options& options) {
  std::string text = fmt::format("{}\n{}\n{}\n{}\n", version, options.program, options.select, fmt::join(options.archs, ","));
  if (options.portfolio)
    text += fmt::format("budget {} within {} sizes {}\n", options.budget.value_or(-1), options.within, options.sizes.string());
  text += fmt::format("specs\n{}templates\n{}", folder_listing(options.specs), folder_listing(options.templates));
  return to_text(hash_of(text));
}

bool is_up_to_date(const Options& options, const std::string& inputs, std::size_t& images) {
  std::string text;
  if (!read_file(options.out / "state.json", text)) return false;
  const auto state = nlohmann::json::parse(text, nullptr, false);
  try {
    if (state.at("inputs") != inputs) return false;
    images = state.at("images").get<std::size_t>();
    return state.at("outputs") == fingerprint_of(options.out);
  } catch (const nlohmann::json::exception&) {
    return false;  // not a state of ours: everything is made anew
  }
}

void write_state(const Options& options, const std::string& inputs, const std::string& fingerprint, std::size_t images) {
  const nlohmann::json state = {{"inputs", inputs}, {"images", images}, {"outputs", fingerprint}};
  write_file(options.out / "state.json", state.dump(1) + "\n");
}

}  // namespace ejk::generator
