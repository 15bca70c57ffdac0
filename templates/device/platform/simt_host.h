// What the SIMT emulator (emulator) gives an image, and the image it. Both include this; integer types come before it.
#pragma once

// Who a GPU thread is.
struct SimtThread {
  int thread_x, lane, warp;
  int block_x, block_y, block_z, grid_x, grid_y;
  char* dynamic_shared;
};

enum class SimtShuffle { exclusive_or, down, index };
enum class SimtElement { half, bfloat16 };
enum class SimtMatrix { cdna, rdna3, rdna4 };  // whose registers and lanes hold what

// Each call belongs to the thread that runs, and may let other threads run before it returns. `word` names the vocabulary's word.
struct SimtHost {
  const SimtThread* const* running;
  void (*sync_block)();
  bool (*any_in_block)(bool x);
  void (*sync_warp)();
  bool (*any_in_warp)(bool x);
  uint32_t (*shuffle)(SimtShuffle how, uint32_t x, int operand);
  void (*mma_16x8x16)(SimtElement type, float* c, const uint32_t* a, uint32_t b0, uint32_t b1);
  uint32_t (*shared_pointer)(const void* at);
  void (*load_matrices)(uint32_t* r, uint32_t row, bool transposed);
  void (*copy_async_16)(uint32_t to, const void* from, bool wanted);
  void (*copy_async_commit)();
  void (*copy_async_wait)(int pending);
  void (*misaligned)(const char* word, const void* at, int bytes);  // ends the launch
  // AMD's: x of a lane of the wave, a bit for each of its lanes, and where a number of shared_pointer() points.
  uint32_t (*permute_wave)(uint32_t x, int from);
  uint64_t (*ballot_wave)(bool x);
  void* (*shared_at)(uint32_t number, int alignment);
  // By the whole wave: x of lane ^ mask; c += a b with as many registers as the instruction has.
  uint32_t (*exchange_wave)(uint32_t x, int mask);
  void (*multiply_wave)(SimtElement type, SimtMatrix layout, float* c, const uint32_t* a, const uint32_t* b);
};

// The memory of an image's __shared__ variables, the threads of a wave (NVIDIA: of a warp), and the most shared memory of a block.
struct SimtImage {
  char *shared_begin, *shared_end;
  int wave, most_shared;
};
