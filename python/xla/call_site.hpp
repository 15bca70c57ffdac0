// A call of ejk in an XLA program: what its text says, read once, and a prepared call for each device that runs it.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ejk/ejk.h"

namespace ejk::xla {

// What XLA hands over of a buffer.
struct Buffer {
  int dtype;  // XLA_FFI_DataType
  void* data;
  const std::int64_t* dims;
  std::int64_t rank;
};

// The text is JSON, and all of the call but its data:
//   {"kernel": "flash_attention", "attributes": {"causal": true}, "config": {...} or null,
//    "tensors": [["q", "bf16", [2, 128, 4, 64]], ...],        operands, then results
//    "updates": [[5, 3], ...]}                                tensor 5, a result, is the memory of operand 3, updated; left out
//                                                            where there is none
// A result more than the tensors is the call's workspace.
class CallSite {
 public:
  explicit CallSite(std::string_view text);  // throws std::exception: the text is not of this version's making
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  std::size_t tensors() const { return shapes_.size(); }
  // nullptr: ejk_last_error() says why. Lives as long as the process.
  const ejk_prepared* prepared(int device_type, int ordinal);
  // The operand whose memory a result is; none: memory of its own.
  std::optional<std::size_t> updates(std::size_t result) const { return shapes_[result].updates; }
  const std::string& name(std::size_t index) const { return shapes_[index].name; }
  // "" or what buffer `index` has that the text does not say.
  std::string mismatch(std::size_t index, const Buffer& buffer) const;

 private:
  struct Shape {
    std::string name, type;
    std::vector<std::int64_t> dims;
    std::optional<std::size_t> updates{};
  };
  ejk_prepared* prepare(int device_type, int ordinal) const;

  static constexpr std::size_t most_devices = 64;
  std::string kernel_, attributes_, config_;
  std::vector<Shape> shapes_;
  std::mutex mutex_;
  std::array<std::atomic<ejk_prepared*>, most_devices> prepared_{};
};

// The site of this text: made on first use, found again without a lock by the thread that asked for it last.
CallSite& call_site(std::string_view text);

}  // namespace ejk::xla
