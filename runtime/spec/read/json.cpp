// A SAX handler that builds the tree and sees what nlohmann's own builder lets pass.
#include "spec/read/json.hpp"

#include <limits>
#include <set>

#include "spec/read/json_integers.hpp"

namespace ejk::spec {
namespace {

constexpr std::size_t max_text = 8u << 20;
constexpr std::size_t max_faults = 50;  // of this reader: fields that occur twice
constexpr std::size_t max_depth = 32;   // the deepest legal field of a spec is at 8

// One open object or array.
struct Level {
  Json value;
  std::string key;             // of the member being read
  bool twice = false;          // it is there already
  std::set<std::string> keys;  // of a large object: an ordered one looks through all its members for each
};
constexpr std::size_t large_object = 16;

// Whether an object has a member of that name. Asked before each is added.
bool contains(Level& level, const std::string& name) {
  if (level.value.size() < large_object) return level.value.contains(name);
  if (level.keys.empty())
    for (const auto& [known, member] : level.value.items()) level.keys.insert(known);
  return !level.keys.insert(name).second;
}

class Builder {
 public:
  Builder(const std::string& file, const std::string& text, std::vector<Fault>& faults, Integers integers)
      : file_(file), text_(text), faults_(faults), integers_(integers) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return add(static_cast<std::int64_t>(value));
    if (integers_ == Integers::any_64_bits) return add(value);
    return too_large(std::to_string(value));
  }
  bool number_float(double value, const std::string& text) {
    // An integer too large for 64 bits arrives here.
    return text.find_first_of(".eE") == std::string::npos ? too_large(text) : add(value);
  }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    Level& level = levels_.back();
    level.key = std::move(name);
    if (level.twice = contains(level, level.key); level.twice)
      fault(here(), "the field '" + level.key + "' occurs twice in this object; keep one");
    return faults_.size() - before_ < max_faults;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    faults_.push_back({file_, line_and_column(position), "not JSON: " + reason(error.what())});
    return false;
  }

  std::optional<Json> result(bool read) {
    if (!read || faults_.size() != before_) return std::nullopt;
    return std::move(root_);
  }

 private:
  void fault(std::string pointer, std::string sentence) { faults_.push_back({file_, std::move(pointer), std::move(sentence)}); }

  bool too_large(const std::string& number) {
    fault(here(), "the integer " + number + " does not fit 64 bits");
    return add(0);
  }

  // The pointer of the value that comes next: made when a fault asks for it.
  std::string here() const {
    std::string pointer;
    for (const Level& level : levels_)
      pointer = level.value.is_array() ? pointer_to(pointer, level.value.size()) : pointer_to(pointer, level.key);
    return pointer;
  }

  bool open(Json value) {
    if (levels_.size() == max_depth) {
      fault(here(), "nested more than " + std::to_string(max_depth) + " levels deep");
      return false;
    }
    if (value.is_object()) value.get_ref<Json::object_t&>().reserve(8);  // a growing object copies its keys
    levels_.push_back({std::move(value), {}, false, {}});
    return true;
  }

  bool close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (levels_.empty())
      root_ = std::move(value);
    else if (Level& level = levels_.back(); level.value.is_array())
      level.value.push_back(std::move(value));
    else if (!level.twice)
      level.value.get_ref<Json::object_t&>().emplace_back(level.key, std::move(value));
    return true;
  }

  // position: bytes read when the parser stopped, the offending one included.
  std::string line_and_column(std::size_t position) const {
    const std::string_view read = std::string_view(text_).substr(0, position == 0 ? 0 : position - 1);
    std::size_t line = 1, column = 1;
    for (const char c : read)
      if (c == '\n')
        ++line, column = 1;
      else
        ++column;
    return std::to_string(line) + ":" + std::to_string(column);
  }

  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." without what is said already.
  static std::string reason(std::string what) {
    if (const auto end = what.find("] "); end != std::string::npos) what.erase(0, end + 2);
    if (const auto place = what.find("parse error at line"); place == 0)
      if (const auto colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
    for (char& c : what)
      if (static_cast<unsigned char>(c) >= 0x80 || static_cast<unsigned char>(c) < 0x20) c = '?';
    constexpr std::size_t most = 240;
    return what.size() <= most ? what : what.substr(0, most) + "...";
  }

  const std::string& file_;
  const std::string& text_;
  std::vector<Fault>& faults_;
  const std::size_t before_ = faults_.size();
  Integers integers_;
  std::vector<Level> levels_;
  Json root_;
};

}  // namespace

std::optional<Json> parse_json(const std::string& file, const std::string& text, std::vector<Fault>& faults) {
  return parse_json(file, text, faults, Integers::signed_64_bits);
}

std::optional<Json> parse_json(const std::string& file, const std::string& text, std::vector<Fault>& faults, Integers integers) {
  if (text.size() > max_text) {
    faults.push_back({file, "", "the file has " + std::to_string(text.size()) + " bytes; the limit is " + std::to_string(max_text)});
    return std::nullopt;
  }
  Builder builder(file, text, faults, integers);
  return builder.result(Json::sax_parse(text, &builder));
}

Json* list_in(Json& object, const char* field) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(field);
  return found != object.end() && found->is_array() ? &*found : nullptr;
}

std::string pointer_to(const std::string& parent, std::string_view token) {
  std::string pointer;
  pointer.reserve(parent.size() + 1 + token.size());
  pointer.append(parent).push_back('/');
  if (token.find('~') == token.npos && token.find('/') == token.npos) return pointer.append(token);
  for (const char c : token) {
    if (c == '~')
      pointer += "~0";
    else if (c == '/')
      pointer += "~1";
    else
      pointer += c;
  }
  return pointer;
}

std::string pointer_to(const std::string& parent, std::size_t index) { return parent + "/" + std::to_string(index); }

}  // namespace ejk::spec
