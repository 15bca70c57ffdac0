// A folder of one fuzzing process, in memory where there is such a place, removed at its end.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace fuzz {

class Scratch {
 public:
  Scratch() {
    std::error_code error;
    std::string pattern = (std::filesystem::is_directory("/dev/shm", error) ? "/dev/shm" : "/tmp") + std::string("/ejk-fuzz-XXXXXX");
    path_ = mkdtemp(pattern.data());
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write(const std::filesystem::path& file, const void* data, std::size_t size) {
  std::ofstream(file, std::ios::binary).write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
}

}  // namespace fuzz
