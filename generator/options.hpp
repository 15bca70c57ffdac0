// What a run of ejk-gen is asked to do.
#pragma once
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace ejk::generator {

inline constexpr const char* version = "0.1.0";

struct Options {
  std::filesystem::path specs, templates, out;
  std::vector<std::string> archs;    // "avx2" or "cpu:avx2"; empty: all but the emulator's
  std::string select = "heuristic";  // tuned (the heuristic's and those of the records), heuristic, all, or a glob over image ids
  std::string program;               // hash of the program itself: another build of it makes everything anew
};

// A wrong option: the message says which, and what is known.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ejk::generator
