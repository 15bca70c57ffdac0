// Where recorded calls go: this thread's open scopes, and the process's file.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "ejk/record.hpp"
#include "execute/recording_hook.hpp"

namespace ejk {

inline constexpr std::int64_t whole_alignment = 64;  // more is not looked at

// Alignment of each tensor as in RecordedInvocation, and the machine's archs and properties; machine may be null.
RecordedInvocation recorded_of(const Invocation& invocation, const Machine* machine);

// Recorded invocations by what they say, in order of first appearance.
class RecordedSet {
 public:
  void add(const RecordedInvocation& recorded);  // throws CodedError
  const std::vector<RecordedInvocation>& list() const { return list_; }

 private:
  std::vector<RecordedInvocation> list_;
  std::unordered_map<std::string, std::size_t> index_;  // by line, without the count
};

struct recording::Scope {
  RecordedSet calls;
  Scope* outer;
};

void add_to_scopes(const RecordedInvocation& recorded);

// The file or pipe of EJKERNEL_OPS_RECORD. Never destroyed. Thread-safe. Nothing here waits for a reader: a call does not stand still
// because nothing reads it.
class RecordFile {
 public:
  static RecordFile* of_process();  // nullptr: calls are not recorded; throws what reading the environment throws
  explicit RecordFile(std::string path) : path_(std::move(path)) {}
  // A line that this process has written already is passed over. After an error of a file no more is written; a pipe is tried again.
  void add(const RecordedInvocation& recorded);
  RecordingStatus status() const;

 private:
  void open();
  bool write_line(const std::string& line);
  void not_written(int error);
  void fail(const std::string& what, int error);
  void miss(std::string why);

  const std::string path_;
  mutable std::mutex mutex_;
  int fd_ = -1;
  bool stopped_ = false;                    // after an error that stays
  bool torn_ = false;                       // the file ends within a line
  std::unordered_set<std::uint64_t> seen_;  // hashes of lines: shapes that never repeat cost 16 bytes a call, not a line
  std::uint64_t lines_ = 0, lost_ = 0;
  std::string error_;  // of the last line, or the one that stopped the recording
};

}  // namespace ejk
