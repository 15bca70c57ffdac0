// mbarriers: objects of 8 bytes in shared memory that count arrivals and bytes.
#pragma once
#include <cstdint>

#include "emulator/ptx/machine.hpp"

namespace ejk::ptx {

// All state is in those 8 bytes, so that a barrier lives and dies with its memory: bits 0 to 19 have the arrivals that a phase expects, 20
// to 39 those that are pending in this one, 40 to 61 its count of bytes (signed), 62 its parity, 63 is set in every barrier. A phase is
// over when no arrivals are pending and the count of bytes is 0.
class TransactionBarrier {
 public:
  // The one at an address as `block` sees it. Throws Fault if none has been initialised there.
  static TransactionBarrier at(Block& block, std::uint32_t address);
  static void init(Block& block, std::uint32_t address, std::uint32_t arrivals);
  static void invalidate(Block& block, std::uint32_t address);

  std::uint64_t state() const;            // its bits: what arrivals return
  bool over(std::uint32_t parity) const;  // whether the phase of that parity is; the one before a barrier's first has parity 1
  static bool parity_of(std::uint64_t state) { return state >> 62 & 1; }
  static std::uint32_t pending_of(std::uint64_t state) { return static_cast<std::uint32_t>(state >> 20 & 0xfffff); }

  void arrive(std::uint32_t count);
  void drop(std::uint32_t count);  // arrives, and so many fewer are expected from the next phase on
  void expect(std::uint32_t bytes);
  void complete(std::uint32_t bytes);
  void raise();  // one more arrival is pending in this phase

 private:
  struct Fields {
    std::uint32_t expected, pending;
    std::int32_t bytes;
    bool parity;
  };
  TransactionBarrier(char* memory, std::uint32_t address) : memory_(memory), address_(address) {}
  Fields read() const;
  void write(const Fields& fields);
  void settle(Fields fields);  // writes, and ends the phase if it is over
  [[noreturn]] void fail(const std::string& what) const;

  char* memory_;
  std::uint32_t address_;
};

}  // namespace ejk::ptx
