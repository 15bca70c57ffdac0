// Reads PTX text character by character.
#include "emulator/ptx/parse/parse_reader.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <stdexcept>

namespace ejk::ptx::parsing {
namespace {

constexpr std::array<unsigned char, 256> make_kinds() {
  std::array<unsigned char, 256> made{};
  for (int c = 'a'; c <= 'z'; ++c) made[static_cast<std::size_t>(c)] = made[static_cast<std::size_t>(c - 'a' + 'A')] = 1;
  for (int c = '0'; c <= '9'; ++c) made[static_cast<std::size_t>(c)] = 1;
  made['_'] = made['$'] = made['%'] = 1;
  made['{'] = made['}'] = made['/'] = made['"'] = made['\n'] = 2;
  return made;
}

constexpr auto kinds_of_characters = make_kinds();

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

}  // namespace

const unsigned char* Reader::kinds = kinds_of_characters.data();

void fail_at(int line, const std::string& words) { throw std::runtime_error(fmt::format("line {}: {}", line, words)); }

void Reader::fail(const std::string& words) const { fail_at(line_, words); }

bool Reader::skip_comment() {
  if (text_.substr(at_, 2) == "//") {
    at_ = std::min(text_.find('\n', at_), text_.size());
    return true;
  }
  if (text_.substr(at_, 2) != "/*") return false;
  const auto end = text_.find("*/", at_ + 2);
  if (end == std::string_view::npos) fail("a comment that begins here has no end");
  for (; at_ < end + 2; ++at_) line_ += text_[at_] == '\n';
  return true;
}

void Reader::skip_space() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n')
      ++line_, ++at_;
    else if (c == ' ' || c == '\t' || c == '\r')
      ++at_;
    else if (c != '/' || !skip_comment())
      return;
  }
}

bool Reader::at_literal() {
  const char c = peek();
  return is_digit(c) || c == '-';
}

void Reader::expect(char mark) {
  if (accept(mark)) return;
  fail(at_ < text_.size() ? fmt::format("'{}' expected, '{}' found", mark, text_[at_]) : fmt::format("'{}' expected, the text ends", mark));
}

bool Reader::accept_colon() {
  if (peek() != ':' || text_.substr(at_, 2) == "::") return false;
  ++at_;
  return true;
}

std::string_view Reader::name() {
  if (!at_name()) fail(at_ < text_.size() ? fmt::format("a name expected, '{}' found", text_[at_]) : "a name expected, the text ends");
  const auto begin = at_;
  while (at_ < text_.size() && is_of_name(text_[at_])) ++at_;
  return from(begin);
}

std::string_view Reader::dotted_name() {
  const auto first = name();
  const auto begin = at_ - first.size();
  while (at_ + 1 < text_.size() && text_[at_] == '.' && is_of_name(text_[at_ + 1]))
    for (++at_; at_ < text_.size() && is_of_name(text_[at_]);) ++at_;
  return from(begin);
}

std::string_view Reader::directive() {
  const auto begin = (expect('.'), at_ - 1);
  while (at_ < text_.size() && (is_of_name(text_[at_]) || text_.substr(at_, 2) == "::")) at_ += text_[at_] == ':' ? 2 : 1;
  return from(begin);
}

std::string_view Reader::rest_of_opcode(std::size_t begin) {
  while (at_ < text_.size() && (is_of_name(text_[at_]) || text_[at_] == '.' || text_[at_] == ':')) ++at_;
  return from(begin);
}

std::string_view Reader::string() {
  expect('"');
  const auto begin = at_;
  at_ = text_.find('"', at_);
  if (at_ == std::string_view::npos) at_ = begin, fail("a string that begins here has no end");
  ++at_;
  return text_.substr(begin, at_ - 1 - begin);
}

Literal Reader::float_bits(Literal::Form form, int digits) {
  Literal made{form, 0};
  at_ += 2;
  for (int i = 0; i < digits; ++i, ++at_) {
    const int value = at_ < text_.size() ? digit_value(text_[at_]) : 99;
    if (value >= 16) fail(fmt::format("a float's bits want {} hexadecimal digits, {} found", digits, i));
    made.bits = made.bits << 4 | static_cast<unsigned>(value);
  }
  return made;
}

Literal Reader::literal() {
  const bool negative = accept('-');
  if (!is_digit(peek())) fail("a number expected");
  const auto begin = at_;
  const char second = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
  Literal made;
  if (text_[at_] == '0' && (second == 'f' || second == 'F' || second == 'd' || second == 'D')) {
    const bool single = second == 'f' || second == 'F';
    made = single ? float_bits(Literal::Form::float32, 8) : float_bits(Literal::Form::float64, 16);
    if (negative) made.bits ^= std::uint64_t{1} << (single ? 31 : 63);
    return made;
  }
  unsigned base = 10;
  if (text_[at_] == '0' && (second == 'x' || second == 'X' || second == 'b' || second == 'B'))
    base = second == 'x' || second == 'X' ? 16 : 2, at_ += 2;
  else if (text_[at_] == '0' && is_digit(second))
    base = 8;
  while (at_ < text_.size() && digit_value(text_[at_]) < static_cast<int>(base))
    made.bits = made.bits * base + static_cast<unsigned>(digit_value(text_[at_++]));
  if (at_ < text_.size() && (text_[at_] == '.' || (base == 10 && text_[at_] == 'e'))) {
    double value = 0;
    at_ = static_cast<std::size_t>(std::from_chars(text_.data() + begin, text_.data() + text_.size(), value).ptr - text_.data());
    return {Literal::Form::float64, std::bit_cast<std::uint64_t>(negative ? -value : value)};
  }
  if (at_ < text_.size() && text_[at_] == 'U') ++at_;
  if (negative) made.bits = 0 - made.bits;
  return made;
}

std::int64_t Reader::integer() {
  const auto read = literal();
  if (read.form != Literal::Form::integer) fail("an integer expected, a float found");
  return static_cast<std::int64_t>(read.bits);
}

void Reader::skip_past(char mark) {
  for (char c = peek(); c != mark; c = peek()) {
    if (c == '\0') expect(mark);
    if (c == '"')
      string();
    else
      ++at_;
  }
  ++at_;
}

void Reader::skip_line() { at_ = std::min(text_.find('\n', at_), text_.size()); }

void Reader::skip_braces() {
  const int begin = line_;
  expect('{');
  for (int depth = 1; depth;) {
    while (at_ < text_.size() && !(kinds[static_cast<unsigned char>(text_[at_])] & 2)) ++at_;
    const char c = peek();
    if (c == '\0') fail_at(begin, "'{' has no '}'");
    if (c == '"') {
      string();
      continue;
    }
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    ++at_;
  }
}

}  // namespace ejk::ptx::parsing
