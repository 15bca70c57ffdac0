// What a run of ejk-gen is asked to do.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace ejk::generator {

inline constexpr const char* version = "0.1.0";

struct Options {
  std::filesystem::path specs, templates, out;
  std::vector<std::string> archs;      // "avx2" or "cpu:avx2"; empty: all but the emulator's
  std::string select = "heuristic";    // tuned (heuristic, and the winners of records), heuristic, all, or a glob over image ids
  bool portfolio = false;              // --budget or --within: a set of images chosen by tuning records takes the place of `select`
  std::optional<std::int64_t> budget;  // bytes of the images; nullopt: as many as `within` needs
  double within = 0.05;                // of the best, over the tuned calls
  std::filesystem::path sizes;         // a store that knows sizes of binaries; empty: they are guessed
  std::string program;                 // hash of the program itself: another build of it makes everything anew
  // Told now and then how many images are counted (total: 0), or rendered. May throw: then nothing was written.
  std::function<void(std::size_t done, std::size_t total)> progress;
};

// A wrong option: the message says which, and what is known.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ejk::generator
