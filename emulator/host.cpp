// The words that an image cannot say by itself.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulator/launch.hpp"
#include "emulator/numbers.hpp"

namespace ejk::simt {
namespace {

constexpr std::size_t copy_bytes = 16;

Block& block() { return *running_block().block; }
Operands& operands() { return block().running().operands; }
const Results& results() { return block().running().results; }

void require_aligned(const char* word, const void* at, int bytes) {
  if (reinterpret_cast<std::uintptr_t>(at) % static_cast<std::uintptr_t>(bytes))
    block().fail(fmt::format("{} at address {}, which is no multiple of {} bytes", word, at, bytes));
}

std::uint32_t shared_pointer(const void* at) {
  const auto number = running_block().shared->number_of(at);
  if (!number) block().fail(fmt::format("shared_pointer of address {}, which is not in the block's shared memory", at));
  return *number;
}

// Where 16 bytes of shared memory lie.
char* shared_bytes(const char* word, std::uint32_t number) {
  char* at = running_block().shared->address_of(number);
  require_aligned(word, at, copy_bytes);
  if (!running_block().shared->holds(at, copy_bytes))
    block().fail(fmt::format("{} at shared address {:#x}: its {} bytes are not in the block's shared memory", word, number, copy_bytes));
  return at;
}

void sync_block() { block().meet(Wait::sync_block); }
void sync_warp() { block().meet(Wait::sync_warp); }

bool vote(Wait word, bool x) {
  operands().words[0] = x;
  block().meet(word);
  return results().words[0];
}
bool any_in_block(bool x) { return vote(Wait::any_in_block, x); }
bool any_in_warp(bool x) { return vote(Wait::any_in_warp, x); }

std::uint32_t shuffle(SimtShuffle how, std::uint32_t x, int operand) {
  operands().words[0] = x;
  operands().operand = operand;
  block().meet(how == SimtShuffle::exclusive_or ? Wait::shuffle_xor : how == SimtShuffle::down ? Wait::shuffle_down : Wait::shuffle);
  return results().words[0];
}

void mma_16x8x16(SimtElement type, float* c, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1) {
  auto& given = operands();
  std::copy_n(a, 4, given.words);
  given.words[4] = b0;
  given.words[5] = b1;
  std::copy_n(c, 4, given.c);
  block().meet(type == SimtElement::half ? Wait::mma_half : Wait::mma_bfloat16);
  std::copy_n(results().c, 4, c);
}

void load_matrices(std::uint32_t* r, std::uint32_t row, bool transposed) {
  const auto word = transposed ? Wait::load_matrices_transposed : Wait::load_matrices;
  operands().row = shared_bytes(word_of(word), row);
  block().meet(word);
  std::copy_n(results().words, 4, r);
}

void copy_async_16(std::uint32_t number, const void* from, bool wanted) {
  char* to = shared_bytes("copy_async_16 to shared memory", number);
  require_aligned("copy_async_16 from global memory", from, copy_bytes);
  if (wanted && running_block().shared->holds(from, copy_bytes)) block().fail("copy_async_16 from shared memory: it reads global memory");
  make_undefined(to, copy_bytes);
  auto& thread = block().running();
  thread.copies.push_back({to, from, wanted, thread.groups});
}

void copy_async_commit() { ++block().running().groups; }

// Copies that were never committed belong to the next group: they are not waited for.
void copy_async_wait(int pending) {
  auto& thread = block().running();
  const auto arrived = [&](const PendingCopy& copy) { return copy.group < thread.groups - pending; };
  for (const auto& copy : thread.copies) {
    if (!arrived(copy)) continue;
    copy.wanted ? std::memcpy(copy.to, copy.from, copy_bytes) : std::memset(copy.to, 0, copy_bytes);
  }
  std::erase_if(thread.copies, arrived);
}

std::uint32_t permute_wave(std::uint32_t x, int from) {
  operands().words[0] = x;
  operands().operand = from;
  block().meet(Wait::permute_wave);
  return results().words[0];
}

std::uint64_t ballot_wave(bool x) {
  operands().words[0] = x;
  block().meet(Wait::ballot_wave);
  return results().ballot;
}

std::uint32_t exchange_wave(std::uint32_t x, int mask) {
  operands().words[0] = x;
  operands().operand = mask;
  block().meet(Wait::exchange_wave);
  return results().words[0];
}

void multiply_wave(SimtElement type, SimtMatrix layout, float* c, const std::uint32_t* a, const std::uint32_t* b) {
  auto& given = operands();
  const int words = operand_words(layout), sums = sums_a_lane(layout);
  std::copy_n(a, words, given.words);
  std::copy_n(b, words, given.words + 8);
  std::copy_n(c, sums, given.c);
  given.layout = layout;
  block().meet(type == SimtElement::half ? Wait::multiply_half : Wait::multiply_bfloat16);
  std::copy_n(results().c, sums, c);
}

void* shared_at(std::uint32_t number, int alignment) {
  char* at = running_block().shared->address_of(number);
  require_aligned("shared_at", at, alignment);
  if (!running_block().shared->holds(at, 1))
    block().fail(fmt::format("shared_at shared address {:#x}, which is not in the block's shared memory", number));
  return at;
}

}  // namespace

void meet_at_grid_barrier() {
  if (!running_block().cooperative) block().fail("grid_barrier in a launch that is not cooperative");
  block().meet(Wait::grid_barrier);
}

const SimtHost& host() {
  static const SimtHost table = {Block::who(),    sync_block,     any_in_block,  sync_warp,     any_in_warp,       shuffle,
                                 mma_16x8x16,     shared_pointer, load_matrices, copy_async_16, copy_async_commit, copy_async_wait,
                                 require_aligned, permute_wave,   ballot_wave,   shared_at,     exchange_wave,     multiply_wave};
  return table;
}

}  // namespace ejk::simt
