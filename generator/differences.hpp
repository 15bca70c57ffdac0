// A tree compared with a folder: one line a difference. Nothing is written.
#pragma once
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "generator/fingerprint.hpp"
#include "generator/tree.hpp"

namespace ejk::generator {

class Differences : public Sink {
 public:
  explicit Differences(std::filesystem::path out);

  void file(const std::string& name, const std::string& bytes) override;
  void append(const std::string& name, std::string_view bytes) override;

  // Of the whole tree, by file: every line of kernels.lock, and the bytes of other files where they are present.
  std::vector<std::string> list();

 private:
  // A long file as far as it was compared.
  struct Compared {
    std::ifstream found;
    bool exists = false, same = true;
  };
  void add(const std::string& name, std::string sentence);
  void lock_line(std::string_view line);
  void finish_lock();

  const std::filesystem::path out_;
  std::map<std::string, Compared> compared_;
  std::string lock_;                     // the folder's, whole
  std::vector<std::string_view> lines_;  // of it, sorted
  std::vector<bool> met_;                // those that the tree has
  std::vector<Hash128> names_;
  std::multimap<std::string, std::string> list_;  // by file
};

// For people: of one kernel's lines of kernels.lock, and of its sources, the first three, and how many more there are.
std::vector<std::string> shortened(const std::vector<std::string>& differences);

}  // namespace ejk::generator
