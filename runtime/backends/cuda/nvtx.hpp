// NVTX: named ranges on the host's time line, for profilers. No NVIDIA header or library is needed to build.
#pragma once
#include <string>

namespace ejk {

// Functions of the attached profiler, or of NVIDIA's library on its behalf. Thread-safe.
struct ProfilerRanges {
  int (*push)(const char* name) = nullptr;  // opens a range on this thread
  int (*pop)() = nullptr;                   // closes the innermost
  std::string found;                        // "NVTX_INJECTION64_PATH=/opt/...": what listens; empty: nothing does
  std::string why_not;                      // if nothing: what was looked for
  bool listening() const { return push && pop; }
};

// Looked for once: the tool that NVTX_INJECTION64_PATH names (Nsight Systems and CUPTI set it in the programs they start), else
// libnvToolsExt.so.1, which CUDA had up to version 12.
const ProfilerRanges& profiler_ranges();

// A range round what follows, if `ranges` is not null.
class ProfilerRange {
 public:
  ProfilerRange(const ProfilerRanges* ranges, const std::string& name) : ranges_(ranges) {
    if (ranges_) ranges_->push(name.c_str());
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange() {
    if (ranges_) ranges_->pop();
  }

 private:
  const ProfilerRanges* ranges_;
};

}  // namespace ejk
