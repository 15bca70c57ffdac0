// Types by their names, and which type an operand of an instruction has.
#pragma once
#include "emulator/ptx/parse/parse_reader.hpp"
#include "emulator/ptx/program.hpp"

namespace ejk::ptx::parsing {

int bits_of_type(std::string_view type);           // 0: it is no type ("rn"). Without a dot. A predicate's are 1
RegisterKind kind_of_type(std::string_view type);  // of a register of that type, of at most 64 bits

// The type that an immediate at that place of the instruction has, whose opcode and words `parsed` has already. `parts`: how many a vector
// that it is in has, or 0.
std::string_view type_at(const Parsed& parsed, std::size_t operand, std::size_t parts);

// A number as a value of that type, in its low bits; the others are 0.
std::uint64_t bits_as(const Literal& literal, std::string_view type);

// Whether it is known that the first operand is written by the instruction and not read.
bool writes_first(const Parsed& parsed);

}  // namespace ejk::ptx::parsing
