// A scanner of C++ that knows comments and literals, and nothing else.
#include "spec/render/source_hash.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "spec/render/sha256.hpp"

namespace ejk::spec {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// All else is copied as it stands, which is nearly all of a source: a first call pays for each instruction here.
constexpr auto begins_something = [] {
  std::array<unsigned char, 256> table{};  // numbers: they are or-ed without a branch each
  for (const unsigned char c : {'/', '\n', '"', '\''}) table[c] = 1;
  return table;
}();
std::size_t end_of_plain(std::string_view text, std::size_t at) {
  const auto begins = [](char c) -> unsigned { return begins_something[static_cast<unsigned char>(c)]; };
  for (; at + 4 <= text.size(); at += 4)
    if ((begins(text[at]) | begins(text[at + 1]) | begins(text[at + 2]) | begins(text[at + 3])) != 0) break;
  while (at < text.size() && begins(text[at]) == 0) ++at;
  return at;
}

// Where words begin. Asked of places in ascending order, it looks at each letter once.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}
  // Whether the quote at `at` separates digits (1'000): the word before it begins with a digit.
  bool separates_digits(std::size_t at) {
    for (; seen_ < at; ++seen_)
      if (!is_word(text_[seen_]) && text_[seen_] != '\'') begin_ = seen_ + 1;
    return begin_ < at && std::isdigit(static_cast<unsigned char>(text_[begin_])) != 0;
  }

 private:
  std::string_view text_;
  std::size_t seen_ = 0, begin_ = 0;  // of the word that reaches `seen_`
};

// The end of the literal whose quote is at `at`: behind its closing quote, or where its line or the text ends.
std::size_t end_of_literal(std::string_view text, std::size_t at) {
  for (std::size_t i = at + 1; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == text[at])
      return i + 1;
  }
  return std::min(text.find('\n', at), text.size());
}

constexpr std::size_t longest_delimiter = 16;  // of a raw string, by C++'s rules

std::size_t end_of_raw_string(std::string_view text, std::size_t at) {
  const auto open = text.substr(0, at + 2 + longest_delimiter).find('(', at);
  if (open == std::string_view::npos) return end_of_literal(text, at);  // no raw string, whatever the R belongs to
  const std::string close = ")" + std::string(text.substr(at + 1, open - at - 1)) + "\"";
  const auto end = text.find(close, open);
  return end == std::string_view::npos ? text.size() : end + close.size();
}

std::size_t end_of_comment(std::string_view text, std::size_t at) {
  if (text[at + 1] == '/') return std::min(text.find('\n', at), text.size());
  const auto end = text.find("*/", at + 2);
  return end == std::string_view::npos ? text.size() : end + 2;
}

void end_line(std::string& out) {
  while (!out.empty() && (out.back() == ' ' || out.back() == '\t' || out.back() == '\r')) out.pop_back();
  if (!out.empty() && out.back() != '\n') out += '\n';
}

}  // namespace

std::string without_comments(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Words words(text);
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = end_of_plain(text, i);
    out.append(text, i, end - i);
    i = end;
    if (i == text.size()) break;
    const char c = text[i];
    end = i + 1;
    if (c == '/' && end < text.size() && (text[end] == '/' || text[end] == '*')) {
      i = end_of_comment(text, i);
      out += ' ';
      continue;
    }
    if (c == '\n') {
      end_line(out);
      ++i;
      continue;
    }
    if (c == '"') end = i > 0 && text[i - 1] == 'R' ? end_of_raw_string(text, i) : end_of_literal(text, i);
    if (c == '\'' && !words.separates_digits(i)) end = end_of_literal(text, i);
    out.append(text, i, end - i);
    i = end;
  }
  end_line(out);
  return out;
}

std::string source_hash(std::string_view source) {
  std::string hashed;
  if (const auto flags = source.find(flags_mark); flags != std::string_view::npos)
    hashed = std::string(source.substr(flags, source.find('\n', flags) - flags)) + "\n";
  return sha256_hex(hashed + without_comments(source)).substr(0, 16);
}

}  // namespace ejk::spec
