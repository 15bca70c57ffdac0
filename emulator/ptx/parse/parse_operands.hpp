// Reads an instruction's operands.
#pragma once
#include <functional>
#include <map>
#include <unordered_map>

#include "emulator/ptx/parse/parse_body.hpp"
#include "emulator/ptx/parse/parse_scopes.hpp"

namespace ejk::ptx::parsing {

class OperandReader {
 public:
  // `made` gets registers, constants and specials that operands name for the first time. `find_variable` knows variables that are not of
  // the body.
  OperandReader(Reader& reader, Scopes& scopes, EntryText& made, std::function<std::optional<Meaning>(std::string_view)> find_variable)
      : reader_(reader), scopes_(scopes), made_(made), find_variable_(std::move(find_variable)) {}

  void read_all(Statement& statement);  // up to ';'
  Slot new_register(RegisterKind kind);
  Operand constant(ConstantValue value, RegisterKind kind);
  std::optional<Meaning> find(std::string_view name);

  // What the address of the last instruction that had one was of: the space of a variable, if it was one's.
  std::optional<Space> space_of_address() const { return space_of_address_; }

 private:
  void read_into(Statement& statement);
  Operand read_one(const Parsed& parsed, std::size_t parts);
  Operand read_vector(const Parsed& parsed);
  Operand read_address();
  Operand read_base();
  std::int64_t read_offset();
  Operand read_literal(const Parsed& parsed, std::size_t parts);
  Operand read_named(const Parsed& parsed, std::size_t parts);
  Operand register_operand(const Meaning& meaning) const;
  std::optional<Operand> special(std::string_view name);

  Reader& reader_;
  Scopes& scopes_;
  EntryText& made_;
  std::function<std::optional<Meaning>(std::string_view)> find_variable_;
  std::unordered_map<std::uint64_t, Slot> known_constants_[4];
  std::optional<Space> space_of_address_;
};

}  // namespace ejk::ptx::parsing
