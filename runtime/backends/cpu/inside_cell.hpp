// This thread is in a cell of a launch: launches from there run on it alone.
#pragma once
#include "backends/process/scratch.hpp"

namespace ejk {

class InsideCell {
 public:
  InsideCell();
  InsideCell(const InsideCell&) = delete;
  InsideCell& operator=(const InsideCell&) = delete;
  ~InsideCell();
  Scratch& scratch() { return scratch_; }  // the thread's; within a cell of another launch, one that it does not use
  static bool any();                       // on this thread

 private:
  Scratch* const before_;
  Scratch& scratch_;
};

}  // namespace ejk
