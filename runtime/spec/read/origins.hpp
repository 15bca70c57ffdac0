// Where parts of a spec stand in its file, if not where their pointers say: what is "like" another has parts of that one (like.hpp).
#pragma once
#include <string>
#include <unordered_map>

namespace ejk::spec {

class Origins {
 public:
  // What is at `pointer`, and below it, is what the file has at `written`, or what another entry says of that place.
  void add(const std::string& pointer, const std::string& written) { written_[pointer] = written; }
  // The same of a place of the file itself, whatever entries say of that pointer: elements that come to stand elsewhere in their list.
  void settle(const std::string& pointer, const std::string& written) { settled_[pointer] = written; }
  // Where a reader edits what is at `pointer`.
  std::string written_at(std::string pointer) const;

 private:
  std::unordered_map<std::string, std::string> written_, settled_;
};

}  // namespace ejk::spec
