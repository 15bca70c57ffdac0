// Recording: which distinct calls a program makes, as JSON lines without data. They are tuned, warmed and labelled by.
//
// EJKERNEL_OPS_RECORD=FILE appends each distinct call of a process once. A line is the call's key (Invocation::key() of
// Kernel::canonical(the call)) and, beside it, "alignment", "archs", "properties" and "count" where there is something to say: see
// RecordedInvocation. Each line is one write() at the end of the file, so that any number of processes may share it; on a network file
// system without atomic appends give each process its own. FILE may also be a pipe: it is written while it has a reader and room. No write
// waits, and a file that cannot be written never breaks a call: what is lost is counted. EJKERNEL_LOG=on says why once,
// recording_status() and info() at any time.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ejk/json.hpp"

namespace ejk {

// A call as it was recorded. Beside the invocation, all that the choice of its config and image depends on.
struct RecordedInvocation {
  Invocation invocation;  // its tensors have no data
  std::map<std::string, std::int64_t>
      alignment;                   // of tensors whose address was no multiple of 64: the largest power of two that divides it
  std::vector<std::string> archs;  // of the device, most specific first: "cuda:sm_90a"
  Values properties;               // of the device, as measured: "sms", "threads"
  std::uint64_t count = 1;         // calls of a scope; processes of a file
};
EJK_API Result<std::string> to_json(const RecordedInvocation& recorded);  // one line
EJK_API Result<RecordedInvocation> recorded_from_json(std::string_view line);

// What was read: each distinct invocation once, in order of first appearance, counts added up.
struct Recorded {
  std::vector<RecordedInvocation> invocations;
  std::vector<std::string> skipped;  // "trace.jsonl:7: not JSON: ..."
};

// Collects the calls of this thread while it lives, hot ones too; scopes nest, and outer ones hear everything. A call in a scope costs
// some microseconds more. Make and destroy it on one thread, inner scopes first.
class EJK_API recording {
 public:
  recording();
  recording(const recording&) = delete;
  recording& operator=(const recording&) = delete;
  ~recording();
  struct Scope;  // the library's

 private:
  friend EJK_API Recorded get_invocations(const recording& scope);
  std::unique_ptr<Scope> scope_;
};

EJK_API Recorded get_invocations(const recording& scope);
EJK_API Result<Recorded> get_invocations(const std::string& file);  // an error only if the file cannot be read

// Records a call that ejk does not see: of a kernel without a spec, or one made by other means. It goes to this thread's scopes and to
// the file. An error if it cannot be written as JSON or the file cannot be written; without scope and file it does nothing.
EJK_API Status record_invocation(const Invocation& invocation);

struct RecordingStatus {
  std::string file;         // EJKERNEL_OPS_RECORD; empty: calls are not recorded
  std::uint64_t lines = 0;  // written by this process
  std::uint64_t lost = 0;   // distinct calls that could not be written
  std::string error;        // empty: all is well; else why no more is written, or, to a pipe, why the last line was not
};
EJK_API RecordingStatus recording_status();

}  // namespace ejk
