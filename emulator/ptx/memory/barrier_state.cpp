// Counting arrivals and bytes of an mbarrier.
#include <fmt/format.h>

#include "emulator/ptx/memory/barriers.hpp"

namespace ejk::ptx {
namespace {

constexpr std::uint32_t most_arrivals = (1u << 20) - 1;
constexpr std::int32_t most_bytes = (1 << 20) - 1;
constexpr std::uint64_t made_bit = std::uint64_t{1} << 63;

void check_arrivals(std::uint32_t address, std::uint32_t arrivals) {
  if (!arrivals || arrivals > most_arrivals)
    throw Fault(fmt::format("mbarrier at shared address {:#x}: {} arrivals, expected 1 to {}", address, arrivals, most_arrivals));
}

}  // namespace

void TransactionBarrier::fail(const std::string& what) const {
  throw Fault(fmt::format("mbarrier at shared address {:#x}: {}", address_, what));
}

TransactionBarrier TransactionBarrier::at(Block& block, std::uint32_t address) {
  const TransactionBarrier barrier(block.shared_at(address, 8, 8), address);
  if (!(barrier.state() & made_bit))
    barrier.fail(fmt::format("its 8 bytes are {:#x}, expected a barrier that was initialised", barrier.state()));
  return barrier;
}

void TransactionBarrier::init(Block& block, std::uint32_t address, std::uint32_t arrivals) {
  check_arrivals(address, arrivals);
  TransactionBarrier(block.shared_at(address, 8, 8), address).write({arrivals, arrivals, 0, false});
}

void TransactionBarrier::invalidate(Block& block, std::uint32_t address) {
  at(block, address);
  std::memset(block.shared_at(address, 8, 8), 0, 8);
}

std::uint64_t TransactionBarrier::state() const {
  std::uint64_t bits;
  std::memcpy(&bits, memory_, sizeof bits);
  return bits;
}

TransactionBarrier::Fields TransactionBarrier::read() const {
  const auto bits = state();
  const auto bytes = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits >> 40 & 0x3fffff) << 10) >> 10;
  return {static_cast<std::uint32_t>(bits & 0xfffff), pending_of(bits), bytes, parity_of(bits)};
}

void TransactionBarrier::write(const Fields& fields) {
  const auto bits = made_bit | std::uint64_t{fields.parity} << 62 | (static_cast<std::uint64_t>(fields.bytes) & 0x3fffff) << 40 |
                    std::uint64_t{fields.pending} << 20 | fields.expected;
  std::memcpy(memory_, &bits, sizeof bits);
}

void TransactionBarrier::settle(Fields fields) {
  if (!fields.pending && !fields.bytes) {
    fields.pending = fields.expected;
    fields.parity = !fields.parity;
  }
  write(fields);
}

bool TransactionBarrier::over(std::uint32_t parity) const { return parity_of(state()) != (parity & 1); }

void TransactionBarrier::arrive(std::uint32_t count) {
  check_arrivals(address_, count);
  auto fields = read();
  if (count > fields.pending)
    fail(fmt::format("{} arrive, but of the {} arrivals of this phase {} are pending ({} bytes, too)", count, fields.expected,
                     fields.pending, fields.bytes));
  fields.pending -= count;
  settle(fields);
}

void TransactionBarrier::drop(std::uint32_t count) {
  auto fields = read();
  if (count > fields.expected) fail(fmt::format("{} are dropped, but it expects {}", count, fields.expected));
  fields.expected -= count;
  write(fields);
  arrive(count);
}

void TransactionBarrier::expect(std::uint32_t bytes) {
  auto fields = read();
  if (bytes > static_cast<std::uint32_t>(most_bytes) || fields.bytes + static_cast<std::int32_t>(bytes) > most_bytes)
    fail(fmt::format("{} more bytes are expected and {} are pending, expected at most {} together", bytes, fields.bytes, most_bytes));
  fields.bytes += static_cast<std::int32_t>(bytes);
  settle(fields);
}

void TransactionBarrier::complete(std::uint32_t bytes) {
  auto fields = read();
  if (bytes > static_cast<std::uint32_t>(most_bytes) || fields.bytes - static_cast<std::int32_t>(bytes) < -most_bytes)
    fail(fmt::format("{} bytes arrive and {} are pending, expected at most {} too many", bytes, fields.bytes, most_bytes));
  fields.bytes -= static_cast<std::int32_t>(bytes);
  settle(fields);
}

void TransactionBarrier::raise() {
  auto fields = read();
  if (fields.pending == most_arrivals) fail("too many arrivals are pending");
  ++fields.pending;
  write(fields);
}

}  // namespace ejk::ptx
