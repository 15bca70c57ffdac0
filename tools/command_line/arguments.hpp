// A sub-command's command line: options, positional words, help with examples, and errors that suggest what was meant.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace ejk::tools {

// The command line is wrong. main() adds where to find help.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Arguments {
 public:
  // usage: "KERNEL --case NAME [options]"; about: a paragraph; examples: one command a line, each may end in "  # what it does".
  Arguments(std::string command, std::string usage, std::string about, std::string examples);
  Arguments(Arguments&&) noexcept;
  ~Arguments();

  // Options that take a value (shown as `value`), or none (a flag).
  Arguments& option(const std::string& name, const std::string& value, const std::string& doc);
  Arguments& list(const std::string& name, const std::string& value, const std::string& doc);  // may be given several times
  Arguments& flag(const std::string& name, const std::string& doc);
  Arguments& word(const std::string& name, bool required);  // the next positional word

  Arguments& rest(const std::string& name);  // all further words; read by words()

  // False: help was asked for and printed. Throws UsageError.
  bool parse(std::span<const std::string> words);

  bool has(const std::string& name) const;  // an option or word that was given; a flag that is set
  std::string text(const std::string& name, const std::string& fallback = "") const;
  std::vector<std::string> texts(const std::string& name) const;
  std::vector<std::string> words(const std::string& name) const;  // of rest()
  // Throws UsageError if the text is not such a number or out of range.
  std::int64_t integer(const std::string& name, std::int64_t fallback, std::int64_t low, std::int64_t high) const;
  double number(const std::string& name, double fallback, double low, double high) const;

 private:
  bool is_flag(const std::string& name) const;
  void print_help() const;
  [[noreturn]] void unknown(const std::string& option) const;

  struct Word {
    std::string name;
    bool required;
  };
  struct Boost;  // its headers take each source that includes them a second to read
  std::string command_, usage_, about_, examples_;
  std::unique_ptr<Boost> boost_;
  std::vector<std::string> names_;
  std::vector<std::string> flags_;
  std::vector<Word> words_;
  std::string rest_;
};

// "1,2,4" as integers of [low, high]. Throws UsageError naming the option.
std::vector<std::int64_t> integer_list(const std::string& option, const std::string& text, std::int64_t low, std::int64_t high);

// "torch,ejkernel" as words.
std::vector<std::string> words_of_list(const std::string& text);

// Shell patterns: * any characters, ? one.
bool matches(const std::string& pattern, const std::string& text);

}  // namespace ejk::tools
