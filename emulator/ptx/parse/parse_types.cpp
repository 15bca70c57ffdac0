// Types by their names, and which type an operand of an instruction has: the tables of the parser.
#include "emulator/ptx/parse/parse_types.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <unordered_set>

namespace ejk::ptx::parsing {
namespace {

const std::unordered_map<std::string_view, int>& widths_of_types() {
  static const std::unordered_map<std::string_view, int> made = {
      {"pred", 1},   {"b8", 8},     {"u8", 8},      {"s8", 8},      {"b16", 16},    {"u16", 16},    {"s16", 16},   {"f16", 16},
      {"bf16", 16},  {"b32", 32},   {"u32", 32},    {"s32", 32},    {"f32", 32},    {"tf32", 32},   {"f16x2", 32}, {"bf16x2", 32},
      {"u16x2", 32}, {"s16x2", 32}, {"b64", 64},    {"u64", 64},    {"s64", 64},    {"f64", 64},    {"f32x2", 64}, {"b128", 128},
      {"e4m3", 8},   {"e5m2", 8},   {"e4m3x2", 16}, {"e5m2x2", 16}, {"e4m3x4", 32}, {"e5m2x4", 32}, {"e2m1x2", 8}, {"b1024", 1024}};
  return made;
}

// Operands from `first` on that have another type than the opcode's last.
struct OperandRule {
  std::string_view opcode;
  std::size_t first;
  std::string_view type;
};
constexpr OperandRule operand_rules[] = {
    {"shl", 2, "u32"},   {"shr", 2, "u32"},  {"bfe", 2, "u32"},      {"bfi", 3, "u32"},      {"match", 2, "u32"},        {"mapa", 2, "u32"},
    {"wgmma", 0, "u32"}, {"cp", 0, "u32"},   {"mbarrier", 0, "u32"}, {"bar", 0, "u32"},      {"barrier", 0, "u32"},      {"vote", 2, "u32"},
    {"elect", 0, "u32"}, {"shfl", 2, "u32"}, {"redux", 2, "u32"},    {"isspacep", 1, "u64"}, {"createpolicy", 1, "f32"},
};

std::string_view last_type(const Parsed& parsed) {
  for (auto word = parsed.words.rbegin(); word != parsed.words.rend(); ++word)
    if (bits_of_type(*word)) return *word;
  return "b32";
}

std::string_view plain_type(int bits) { return bits <= 8 ? "b8" : bits <= 16 ? "b16" : bits <= 32 ? "b32" : "b64"; }

bool is_any_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

double double_of(const Literal& literal) {
  if (literal.form == Literal::Form::integer) return static_cast<double>(static_cast<std::int64_t>(literal.bits));
  if (literal.form == Literal::Form::float32) return std::bit_cast<float>(static_cast<std::uint32_t>(literal.bits));
  return std::bit_cast<double>(literal.bits);
}

// Opcodes whose first operand is what they write.
bool is_writing(std::string_view opcode) {
  static const std::unordered_set<std::string_view> made = {
      "abs",   "activemask", "add",       "addc", "and",   "atom",  "bfe",   "bfi",  "bfind", "bmsk",     "brev",       "clz",
      "cnot",  "copysign",   "cos",       "cvt",  "cvta",  "div",   "dp2a",  "dp4a", "elect", "ex2",      "fma",        "fns",
      "ld",    "ldmatrix",   "ldu",       "lg2",  "lop3",  "mad",   "madc",  "mapa", "match", "max",      "mbarrier",   "min",
      "mma",   "mov",        "movmatrix", "mul",  "mul24", "mad24", "neg",   "not",  "or",    "popc",     "prmt",       "rcp",
      "redux", "rem",        "rsqrt",     "sad",  "selp",  "set",   "setp",  "shf",  "shfl",  "shl",      "shr",        "sin",
      "slct",  "sqrt",       "sub",       "subc", "szext", "tanh",  "testp", "vote", "xor",   "isspacep", "getctarank", "createpolicy"};
  return made.contains(opcode);
}

}  // namespace

int bits_of_type(std::string_view type) {
  const auto found = widths_of_types().find(type);
  return found == widths_of_types().end() ? 0 : found->second;
}

RegisterKind kind_of_type(std::string_view type) {
  const int bits = bits_of_type(type);
  return bits == 1 ? RegisterKind::predicate : bits <= 16 ? RegisterKind::word16 : bits <= 32 ? RegisterKind::word32 : RegisterKind::word64;
}

std::string_view type_at(const Parsed& parsed, std::size_t operand, std::size_t parts) {
  const auto opcode = parsed.words.front();
  for (const auto& rule : operand_rules)
    if (opcode == rule.opcode && operand >= rule.first) return rule.type;
  const auto type = last_type(parsed);
  if (opcode == "mov" && parts) return plain_type(bits_of_type(type) / static_cast<int>(parts));
  if (opcode == "mad" && operand == 3 && parsed.has("wide")) return plain_type(2 * bits_of_type(type));
  if (opcode == "slct" && operand < 3 && parsed.words.size() > 2) return parsed.words[parsed.words.size() - 2];
  if (opcode == "cvt" && operand == 3 && parsed.has("rs")) return "u32";
  return type;
}

std::uint64_t bits_as(const Literal& literal, std::string_view type) {
  if (type == "f64") return literal.form == Literal::Form::float64 ? literal.bits : std::bit_cast<std::uint64_t>(double_of(literal));
  if (type == "f32" && literal.form != Literal::Form::float32) return std::bit_cast<std::uint32_t>(static_cast<float>(double_of(literal)));
  const int bits = bits_of_type(type);
  if (bits >= 64) return literal.bits;
  return literal.bits & (bits <= 16 && bits > 1 ? 0xffffu : 0xffffffffu);
}

bool writes_first(const Parsed& parsed) {
  const auto opcode = parsed.words.front();
  return is_writing(opcode) || (is_any_of(opcode, {"bar", "barrier"}) && parsed.has("red"));
}

}  // namespace ejk::ptx::parsing
