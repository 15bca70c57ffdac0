// How large a spec may be, as written and made whole: what reads and checks it takes time and memory in proportion, or to the square of a
// list.
#pragma once
#include <cstddef>

#include "spec/read/json_node.hpp"

namespace ejk::spec {

inline constexpr std::size_t widest = 4096;  // entries of one list or object, cases with all their combinations; the longest here has 115
inline constexpr std::size_t longest_like = 64;        // parts in a row that are each like the next
inline constexpr std::size_t most_copied = 1'000'000;  // values that are copied to make a spec whole; the largest here has 0.1 million

// Lists and objects, each named, that have more entries.
void check_widths(const Json& kernel, FileFaults& faults);

// Values in it, itself included.
std::size_t count_values(const Json& json);

// What may still be copied to make one spec whole: a list whose elements each become several grows by powers along what is like what.
class CopyRoom {
 public:
  explicit CopyRoom(FileFaults& faults) : faults_(faults) {}
  // written: who asks. false, which is told once: no more.
  bool take(const Json& value, const std::string& written);

 private:
  FileFaults& faults_;
  std::size_t left_ = most_copied;
  bool told_ = false;
};

}  // namespace ejk::spec
