// By the outline of the spec and of its variants; where that leaves a doubt, nothing is left out.
#include "spec/read/excerpt.hpp"

#include <algorithm>
#include <map>

#include "spec/read/outline.hpp"
#include "spec/read/spec_size.hpp"

namespace ejk::spec {
namespace {

// What decides, as written: strings with their quotes. Empty: not there.
struct Heading {
  std::string_view name, like, archs;
};

std::optional<Heading> heading_of(const Outline& variant) {
  if (!variant.is_object()) return std::nullopt;
  Heading heading;
  for (const auto& [key, value, parts] : variant.parts) {
    if (key.find('\\') != key.npos) return std::nullopt;  // it may be one of the three
    std::string_view* const part = key == "name"    ? &heading.name
                                   : key == "like"  ? &heading.like
                                   : key == "archs" ? &heading.archs
                                                    : nullptr;
    if (!part) continue;
    if (!part->empty() || value.find('\\') != value.npos) return std::nullopt;
    *part = value;
  }
  return heading;
}

class Selection {
 public:
  explicit Selection(std::vector<Heading> headings) : headings_(std::move(headings)), taken_(headings_.size()) {
    for (std::size_t i = 0; i < headings_.size(); ++i) first_.emplace(headings_[i].name, i);
  }

  // Empty: none is left out.
  std::vector<bool> left() {
    for (std::size_t i = 0; i < headings_.size(); ++i)
      if (may_run_on_cpus(i)) take(i);
    if (std::find(taken_.begin(), taken_.end(), false) == taken_.end()) return {};
    taken_.flip();
    return std::move(taken_);
  }

 private:
  // What it is like; nullopt: nothing that is there.
  std::optional<std::size_t> base(std::size_t index) const {
    const auto found = headings_[index].like.empty() ? first_.end() : first_.find(headings_[index].like);
    if (found == first_.end() || found->second == index) return std::nullopt;
    return found->second;
  }

  bool may_run_on_cpus(std::size_t index) const {
    std::optional<std::size_t> at = index;
    for (std::size_t steps = 0; at && headings_[*at].archs.empty(); at = base(*at))
      if (++steps > headings_.size()) return true;  // a circle
    if (!at) return true;
    const std::string_view archs = headings_[*at].archs;
    return !archs.starts_with('[') || archs.find("\"cpu") != archs.npos;
  }

  void take(std::size_t index) {
    for (std::optional<std::size_t> at = index; at && !taken_[*at]; at = base(*at)) taken_[*at] = true;
  }

  std::vector<Heading> headings_;
  std::vector<bool> taken_;
  std::map<std::string_view, std::size_t> first_;  // of that name
};

std::vector<bool> left_out(const std::vector<Outline>& variants) {
  if (variants.size() > widest) return {};
  std::vector<Heading> headings;
  for (const Outline& variant : variants) {
    const auto heading = heading_of(variant);
    if (!heading) return {};
    headings.push_back(*heading);
  }
  return Selection(std::move(headings)).left();
}

void add_variants(Excerpt& excerpt, const Outline& list) {
  excerpt.variants = list.text;
  if (list.is_list()) excerpt.left = left_out(list.parts);
  if (excerpt.left.empty()) {
    excerpt.text += list.text;
    return;
  }
  for (std::size_t i = 0; i < list.parts.size(); ++i) {
    excerpt.text += i ? ',' : '[';
    excerpt.text += excerpt.left[i] ? "null" : list.parts[i].text;
  }
  excerpt.text += ']';
}

}  // namespace

std::optional<Excerpt> excerpt_of(std::string_view text, Later later) {
  const auto spec = outline_of(text, 3);  // its fields, the list of variants, their fields
  if (!spec || !spec->is_object() || spec->parts.empty()) return std::nullopt;
  Excerpt excerpt;
  for (const Outline& field : spec->parts) {
    excerpt.text += excerpt.text.empty() ? "{\"" : ",\"";
    (excerpt.text += field.key) += "\":";
    if (field.key == "cases" && field.is_list())
      excerpt.text += "[]";
    else if (field.key == "variants" && later == Later::cases_and_gpus)
      add_variants(excerpt, field);
    else
      excerpt.text += field.text;
  }
  excerpt.text += '}';
  return excerpt;
}

}  // namespace ejk::spec
