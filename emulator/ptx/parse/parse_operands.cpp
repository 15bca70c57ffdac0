// Operands: registers, numbers, addresses, vectors.
#include "emulator/ptx/parse/parse_operands.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emulator/ptx/parse/parse_types.hpp"

namespace ejk::ptx::parsing {
namespace {

// Special registers of one word, without their ".x", ".y" and ".z".
constexpr std::string_view special_names[] = {"%tid",
                                              "%ntid",
                                              "%ctaid",
                                              "%nctaid",
                                              "%laneid",
                                              "%warpid",
                                              "%nwarpid",
                                              "%smid",
                                              "%nsmid",
                                              "%clusterid",
                                              "%nclusterid",
                                              "%cluster_ctaid",
                                              "%cluster_nctaid",
                                              "%cluster_ctarank",
                                              "%cluster_nctarank",
                                              "%lanemask_eq",
                                              "%lanemask_le",
                                              "%lanemask_lt",
                                              "%lanemask_ge",
                                              "%lanemask_gt",
                                              "%clock",
                                              "%clock_hi",
                                              "%globaltimer_lo",
                                              "%globaltimer_hi",
                                              "%dynamic_smem_size",
                                              "%total_smem_size",
                                              "%aggr_smem_size",
                                              "%activemask"};
constexpr std::string_view wide_special_names[] = {"%clock64", "%globaltimer", "%gridid"};
constexpr std::string_view special_predicate = "%is_explicit_cluster";

template <std::size_t size>
bool is_one_of(const std::string_view (&names)[size], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// What coordinates of a tensor are read as operands of.
Parsed of_copies() {
  Parsed made;
  made.words = {"cp"};
  return made;
}

bool is_logical(std::string_view opcode) {
  return opcode == "mov" || opcode == "and" || opcode == "or" || opcode == "xor" || opcode == "not";
}

}  // namespace

Slot OperandReader::new_register(RegisterKind kind) {
  made_.registers.push_back(kind);
  return static_cast<Slot>(made_.registers.size() - 1);
}

Operand OperandReader::constant(ConstantValue value, RegisterKind kind) {
  auto& known = known_constants_[(value.bytes == 8 ? 1 : 0) + (value.is_dynamic ? 2 : 0)];
  const auto [found, is_new] = known.try_emplace(value.bits, first_constant + static_cast<Slot>(made_.constants.size()));
  if (is_new) made_.constants.push_back(value);
  Operand made;
  made.kind = OperandKind::constant;
  made.reg = kind;
  made.slot = found->second;
  made.bits = value.bits;
  return made;
}

std::optional<Meaning> OperandReader::find(std::string_view name) {
  auto found = scopes_.find(name, [this](RegisterKind kind) { return new_register(kind); });
  return found ? found : find_variable_(name);
}

void OperandReader::read_all(Statement& statement) {
  space_of_address_.reset();
  if (reader_.accept(';')) return;
  statement.parsed.operands.reserve(4);
  do {
    read_into(statement);
  } while (reader_.accept(','));
  reader_.expect(';');
  statement.written = statement.guard == no_slot && writes_first(statement.parsed) ? std::max(statement.written, std::size_t{1}) : 0;
}

void OperandReader::read_into(Statement& statement) {
  auto& operands = statement.parsed.operands;
  operands.push_back(read_one(statement.parsed, 0));
  if (!reader_.accept('|')) return;
  operands.push_back(read_one(statement.parsed, 0));
  statement.written = 2;
}

Operand OperandReader::read_one(const Parsed& parsed, std::size_t parts) {
  switch (reader_.peek()) {
    case '{':
      return read_vector(parsed);
    case '[':
      return read_address();
    case '!': {
      reader_.expect('!');
      auto made = read_named(parsed, parts);
      made.inverted = true;
      return made;
    }
    default:
      return reader_.at_literal() ? read_literal(parsed, parts) : read_named(parsed, parts);
  }
}

// How many parts there are decides which type numbers in it have, so commas are counted first.
Operand OperandReader::read_vector(const Parsed& parsed) {
  Operand made;
  made.kind = OperandKind::vector;
  Reader ahead = reader_;
  ahead.skip_braces();
  const auto text = ahead.from(reader_.at());
  const auto parts = static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')) + 1;
  made.parts.reserve(parts);
  reader_.expect('{');
  do {
    made.parts.push_back(read_one(parsed, parts));
  } while (reader_.accept(','));
  reader_.expect('}');
  return made;
}

std::int64_t OperandReader::read_offset() {
  if (reader_.accept('+')) return reader_.integer();
  return reader_.peek() == '-' ? reader_.integer() : 0;
}

Operand OperandReader::register_operand(const Meaning& meaning) const {
  Operand made;
  made.kind = OperandKind::reg;
  made.reg = meaning.kind;
  made.slot = meaning.id;
  return made;
}

Operand OperandReader::read_base() {
  if (reader_.at_literal()) return constant({8, static_cast<std::uint64_t>(reader_.integer())}, RegisterKind::word64);
  const auto name = reader_.name();
  const auto found = find(name);
  if (!found) reader_.fail(fmt::format("'{}' is not declared", name));
  if (found->is_register) return register_operand(*found);
  space_of_address_ = found->space;
  return constant({8, found->address, found->is_dynamic}, RegisterKind::word64);
}

Operand OperandReader::read_address() {
  reader_.expect('[');
  auto made = read_base();
  if (made.kind == OperandKind::reg && made.reg != RegisterKind::word32 && made.reg != RegisterKind::word64)
    reader_.fail("an address of 32 or 64 bits expected");
  made.kind = OperandKind::address;
  made.wide = made.reg == RegisterKind::word64;
  made.offset = read_offset();
  if (reader_.accept(',')) {
    static const Parsed coordinates = of_copies();
    made.parts = reader_.peek() == '{' ? read_vector(coordinates).parts : std::vector{read_one(coordinates, 0)};
  }
  reader_.expect(']');
  return made;
}

Operand OperandReader::read_literal(const Parsed& parsed, std::size_t parts) {
  auto type = type_at(parsed, parsed.operands.size(), parts);
  const auto literal = reader_.literal();
  // A cache policy, which has 64 bits, may follow operands of fewer.
  if (literal.form == Literal::Form::integer && literal.bits >> 32 && ~literal.bits >> 32 && parsed.has("L2::cache_hint")) type = "u64";
  if (bits_of_type(type) > 64) reader_.fail(fmt::format("numbers of type '{}' are not emulated", type));
  auto bits = bits_as(literal, type);
  const bool is_truth = type == "pred";
  if (is_truth && is_logical(parsed.words.front())) bits = bits ? all_lanes : 0;  // as a predicate has it
  const auto kind = is_truth ? RegisterKind::word32 : kind_of_type(type);
  return constant({kind == RegisterKind::word64 ? 8 : 4, bits}, kind);
}

std::optional<Operand> OperandReader::special(std::string_view name) {
  const auto stem = name.substr(0, name.find('.'));
  Meaning made{.is_register = true};
  if (is_one_of(wide_special_names, name))
    made.kind = RegisterKind::word64;
  else if (name == special_predicate)
    made.kind = RegisterKind::predicate;
  else if (!is_one_of(special_names, stem))
    return std::nullopt;
  auto& specials = made_.specials;
  const auto found = std::find_if(specials.begin(), specials.end(), [&](const auto& each) { return each.first == name; });
  made.id = first_special + static_cast<Slot>(found - specials.begin());
  if (found == specials.end()) specials.emplace_back(name, made.kind);
  return register_operand(made);
}

Operand OperandReader::read_named(const Parsed& parsed, std::size_t parts) {
  const auto name = reader_.dotted_name();
  if (name == "_") return {};
  const auto found = find(name);
  if (found && found->is_register) return register_operand(*found);
  if (!found) {
    if (const auto made = special(name)) return *made;
    if (name == "WARP_SZ") return constant({4, lanes}, RegisterKind::word32);
    reader_.fail(fmt::format("'{}' is not declared", name));
  }
  const auto kind = kind_of_type(type_at(parsed, parsed.operands.size(), parts));
  const auto address = found->address + static_cast<std::uint64_t>(read_offset());
  return constant({kind == RegisterKind::word64 ? 8 : 4, address, found->is_dynamic}, kind);
}

}  // namespace ejk::ptx::parsing
