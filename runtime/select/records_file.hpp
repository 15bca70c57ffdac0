// One records file in memory: its text and an index of its keys. A row is parsed when it is asked for.
#pragma once
#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ejk/tuning.hpp"

namespace ejk {

// What tells one state of a file from another. All zero: there is none.
struct FileStamp {
  ino_t inode = 0;
  off_t size = 0;
  std::int64_t changed = 0;  // nanoseconds
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
FileStamp stamp_of(const std::string& path);
FileStamp stamp_of(const struct stat& facts);

class RecordsFile {
 public:
  struct Row {
    std::uint64_t hash;     // of the key
    std::string_view key;   // in the form of Invocation::key()
    std::string_view line;  // the row's text
    std::size_t number;     // of the line, from 1
  };

  explicit RecordsFile(const std::string& path);
  // Of a text that is read already; none: why not.
  RecordsFile(const FileStamp& stamp, std::optional<std::string> text, const std::string& why_not);
  RecordsFile(const RecordsFile&) = delete;
  RecordsFile& operator=(const RecordsFile&) = delete;

  const FileStamp& stamp() const { return stamp_; }
  bool exists() const { return stamp_ != FileStamp{}; }
  const std::vector<Row>& rows() const { return rows_; }       // by line
  const std::string& bad_lines() const { return bad_lines_; }  // "3 (not a JSON object), 7 (no config)"; or why the file cannot be read
  std::size_t bad_count() const { return bad_count_; }
  std::vector<const Row*> rows_of(std::string_view key) const;  // the latest first

 private:
  void index(std::optional<std::string> text, const std::string& why_not);
  void add(std::string_view line, std::size_t number);
  void add_bad(std::size_t number, std::string_view why);
  FileStamp stamp_;
  std::string text_;
  std::vector<std::unique_ptr<std::string>> rewritten_;  // keys that were not written in the usual form
  std::vector<Row> rows_;
  std::vector<std::uint32_t> by_hash_;  // indices of rows_
  std::string bad_lines_;
  std::size_t bad_count_ = 0;
};

}  // namespace ejk
