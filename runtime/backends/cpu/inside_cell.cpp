// The scratch of the launch whose cell a thread is in.
#include "backends/cpu/inside_cell.hpp"

#include "backends/thread_table.hpp"

namespace ejk {
namespace {

thread_local Scratch* in_use = nullptr;  // nullptr: the thread is in no cell

}  // namespace

InsideCell::InsideCell() : before_(in_use), scratch_(before_ ? before_->nested() : of_thread<Scratch>()) { in_use = &scratch_; }
InsideCell::~InsideCell() { in_use = before_; }
bool InsideCell::any() { return in_use != nullptr; }

}  // namespace ejk
