// Instructions that copy asynchronously, by family, and the lists of what they have started.
#include "emulator/ptx/memory/copies.hpp"

#include <algorithm>

#include "emulator/ptx/memory/memory_families.hpp"

namespace ejk::ptx {

void SmallCopies::run_until(std::uint64_t number) {
  for (; done_ < number && !copies_.empty(); ++done_) {
    copies_.front().run();
    copies_.pop_front();
  }
}

void SmallCopies::wait_for_all_but(std::size_t groups) {
  for (; groups_.size() > groups; groups_.pop_front()) run_until(groups_.front());
}

void BulkGroups::commit() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

void BulkGroups::wait_for_all_but(std::size_t groups) {
  for (; groups_.size() > groups; groups_.pop_front())
    for (const auto& piece : groups_.front()) piece->run();
}

bool BulkGroups::has_any() const {
  return !open_.empty() || std::ranges::any_of(groups_, [](const auto& group) { return !group.empty(); });
}

bool has_unwaited_stores(const Warp& warp, std::uint32_t lanes_of_it) {
  if (!warp.copies) return false;
  const auto& bulk = static_cast<const WarpCopies*>(warp.copies.get())->bulk;
  for (int lane = 0; lane < lanes; ++lane)
    if (lanes_of_it >> lane & 1 && bulk[static_cast<std::size_t>(lane)].has_any()) return true;
  return false;
}

std::shared_ptr<WarpCopies> copies_of(Warp& warp) {
  if (!warp.copies) warp.copies = std::make_shared<WarpCopies>();
  return std::static_pointer_cast<WarpCopies>(warp.copies);
}

std::shared_ptr<Piece> start_work(const Block& memory, const char* what, std::function<void()> work) {
  auto& grid = *memory.grid;
  if (grid.pace == Pace::eager) {
    work();
    return nullptr;
  }
  auto piece = std::make_shared<Piece>(std::move(work));
  grid.pending.push_back({piece, what, &memory});
  return piece;
}

bool decode_copies(const Parsed& parsed, Instruction& made) {
  return decode_barrier(parsed, made) || decode_small_copy(parsed, made) || decode_bulk_group(parsed, made) ||
         decode_tensor_copy(parsed, made) || decode_bulk_copy(parsed, made) || decode_remote(parsed, made);
}

}  // namespace ejk::ptx
