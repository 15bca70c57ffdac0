// Which words may name things in a spec.
#include <algorithm>
#include <array>

#include "spec/read/json_node.hpp"

namespace ejk::spec {
namespace {

// Words of the expression language, and names the scopes give meaning to.
constexpr std::array<std::string_view, 9> reserved = {"and", "or", "not", "true", "false", "in", "form", "arch", "any"};

// Names end up as identifiers in rendered C++ and in Python functions.
constexpr std::array<std::string_view, 100> keywords = {
    "alignas",   "alignof",   "asm",       "auto",     "bool",      "break",     "case",     "catch",    "char",     "class",
    "concept",   "const",     "continue",  "co_await", "co_return", "co_yield",  "decltype", "default",  "delete",   "do",
    "double",    "else",      "enum",      "explicit", "export",    "extern",    "float",    "for",      "friend",   "goto",
    "if",        "inline",    "int",       "long",     "mutable",   "namespace", "new",      "noexcept", "nullptr",  "operator",
    "private",   "protected", "public",    "register", "requires",  "return",    "short",    "signed",   "sizeof",   "static",
    "struct",    "switch",    "template",  "this",     "throw",     "try",       "typedef",  "typeid",   "typename", "union",
    "unsigned",  "using",     "virtual",   "void",     "volatile",  "while",     "xor",      "bitand",   "bitor",    "compl",
    "constexpr", "consteval", "constinit", "char8_t",  "char16_t",  "char32_t",  "wchar_t",  "and_eq",   "or_eq",    "xor_eq",
    "not_eq",    "None",      "True",      "False",    "as",        "assert",    "async",    "await",    "def",      "del",
    "elif",      "except",    "finally",   "from",     "global",    "import",    "is",       "lambda",   "nonlocal", "pass"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <class Words>
bool is_one_of(const Words& words, std::string_view name) {
  return std::find(words.begin(), words.end(), name) != words.end();
}

constexpr std::size_t max_name = 64;

}  // namespace

std::optional<std::string> bad_name(const std::string& name) {
  if (name.empty()) return "a name is empty";
  if (name.size() > max_name)
    return "the name '" + name.substr(0, max_name) + "...' is longer than " + std::to_string(max_name) + " letters";
  if (is_digit(name[0]) || !std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || is_digit(c); }))
    return "'" + name + "' is not a name: letters, digits and '_', not starting with a digit";
  if (is_one_of(reserved, name)) return "'" + name + "' is a word of the spec language; choose another name";
  if (is_one_of(keywords, name)) return "'" + name + "' is a keyword of C++ or Python; choose another name";
  return std::nullopt;
}

std::optional<std::string> bad_file_name(const std::string& name) {
  if (name.empty()) return "a name is empty";
  if (name.size() > max_name)
    return "the name '" + name.substr(0, max_name) + "...' is longer than " + std::to_string(max_name) + " letters";
  if (!std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || is_digit(c) || c == '_'; }))
    return "'" + name + "' is not a name here: lower-case letters, digits and '_' (it becomes part of file names)";
  return std::nullopt;
}

}  // namespace ejk::spec
