// Nearest names by edit distance.
#include "spec/check/suggest.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace ejk::spec {
namespace {

constexpr std::size_t longest = 64;  // longer words are no typing errors of a name

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Levenshtein distance, case ignored.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t change = diagonal + (lower(a[i]) == lower(b[j]) ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string listed(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::vector<std::string> nearest(std::string_view word, std::vector<std::string> known, std::size_t count) {
  word = word.substr(0, longest);
  std::vector<std::pair<std::size_t, std::string>> order;
  for (std::string& name : known) {
    const bool contains = !word.empty() && name.find(word) != std::string::npos;
    const std::size_t steps = contains ? 0 : 1 + distance(word, std::string_view(name).substr(0, longest));
    order.emplace_back(steps, std::move(name));
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), count));
  std::vector<std::string> names;
  for (auto& [steps, name] : order) names.push_back(std::move(name));
  return names;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& known) {
  if (known.empty()) return "";
  const std::string* nearest = nullptr;
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : known) {
    const std::size_t steps = word.size() > longest ? best : distance(word, name);
    if (steps < best) best = steps, nearest = &name;
  }
  // A one-letter name is one edit from every other: listing them helps more.
  if (nearest && word.size() > 1) return "; did you mean '" + *nearest + "'?";
  return "; known: " + listed(known);
}

}  // namespace ejk::spec
