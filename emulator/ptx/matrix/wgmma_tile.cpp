// Where the pieces of a factor of wgmma lie: in units of 16 bytes the canonical layouts are
//   depth-major  no swizzle  8 rows 16 bytes apart; `leading` to the second piece of the depth, `stride` to the next 8 rows
//                swizzle S   8 rows S bytes apart; the second piece is the neighbour, `stride` to the next 8 rows
//   row-major    no swizzle  8 depths 16 bytes apart; `leading` to the next 8 depths, `stride` to the next 8 rows
//                swizzle S   8 depths S bytes apart, S / 16 groups of 8 rows side by side; `leading` to the next such groups, `stride` to
//                            the next 8 depths
// and the swizzle turns bits 4 to 6 (4 to 5, bit 4) of the resulting address by bits 7 to 9 (7 to 8, bit 7).
#include "emulator/ptx/matrix/wgmma_tile.hpp"

#include <fmt/format.h>

namespace ejk::ptx {
namespace {

constexpr int tile_pieces = 16;
constexpr std::uint32_t piece_bytes = 16;

std::uint32_t group_offset(const WgmmaTile& tile, bool rows, std::uint32_t group) {
  if (!rows || tile.swizzle == 0) return group * tile.stride;
  const std::uint32_t side_by_side = tile.swizzle / piece_bytes;
  return group % side_by_side * piece_bytes + group / side_by_side * tile.leading;
}

std::uint32_t piece_offset(const WgmmaTile& tile, bool rows, std::uint32_t piece) {
  const std::uint32_t step = tile.swizzle == 0 ? piece_bytes : tile.swizzle;
  const std::uint32_t second = tile.swizzle == 0 ? tile.leading : rows ? tile.stride : piece_bytes;
  return piece % 8 * step + piece / 8 * second;
}

// All of a group's pieces at once.
struct PieceAddresses {
  std::uint32_t at[tile_pieces];
};

void find_pieces(const WgmmaTile& tile, const PieceAddresses& offsets, std::uint32_t start, PieceAddresses& found) {
  const std::uint32_t mask = tile.swizzle == 0 ? 0 : tile.swizzle - piece_bytes, shift = tile.base << 7;
  for (int i = 0; i < tile_pieces; ++i) {
    const std::uint32_t address = start + offsets.at[i];
    found.at[i] = address ^ ((address - shift) >> 3 & mask);
  }
}

[[noreturn]] void refuse_piece(const Block& block, std::uint32_t address) {
  throw Fault(fmt::format("wgmma.mma_async: a factor's descriptor reaches 16 bytes at shared address {}, where the CTA has {} bytes",
                          address, block.shared.size()));
}

}  // namespace

WgmmaTile::WgmmaTile(std::uint64_t descriptor) {
  constexpr std::uint32_t swizzles[] = {0, 128, 64, 32};
  const auto field = [&](int bit) { return static_cast<std::uint32_t>(descriptor >> bit & 0x3fff) << 4; };
  start = field(0);
  leading = field(16);
  stride = field(32);
  swizzle = swizzles[descriptor >> 62];
  base = static_cast<std::uint32_t>(descriptor >> 49 & 7);
}

void copy_tile(const Block& block, const WgmmaTile& tile, bool rows, int first, int groups, char* to) {
  PieceAddresses offsets, found;
  for (int i = 0; i < tile_pieces; ++i) offsets.at[i] = piece_offset(tile, rows, static_cast<std::uint32_t>(i));
  const char* shared = block.shared.data();
  const std::size_t last = block.shared.size() - piece_bytes;
  for (int group = first; group < first + groups; ++group, to += tile_pieces * piece_bytes) {
    find_pieces(tile, offsets, tile.start + group_offset(tile, rows, static_cast<std::uint32_t>(group)), found);
    std::uint32_t highest = 0;
    for (const auto address : found.at) highest = address > highest ? address : highest;
    if (block.shared.size() < piece_bytes || highest > last) refuse_piece(block, highest);
    for (int i = 0; i < tile_pieces; ++i) std::memcpy(to + piece_bytes * static_cast<std::size_t>(i), shared + found.at[i], piece_bytes);
  }
}

}  // namespace ejk::ptx
