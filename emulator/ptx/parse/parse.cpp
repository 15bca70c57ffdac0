// parse(): a program that all decoders of the emulator know.
#include "emulator/ptx/parse/parse.hpp"

namespace ejk::ptx {

std::unique_ptr<Program> parse(std::string text) {
  static constexpr Decoder decoders[] = {decode_scalar, decode_warp, decode_memory, decode_copies, decode_matrix, decode_control};
  return parse_with(std::move(text), decoders);
}

}  // namespace ejk::ptx
