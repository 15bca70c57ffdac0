// A thread's scratch memory for cells: 64-byte aligned, grows, is kept.
#pragma once
#include <cstddef>
#include <memory>

namespace ejk {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();
  // Throws std::bad_alloc. Contents are undefined; nullptr for 0 bytes.
  void* at_least(std::size_t bytes);
  Scratch& nested();  // for a launch from inside a cell, whose own scratch is in use

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<Scratch> nested_;
};

}  // namespace ejk
