// Parsing with decoders of one's own choice: tests may leave out the others.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "emulator/ptx/program.hpp"

namespace ejk::ptx {

// parse(), where `decoders` are asked in their order until one says that the instruction is of its family.
std::unique_ptr<Program> parse_with(std::string text, std::span<const Decoder> decoders);

}  // namespace ejk::ptx
