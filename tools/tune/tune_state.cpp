// Reading and appending the state file.
#include "tune/tune_state.hpp"

#include <fmt/format.h>

#include <sstream>

#include "store/files.hpp"
#include "tune/tune_report.hpp"

namespace ejk::tools {

using nlohmann::json;

TuneState::TuneState(const std::filesystem::path& file, bool resume) : path_(file) {
  store::make_folders(path_.parent_path());
  if (std::filesystem::exists(path_) && !std::filesystem::is_regular_file(path_))  // to open a pipe would wait for its other end
    throw std::runtime_error(fmt::format("{}: is not a regular file; the state of the run cannot be kept there", path_.string()));
  if (resume) read();
  file_ = std::fopen(path_.c_str(), resume ? "a" : "w");
  if (!file_) throw std::runtime_error(fmt::format("{}: the state of the run cannot be written there", path_.string()));
  if (resume) write("");  // ends a line that was torn off
}

TuneState::~TuneState() {
  if (file_) std::fclose(file_);
}

void TuneState::read() {
  std::string missing;
  auto text = store::read_file(path_, store::lines_limit, missing);
  std::istringstream stream(text ? std::move(*text) : "");
  for (std::string line; std::getline(stream, line);) {
    const auto node = json::parse(line, nullptr, false);
    if (!node.is_object() || !node.contains("key")) continue;
    try {
      auto& call = calls_[node["key"].dump()];
      if (node.contains("trial"))
        call.trials.push_back(trial_from_json(node["trial"]));
      else
        call.outcome = outcome_from_json(node.at("outcome"));
    } catch (const std::exception&) {
      continue;  // of another version
    }
  }
}

const TuningOutcome* TuneState::finished(const std::string& key) const {
  const auto call = calls_.find(key);
  return call == calls_.end() || !call->second.outcome ? nullptr : &*call->second.outcome;
}

bool TuneState::known(const std::string& key, const std::string& source, Trial& trial) const {
  const auto call = calls_.find(key);
  if (call == calls_.end()) return false;
  for (const auto& before : call->second.trials)
    if (before.config == trial.config && before.source == source) {
      trial = before;
      return true;
    }
  return false;
}

void TuneState::add(const std::string& key, const Trial& trial) {
  write(json{{"key", json::parse(key)}, {"trial", to_json(trial)}}.dump());
}

void TuneState::add(const std::string& key, const TuningOutcome& outcome) {
  write(json{{"key", json::parse(key)}, {"outcome", to_json(outcome)}}.dump());
}

void TuneState::write(const std::string& line) {
  if (std::fprintf(file_, "%s\n", line.c_str()) < 0 || std::fflush(file_) != 0)
    throw std::runtime_error(fmt::format("{}: the state of the run cannot be written there", path_.string()));
}

void TuneState::remove() {
  std::error_code error;
  std::filesystem::remove(path_, error);
}

std::size_t TuneState::configs() const {
  std::size_t count = 0;
  for (const auto& [key, call] : calls_) count += call.outcome ? call.outcome->trials.size() : call.trials.size();
  return count;
}

}  // namespace ejk::tools
