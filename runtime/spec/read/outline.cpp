// One pass over the text. Strings are jumped over, so that brackets in them count for nothing.
#include "spec/read/outline.hpp"

namespace ejk::spec {
namespace {

class Outliner {
 public:
  explicit Outliner(std::string_view text) : text_(text) {}

  std::optional<Outline> whole(int depth) {
    Outline outline;
    if (!value(outline, depth)) return std::nullopt;
    skip_space();
    if (at_ != text_.size()) return std::nullopt;
    return outline;
  }

 private:
  bool value(Outline& outline, int depth) {
    skip_space();
    if (at_ == text_.size()) return false;
    const std::size_t first = at_;
    const char c = text_[first];
    const bool is_object = c == '{', has_parts = is_object || c == '[';
    if (!(!has_parts ? word() : depth > 0 ? parts(outline, is_object, depth - 1) : skip_bracketed())) return false;
    outline.text = text_.substr(first, at_ - first);
    return true;
  }

  // An object's or a list's, brackets included.
  bool parts(Outline& outline, bool is_object, int depth) {
    const char close = is_object ? '}' : ']';
    ++at_;
    if (take(close)) return true;
    do {
      Outline& part = outline.parts.emplace_back();
      if (is_object && !(key(part) && take(':'))) return false;
      if (!value(part, depth)) return false;
    } while (take(','));
    return take(close);
  }

  bool key(Outline& part) {
    skip_space();
    const std::size_t first = at_ + 1;
    if (!string()) return false;
    part.key = text_.substr(first, at_ - 1 - first);
    return true;
  }

  bool take(char expected) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }

  // From its opening quote to behind the closing one.
  bool string() {
    if (at_ == text_.size() || text_[at_] != '"') return false;
    for (std::size_t i = at_ + 1; i < text_.size(); ++i) {
      if (text_[i] == '\\') {
        ++i;
      } else if (text_[i] == '"') {
        at_ = i + 1;
        return true;
      }
    }
    return false;
  }

  bool skip_bracketed() {
    for (std::size_t open = 0; at_ < text_.size();) {
      const char c = text_[at_];
      if (c == '"') {
        if (!string()) return false;
        continue;
      }
      ++at_;
      if (c == '{' || c == '[')
        ++open;
      else if ((c == '}' || c == ']') && --open == 0)
        return true;
    }
    return false;
  }

  // A string, a number, true, false or null.
  bool word() {
    if (text_[at_] == '"') return string();
    const std::size_t first = at_, end = text_.find_first_of(",]} \t\r\n", at_);
    at_ = end == text_.npos ? text_.size() : end;
    return at_ > first;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<Outline> outline_of(std::string_view text, int depth) { return Outliner(text).whole(depth); }

}  // namespace ejk::spec
