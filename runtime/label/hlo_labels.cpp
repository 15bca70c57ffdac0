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

// Text with some layers of escapes taken off, and where each character of it ends in the text as it stands.
struct Layer {
  std::string text;
  std::vector<std::size_t> ends;
};

// One layer less; the text ends at the quote that closes the string.
Layer unescaped(const Layer& outer) {
  Layer result;
  for (std::string_view rest = outer.text; !rest.empty() && rest.front() != '"';) {
    const auto* escape = rest.front() == '\\' ? std::ranges::find_if(escapes, [&](const auto& e) { return rest.starts_with(e.written); })
                                              : std::end(escapes);
    const bool found = escape != std::end(escapes);
    result.text += found ? escape->character : rest.front();
    rest.remove_prefix(found ? escape->written.size() : 1);
    result.ends.push_back(outer.ends[outer.text.size() - rest.size() - 1]);
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

// A label that begins the text, which begins with the mark.
struct Reading {
  bool begins = false;  // it has a kernel's name at least
  std::optional<std::string> label;
  std::size_t length = 0;  // of a label, as it stands in the text
};

// Puts the JSON of a label whose object begins the text behind the label's prefix, in the form that label() writes.
void read_json(std::string_view text, std::string prefix, Reading& reading) {
  Layer layer{std::string(text.substr(0, std::min(window, text.find('\n')))), {}};  // a label is on one line
  for (std::size_t i = 0; i < layer.text.size(); ++i) layer.ends.push_back(i + 1);
  for (int layers = 0; layers <= most_layers; ++layers, layer = unescaped(layer)) {
    const auto length = layer.text.starts_with("{\"") ? object_length(layer.text) : 0;
    if (length == 0) continue;
    const auto object = nlohmann::json::parse(layer.text.begin(), layer.text.begin() + static_cast<std::ptrdiff_t>(length), nullptr, false);
    if (!object.is_object() || !object.contains("kernel")) continue;
    try {
      reading.label = std::move(prefix) + ascii(object);
      reading.length += layer.ends[length - 1];
    } catch (const nlohmann::json::exception&) {
      reading.label.reset();  // not UTF-8
    }
    return;
  }
}

Reading read_label(std::string_view text) {
  const auto name = text.substr(label_mark.size(), longest_kernel + 1);
  const auto colon = std::find_if_not(name.begin(), name.end(), is_kernel_letter);
  if (colon == name.begin() || colon == name.end() || *colon != ':') return {};
  Reading reading{true, {}, label_mark.size() + static_cast<std::size_t>(colon - name.begin()) + 1};
  const auto prefix = text.substr(0, reading.length), rest = text.substr(reading.length);
  const auto digits = static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), is_hex_digit) - rest.begin());
  if (digits == hash_digits) {
    reading.length += digits;
    reading.label = std::string(text.substr(0, reading.length));
  } else if (rest.starts_with('{')) {
    read_json(rest, std::string(prefix), reading);
  } else {
    reading.begins = digits > 0 || rest.empty();
  }
  return reading;
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
  for (auto at = text.find(label_mark), next = at; at != std::string_view::npos; at = text.find(label_mark, next)) {
    next = at + label_mark.size();
    if (at > 0 && is_kernel_letter(text[at - 1]) && text[at - 1] != '.') continue;  // the end of another word
    auto found = read_label(text.substr(at));
    if (found.label) next = at + found.length;  // what stands within a label is part of it
    if (found.label && seen.insert(*found.label).second) labels.push_back(std::move(*found.label));
    if (!found.label && found.begins && damaged) damaged->push_back(fmt::format("at byte {}: {}", at, shown(text.substr(at))));
  }
  return labels;
}

}  // namespace ejk
