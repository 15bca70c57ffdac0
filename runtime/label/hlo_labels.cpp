// Finds labels in text of which nothing is known but that strings in it may be escaped.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "ejk/label.hpp"
#include "label/label_text.hpp"

namespace ejk {
namespace {

constexpr std::size_t longest_kernel = 256;
constexpr std::size_t window = 8 * longest_label;  // three layers of escapes at most double a quote's length each
constexpr int most_layers = 3;

// Quote and backslash are all that a label in ASCII needs escaped: C's \" \\ \x22 \x5c and octal \042 \134, MLIR's \22 \5C.
struct Escape {
  std::string_view written;
  char character;
};
constexpr Escape escapes[] = {{"\\\"", '"'},  {"\\\\", '\\'},  {"\\22", '"'},  {"\\5C", '\\'},  {"\\5c", '\\'},
                              {"\\042", '"'}, {"\\134", '\\'}, {"\\x22", '"'}, {"\\x5c", '\\'}, {"\\x5C", '\\'}};

// One layer taken off; the text ends at the quote that closes the string.
std::string unescaped(std::string_view text) {
  std::string result;
  while (!text.empty() && text.front() != '"') {
    const auto* escape = text.front() == '\\' ? std::ranges::find_if(escapes, [&](const auto& e) { return text.starts_with(e.written); })
                                              : std::end(escapes);
    const bool found = escape != std::end(escapes);
    result += found ? escape->character : text.front();
    text.remove_prefix(found ? escape->written.size() : 1);
  }
  return result;
}

// The length of the JSON object that the text begins with; 0: it does not end.
std::size_t object_length(std::string_view text) {
  std::size_t depth = 0;
  bool inside = false;  // a string
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside) {
      if (c == '\\') ++i;
      if (c == '"') inside = false;
    } else if (c == '"') {
      inside = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return 0;
}

// The JSON of a label whose object begins the text, in the form that label() writes.
std::optional<std::string> json_of_label(std::string_view text) {
  std::string layer(text.substr(0, window));
  for (int layers = 0; layers <= most_layers; ++layers, layer = unescaped(layer)) {
    const auto length = layer.starts_with("{\"") ? object_length(layer) : 0;
    if (length == 0) continue;
    const auto object = nlohmann::json::parse(layer.begin(), layer.begin() + static_cast<std::ptrdiff_t>(length), nullptr, false);
    if (!object.is_object() || !object.contains("kernel")) continue;
    try {
      return ascii(object);
    } catch (const nlohmann::json::exception&) {
      return std::nullopt;  // not UTF-8
    }
  }
  return std::nullopt;
}

// A label that begins with the text, which begins with the mark.
struct Reading {
  bool begins = false;  // it has a kernel's name at least
  std::optional<std::string> label;
};

Reading read_label(std::string_view text) {
  const auto name = text.substr(label_mark.size(), longest_kernel + 1);
  const auto colon = std::find_if_not(name.begin(), name.end(), is_kernel_letter);
  if (colon == name.begin() || colon == name.end() || *colon != ':') return {};
  const auto length = label_mark.size() + static_cast<std::size_t>(colon - name.begin()) + 1;
  const auto prefix = text.substr(0, length), rest = text.substr(length);
  const auto digits = static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), is_hex_digit) - rest.begin());
  if (digits == hash_digits) return {true, std::string(text.substr(0, length + digits))};
  if (!rest.starts_with('{')) return {digits > 0 || rest.empty(), std::nullopt};
  auto json = json_of_label(rest);
  if (!json) return {true, std::nullopt};
  return {true, std::string(prefix) + *json};
}

std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, 60)) result += c >= 32 && c < 127 ? c : '?';
  return result;
}

}  // namespace

std::vector<std::string> extract_labels_from_hlo_text(std::string_view text, std::vector<std::string>* damaged) {
  std::vector<std::string> labels;
  std::unordered_set<std::string> seen;
  for (auto at = text.find(label_mark); at != std::string_view::npos; at = text.find(label_mark, at + label_mark.size())) {
    if (at > 0 && is_kernel_letter(text[at - 1]) && text[at - 1] != '.') continue;  // the end of another word
    auto found = read_label(text.substr(at));
    if (found.label && seen.insert(*found.label).second) labels.push_back(std::move(*found.label));
    if (!found.label && found.begins && damaged) damaged->push_back(fmt::format("at byte {}: {}", at, shown(text.substr(at))));
  }
  return labels;
}

}  // namespace ejk
