// Where recorded calls go: this thread's open scopes, and the process's file.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "ejk/record.hpp"
#include "execute/library_state.hpp"

namespace ejk {

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

// The innermost open scope of this thread. Read on every call: no wrapper, no lock.
extern constinit thread_local recording::Scope* open_recording;

void add_to_scopes(const RecordedInvocation& recorded);

// The file of EJKERNEL_OPS_RECORD. Never destroyed. Thread-safe.
class RecordFile {
 public:
  static RecordFile* of_process();  // nullptr: calls are not recorded; throws what reading the environment throws
  explicit RecordFile(std::string path) : path_(std::move(path)) {}
  // A line that this process has written already is passed over; so is everything after an error.
  void add(const RecordedInvocation& recorded);
  RecordingStatus status() const;

 private:
  void open();
  void write_line(const std::string& line);
  void fail(const std::string& what, int error);

  const std::string path_;
  mutable std::mutex mutex_;
  int fd_ = -1;
  bool opened_ = false;
  bool torn_ = false;                       // the file ends within a line
  std::unordered_set<std::uint64_t> seen_;  // hashes of lines: shapes that never repeat cost 16 bytes a call, not a line
  std::uint64_t lines_ = 0;
  std::string error_;
};

// A plan was made for this call: writes it to the file, if there is one. Never throws: a recording must not break a call.
void record_planned(const Invocation& invocation, const Machine& machine) noexcept;

// A call was made while a scope is open on this thread.
void record_call(const KernelHandle& kernel, std::span<const TensorView* const> tensors, std::span<const AttributeValue> attributes,
                 Stream stream) noexcept;

}  // namespace ejk
