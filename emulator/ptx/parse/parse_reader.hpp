// Reads PTX text character by character: names, numbers and marks, with the line that it is at.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ejk::ptx::parsing {

// A number as the text has it: an integer of 64 bits (two's complement), or the bits of a float.
struct Literal {
  enum class Form : std::uint8_t { integer, float32, float64 } form = Form::integer;
  std::uint64_t bits = 0;
};

class Reader {
 public:
  explicit Reader(std::string_view text, std::size_t at = 0, int line = 1) : text_(text), at_(at), line_(line) {}

  std::size_t at() const { return at_; }
  int line() const { return line_; }
  std::string_view from(std::size_t begin) const { return text_.substr(begin, at_ - begin); }

  // The next character that is neither space nor of a comment; 0 at the end.
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool at_name() { return is_of_name(peek()); }
  bool at_literal();
  bool accept(char mark) {
    if (peek() != mark) return false;
    ++at_;
    return true;
  }
  void expect(char mark);
  // "::" is not a ':'.
  bool accept_colon();

  std::string_view name();                             // letters, digits, '_', '$' and '%'
  std::string_view dotted_name();                      // with ".x" and such: a special register's
  std::string_view directive();                        // ".reg"
  std::string_view rest_of_opcode(std::size_t begin);  // what began at `begin`, to the end of ".shared::cta.b64"
  std::string_view string();                           // what is in quotes
  Literal literal();
  std::int64_t integer();

  void skip_past(char mark);
  void skip_line();
  void skip_braces();  // what is in them, from '{' on

  [[noreturn]] void fail(const std::string& words) const;

  static bool is_of_name(char c) { return kinds[static_cast<unsigned char>(c)] & 1; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

 private:
  void skip_space();
  bool skip_comment();
  Literal float_bits(Literal::Form form, int digits);
  static const unsigned char*
      kinds;  // of a character: 1 if it is of names, 2 if braces, comments, strings or lines may begin or end with it

  std::string_view text_;
  std::size_t at_;
  int line_;
};

[[noreturn]] void fail_at(int line, const std::string& words);

}  // namespace ejk::ptx::parsing
