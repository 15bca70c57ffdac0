// A command as it was typed.
#include "command_line/command_line.hpp"

#include <algorithm>
#include <ctime>
#include <iterator>

namespace ejk::tools {
namespace {

constexpr const char* places[] = {"--store", "--openblas", "--python", "--out", "--ship", "--save", "--report", "--state", "--recorded"};
constexpr const char* needs_quotes = " *?'\"{}[]$&|<>;()";

}  // namespace

std::string command_line(const std::string& command, std::span<const std::string> words) {
  std::string text = "ejk " + command;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    if (std::any_of(std::begin(places), std::end(places), [&](const char* place) { return word.starts_with(place); }))
      i += word.find('=') == std::string::npos;
    else
      text += word.find_first_of(needs_quotes) == std::string::npos ? " " + word : " '" + word + "'";
  }
  return text;
}

std::string date_today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  char text[16];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d", gmtime_r(&now, &date))};
}

}  // namespace ejk::tools
