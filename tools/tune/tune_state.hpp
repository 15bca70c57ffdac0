// The state of a tuning run, a line of JSON for each config and each call that is finished: a run that was killed goes on from it.
#pragma once
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tune/outcome.hpp"

namespace ejk::tools {

class TuneState {
 public:
  // resume: reads what is there, and appends to it; else begins anew. Lines that were torn off are passed over. Throws
  // std::runtime_error naming the file if it cannot be written.
  TuneState(const std::filesystem::path& file, bool resume);
  TuneState(const TuneState&) = delete;
  TuneState& operator=(const TuneState&) = delete;
  ~TuneState();

  const TuningOutcome* finished(const std::string& key) const;
  // Fills in what is known of trial.config; false: nothing. What was found of another source of the image counts for nothing.
  bool known(const std::string& key, const std::string& source, Trial& trial) const;
  void add(const std::string& key, const Trial& trial);
  void add(const std::string& key, const TuningOutcome& outcome);
  void remove();  // the run is complete
  std::size_t configs() const;

 private:
  void read();
  void write(const std::string& line);
  struct Call {
    std::vector<Trial> trials;
    std::optional<TuningOutcome> outcome;
  };
  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
  std::map<std::string, Call> calls_;  // by key
};

}  // namespace ejk::tools
