// Command lines over Boost.Program_options.
#include "command_line/arguments.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <sstream>

#include "spec/check/suggest.hpp"

namespace ejk::tools {

namespace po = boost::program_options;

namespace {

template <class T>
T parse_number(const std::string& option, const std::string& text, T low, T high) {
  T value{};
  const auto* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end || !(value >= low && value <= high))
    throw UsageError(fmt::format("--{}: expected a number from {} to {}, found '{}'", option, low, high, text));
  return value;
}

}  // namespace

struct Arguments::Boost {
  po::options_description options{"options", 120};
  po::variables_map values;
};

Arguments::Arguments(Arguments&&) noexcept = default;
Arguments::~Arguments() = default;

Arguments::Arguments(std::string command, std::string usage, std::string about, std::string examples)
    : command_(std::move(command)),
      usage_(std::move(usage)),
      about_(std::move(about)),
      examples_(std::move(examples)),
      boost_(std::make_unique<Boost>()) {
  flag("help", "show this");
}

Arguments& Arguments::option(const std::string& name, const std::string& value, const std::string& doc) {
  boost_->options.add_options()(name.c_str(), po::value<std::string>()->value_name(value), doc.c_str());
  names_.push_back(name);
  return *this;
}

Arguments& Arguments::list(const std::string& name, const std::string& value, const std::string& doc) {
  boost_->options.add_options()(name.c_str(), po::value<std::vector<std::string>>()->value_name(value), doc.c_str());
  names_.push_back(name);
  return *this;
}

Arguments& Arguments::flag(const std::string& name, const std::string& doc) {
  boost_->options.add_options()(name.c_str(), po::bool_switch(), doc.c_str());
  names_.push_back(name);
  flags_.push_back(name);
  return *this;
}

Arguments& Arguments::word(const std::string& name, bool required) {
  words_.push_back({name, required});
  return *this;
}

Arguments& Arguments::rest(const std::string& name) {
  rest_ = name;
  return *this;
}

bool Arguments::parse(std::span<const std::string> words) {
  if (std::find(words.begin(), words.end(), "--help") != words.end() || std::find(words.begin(), words.end(), "-h") != words.end()) {
    print_help();
    return false;
  }
  po::options_description all = boost_->options;
  po::positional_options_description positions;
  po::options_description hidden;
  for (const auto& word : words_) {
    hidden.add_options()(("<" + word.name + ">").c_str(), po::value<std::string>());
    positions.add(("<" + word.name + ">").c_str(), 1);
  }
  if (!rest_.empty()) {
    hidden.add_options()(("<" + rest_ + ">").c_str(), po::value<std::vector<std::string>>());
    positions.add(("<" + rest_ + ">").c_str(), -1);
  }
  all.add(hidden);
  const auto style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing & ~po::command_line_style::allow_short;
  try {
    po::store(
        po::command_line_parser(std::vector<std::string>(words.begin(), words.end())).options(all).positional(positions).style(style).run(),
        boost_->values);
    po::notify(boost_->values);
  } catch (const po::unknown_option& e) {
    unknown(e.get_option_name());
  } catch (const po::too_many_positional_options_error&) {
    throw UsageError(fmt::format("too many words; usage: ejk {} {}", command_, usage_));
  } catch (const po::multiple_occurrences& e) {
    throw UsageError(fmt::format("{} is given more than once", e.get_option_name()));
  } catch (const po::error& e) {
    throw UsageError(e.what());
  }
  for (const auto& word : words_) {
    if (word.required && !has(word.name)) throw UsageError(fmt::format("{} is missing; usage: ejk {} {}", word.name, command_, usage_));
    if (const auto given = text(word.name); given.size() > 1 && given[0] == '-') unknown(given);
  }
  for (const auto& given : this->words(rest_))
    if (given.size() > 1 && given[0] == '-') unknown(given);
  return true;
}

bool Arguments::is_flag(const std::string& name) const { return std::find(flags_.begin(), flags_.end(), name) != flags_.end(); }

bool Arguments::has(const std::string& name) const {
  if (is_flag(name)) return boost_->values.count(name) > 0 && boost_->values[name].as<bool>();
  return boost_->values.count(name) > 0 || boost_->values.count("<" + name + ">") > 0;
}

void Arguments::unknown(const std::string& option) const {
  const auto bare = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  throw UsageError(fmt::format("unknown option '{}'{}", option, spec::suggestion(bare, names_)));
}

void Arguments::print_help() const {
  std::ostringstream options;
  options << boost_->options;
  fmt::print("usage: ejk {} {}\n\n{}\n\n{}", command_, usage_, about_, options.str());
  if (!examples_.empty()) {
    fmt::print("\nexamples:\n");
    std::istringstream lines(examples_);
    for (std::string line; std::getline(lines, line);) fmt::print("  {}\n", line);
  }
}

std::string Arguments::text(const std::string& name, const std::string& fallback) const {
  for (const auto& key : {name, "<" + name + ">"})
    if (const auto found = boost_->values.find(key); found != boost_->values.end()) return found->second.as<std::string>();
  return fallback;
}

std::vector<std::string> Arguments::texts(const std::string& name) const {
  const auto found = boost_->values.find(name);
  return found == boost_->values.end() ? std::vector<std::string>{} : found->second.as<std::vector<std::string>>();
}

std::vector<std::string> Arguments::words(const std::string& name) const { return texts("<" + name + ">"); }

std::int64_t Arguments::integer(const std::string& name, std::int64_t fallback, std::int64_t low, std::int64_t high) const {
  return has(name) ? parse_number(name, text(name), low, high) : fallback;
}

double Arguments::number(const std::string& name, double fallback, double low, double high) const {
  return has(name) ? parse_number(name, text(name), low, high) : fallback;
}

std::vector<std::int64_t> integer_list(const std::string& option, const std::string& text, std::int64_t low, std::int64_t high) {
  std::vector<std::int64_t> result;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) result.push_back(parse_number(option, part, low, high));
  if (result.empty()) throw UsageError(fmt::format("--{}: expected numbers separated by ',', found '{}'", option, text));
  return result;
}

std::vector<std::string> words_of_list(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) words.push_back(part);
  return words;
}

bool matches(const std::string& pattern, const std::string& text) { return fnmatch(pattern.c_str(), text.c_str(), 0) == 0; }

}  // namespace ejk::tools
