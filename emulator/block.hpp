// One block of GPU threads: fibers that run in turn, and their barriers.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/platform/simt_host.h"
#include "emulator/fiber.hpp"
#include "emulator/simt.hpp"

namespace ejk::simt {

constexpr int warp_size = 32, widest_wave = 64, most_threads = 1024;

// What a thread waits for: all live threads of the block, or lanes of the warp, at the same word.
enum class Wait {
  nothing,
  sync_block,
  any_in_block,
  grid_barrier,
  sync_warp,
  any_in_warp,
  shuffle_xor,
  shuffle_down,
  shuffle,
  permute_wave,
  ballot_wave,
  exchange_wave,
  multiply_half,
  multiply_bfloat16,
  mma_half,
  mma_bfloat16,
  load_matrices,
  load_matrices_transposed,
  count
};
const char* word_of(Wait wait);
constexpr bool of_block(Wait wait) { return wait == Wait::sync_block || wait == Wait::any_in_block; }
constexpr bool of_grid(Wait wait) { return wait == Wait::grid_barrier; }
// What all lanes of a wave of 64 do together, not those of its halves.
constexpr bool of_wave(Wait wait) { return wait == Wait::exchange_wave || wait == Wait::multiply_half || wait == Wait::multiply_bfloat16; }
// Matrix words are aligned instructions: an exited lane makes them undefined.
constexpr bool needs_whole_warp(Wait wait) {
  return wait >= Wait::mma_half || wait == Wait::multiply_half || wait == Wait::multiply_bfloat16;
}

// Registers of a lane for a 16 x 16 tile's operand and sums.
constexpr int operand_words(SimtMatrix layout) { return layout == SimtMatrix::cdna ? 2 : layout == SimtMatrix::rdna3 ? 8 : 4; }
constexpr int sums_a_lane(SimtMatrix layout) { return layout == SimtMatrix::cdna ? 4 : 8; }

// What a lane brings to a word of its warp, and what it gets.
struct Operands {
  std::uint32_t words[16] = {};  // shuffles, votes: the value; mma: a, b0, b1; a wave's product: a, and b from 8 on
  float c[8] = {};
  int operand = 0;  // of a shuffle
  SimtMatrix layout = SimtMatrix::cdna;
  const void* row = nullptr;  // of load_matrices
};
struct Results {
  std::uint32_t words[4] = {};
  float c[8] = {};
  std::uint64_t ballot = 0;
};

struct PendingCopy {
  void* to;
  const void* from;
  bool wanted;
  int group;
};

struct Thread {
  SimtThread who{};
  Fiber fiber;
  bool live = false;
  Wait wait = Wait::nothing;
  Operands operands;
  Results results;
  std::vector<PendingCopy> copies;
  int groups = 0;  // committed
};

struct Warp {
  Thread* lanes[warp_size] = {};
  int live = 0;
  std::array<int, static_cast<std::size_t>(Wait::count)> waiting{};
};

// Results of a word for all lanes, from the operands of the live ones. AMD's are of a warp too: `first` is its place in the wave.
void compute_results(Wait word, Warp& warp);
void permute_wave(Warp& warp, int first);
void ballot_wave(Warp& warp, int first, int wave);
// Of a wave's word, whose lanes are `lanes`. What is wrong with the operands; empty: nothing.
std::string compute_wave(Wait word, const std::vector<Thread*>& lanes);

class Block {
 public:
  using Work = std::function<void()>;

  // `work` will be run once for each thread.
  void start(int threads, int wave, const SimtThread& place, const Work& work);
  // Until all threads have ended, or all that live wait at the grid's barrier. Throws std::runtime_error that names threads and word,
  // without the block's place.
  void go_on(SimtOrder order);
  std::string waiting_at_grid_barrier() const;  // which threads: "0-31"; empty: none
  std::string exited() const;
  void leave_grid_barrier();

  Thread& running() { return *running_; }
  static const SimtThread* const* who() { return &who_; }  // of the block that runs
  // The running thread waits for the others; afterwards its results are there.
  void meet(Wait word);
  [[noreturn]] void fail(std::string sentence);  // by the running thread: ends the run

 private:
  static void thread_body(void* block);
  void run_warp(Warp& warp, SimtOrder order, bool& progress);
  void resume(Thread& thread);
  void exit_thread(Thread& thread);
  void release_if_complete(Wait word);
  void release_if_complete(Warp& warp, Wait word);
  void release_wave_if_complete(const Warp& warp, Wait word);
  std::string stuck() const;
  int place_in_wave(const Warp& warp) const;  // of its first lane

  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp> warps_;
  std::array<int, static_cast<std::size_t>(Wait::count)> waiting_{};
  int size_ = 0, live_ = 0, wave_ = warp_size;  // wave_: threads of a wave
  Thread* running_ = nullptr;
  inline static const SimtThread* who_ = nullptr;
  const Work* work_ = nullptr;
  std::string error_;
  const Thread* failed_ = nullptr;  // whose error it is
};

}  // namespace ejk::simt
