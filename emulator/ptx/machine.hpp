// Warps, CTAs and grids that run: what handlers of instructions work on.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/ptx/program.hpp"

namespace ejk::ptx {

class Block;
class Grid;

// When asynchronous work (bulk copies, cp.async, wgmma) is done: at once, or as late as it may be, when somebody who waits for it would
// wait for ever. What a kernel computes must not depend on it.
enum class Pace { eager, lazy };

// A fault of a kernel: the words of what is wrong; the machine adds entry, CTA, warp and line.
struct Fault : std::exception {
  explicit Fault(std::string its_words) : words(std::move(its_words)) {}
  const char* what() const noexcept override { return words.c_str(); }
  std::string words;
};

// What an instruction that cannot go on yet tells the machine: the warp's lanes stay at it, and it is run again later.
enum class Progress { done, wait };

struct FileDeleter {
  void operator()(char* file) const;
};

// Where threads of a CTA, of a cluster or of a warp meet. Each time that all have come its generation is one more.
struct Meeting {
  std::uint64_t generation = 0;
  std::uint32_t arrived = 0, expected = 0;  // threads, whole warps counting 32
  bool of_all = false;                      // no number was given: all threads that have not exited
  std::uint32_t votes = 0, result = 0;      // bar.red: lanes whose predicate holds so far; what the last generation's threads read
};

class Warp {
 public:
  Block* block = nullptr;
  int number = 0;                      // in its CTA
  std::uint32_t active = 0;            // lanes for which the instruction runs: those of its path whose guard holds
  std::uint32_t path = 0;              // lanes at this instruction, whatever their guards say
  std::uint32_t alive = 0;             // lanes that have not exited
  Progress progress = Progress::done;  // a handler sets it to wait
  // Of an instruction that waited and is run again: `again`, and the number that it left here the first time.
  bool again = false;
  std::uint64_t ticket = 0;

  // Lanes of a slot: T is a type of 4 bytes (or std::uint16_t read by low<T>()) or of 8.
  template <class T>
  T* lanes_of(Slot slot) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    return reinterpret_cast<T*>(file.get() + std::size_t{slot} * 128);
  }
  std::uint32_t& predicate(Slot slot) { return *lanes_of<std::uint32_t>(slot); }
  bool is_active(int lane) const { return active >> lane & 1; }

  // This thread's local memory.
  char* local(int lane) { return locals.data() + static_cast<std::size_t>(lane) * local_bytes; }

  std::unique_ptr<char, FileDeleter> file;  // of registers, aligned to 128
  std::vector<char> locals;
  std::size_t local_bytes = 0;

  // Groups of asynchronous work that this warp's lanes have started (copies.cpp, matrix.cpp); made when first used.
  std::shared_ptr<void> copies, products;
  Meeting meeting;                   // bar.warp.sync: lanes, not threads, in `arrived`
  std::uint64_t cluster_ticket = 0;  // the generation of the cluster's barrier that it has arrived in
};

// A piece of work that several lists may hold.
class Piece {
 public:
  explicit Piece(std::function<void()> work) : work_(std::move(work)) {}
  bool has_run() const { return !work_; }
  void run() {
    if (!work_) return;
    const auto work = std::move(work_);
    work_ = nullptr;
    work();
  }

 private:
  std::function<void()> work_;  // empty once it has run
};

// Work that is pending: copies that will complete on a barrier or a group. The machine runs one when nothing else can go on (Pace::lazy),
// if nobody who waited for it has; `what` names it in messages. `memory`: the CTA whose shared memory it reads or writes.
struct Pending {
  std::shared_ptr<Piece> piece;
  const char* what = "";
  const Block* memory = nullptr;
};

class Block {
 public:
  Grid* grid = nullptr;
  std::array<std::uint32_t, 3> index{};  // in the grid
  int rank = 0;                          // in its cluster
  std::vector<char> shared;              // from address 0 on; the system's first bytes are in it
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<Block*> cluster;  // by rank; at least this one
  std::array<Meeting, 16> barriers{};
  Meeting* cluster_barrier = nullptr;

  // `bytes` of shared memory at a shared address, of this CTA or of another of its cluster. Throws Fault when it is out of bounds or
  // not aligned to `alignment`.
  char* shared_at(std::uint32_t address, std::size_t bytes, std::size_t alignment);
  Block& block_of(std::uint32_t address);  // whose shared memory that address is of
};

class Grid {
 public:
  const EntryCode* entry = nullptr;
  const Program* program = nullptr;
  std::array<std::uint32_t, 3> extent{}, threads{}, cluster{1, 1, 1};
  std::vector<char> parameters;  // the entry's, laid out
  Pace pace = Pace::eager;
  std::deque<Pending> pending;  // oldest first; a handler appends, the machine takes (from either end, as the seed has it)

  // The host's memory at a generic or global address, of so many bytes. Throws Fault if no allocation (or variable) holds them, or if it is
  // not aligned.
  char* global_at(std::uint64_t address, std::size_t bytes, std::size_t alignment);
};

// Any address in generic space: shared (also of other CTAs), local or global. `lane`'s, for local.
char* generic_at(Warp& warp, int lane, std::uint64_t address, std::size_t bytes, std::size_t alignment);

// A tensor map as the emulated driver encodes it, in the 128 bytes of a CUtensorMap.
struct TensorMap {
  std::uint64_t magic;  // tells a map from other bytes
  std::uint64_t address;
  std::uint64_t strides[4];  // bytes, of dims 1 to 4
  std::uint32_t extents_less_1[5];
  std::uint16_t box[5];
  std::uint8_t rank, type, swizzle;  // type: CUtensorMapDataType; swizzle: 0, 1: 32, 2: 64, 3: 128 bytes
  std::uint8_t padding[47];
};
static_assert(sizeof(TensorMap) == 128);
constexpr std::uint64_t tensor_map_magic = 0x706d'2d72'6f73'6e65;

}  // namespace ejk::ptx
