// A store of the tree's specs and templates in a folder of its own, one template changed by a word, and a process of its own that tries it:
// what the trials of both emulators share.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace ejk::test {

// The n-th (from 0) `word` of a file below templates/ becomes `by`.
struct Change {
  std::string file, word;
  int occurrence = 0;
  std::string by;
};
// Throws std::invalid_argument if there are not so many.
std::string changed(const std::string& text, const Change& change);

// Links to specs/ and templates/ below `root`, the changed file's text, and a folder cache/; removed at the end.
class ChangedStore {
 public:
  ChangedStore(const std::filesystem::path& root, const std::optional<Change>& change);
  ChangedStore(const ChangedStore&) = delete;
  ChangedStore& operator=(const ChangedStore&) = delete;
  ~ChangedStore();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Ended {
  std::optional<int> status;  // what `run` returned, 0 to 63; nothing: the process was ended, or ended otherwise
  std::string words;          // what it wrote to stderr
};
// After `processor_seconds` of computing or `most_seconds` in all the process is ended.
Ended in_a_process(unsigned processor_seconds, unsigned most_seconds, const std::function<int()>& run);

}  // namespace ejk::test
