// A folder brought to the state of a tree: what is new waits in a staging folder until all of it is there.
#pragma once
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "generator/fingerprint.hpp"
#include "generator/tree.hpp"

namespace ejk::generator {

struct WriteReport {
  std::size_t written = 0, unchanged = 0, removed = 0;
};

class StagedTree : public Sink {
 public:
  // Removes staging folders of runs that were killed.
  explicit StagedTree(std::filesystem::path out);
  ~StagedTree() override;  // without commit() the folder is as it was
  StagedTree(const StagedTree&) = delete;
  StagedTree& operator=(const StagedTree&) = delete;

  // Throw std::runtime_error with the path of what cannot be written.
  void file(const std::string& name, const std::string& bytes) override;
  void append(const std::string& name, std::string_view bytes) override;

  // Renames what is new into its place, then removes files of earlier runs that the tree does not hold: below src/, include/ejk/ and
  // python/, with our mark. Unchanged files keep their times.
  WriteReport commit();
  std::string fingerprint() const { return fingerprint_.text(); }

 private:
  std::filesystem::path staged(const std::string& name);
  void finish_long_files();
  void move_into_place();
  void remove_stale();
  void note(const std::string& name, const Hash128& bytes);

  const std::filesystem::path out_, staging_;
  std::filesystem::path first_made_;  // the uppermost folder that was made for the staging folder
  std::filesystem::path last_folder_;
  std::map<std::string, std::ofstream> long_files_;
  std::vector<Hash128> names_;  // of the tree's files; sorted before they are looked up
  Fingerprint fingerprint_;
  WriteReport report_;
};

// The fingerprint of what an earlier run left in the folder.
std::string fingerprint_of(const std::filesystem::path& out);

}  // namespace ejk::generator
