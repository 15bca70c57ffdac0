// Shapes of tensors: extents, forms and alternatives.
#include <algorithm>
#include <charconv>

#include "spec/call/binder.hpp"
#include "spec/check/is_in.hpp"
#include "spec/check/suggest.hpp"
#include "spec/read/load_parts.hpp"

namespace ejk::spec {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

class ShapeReader {
 public:
  explicit ShapeReader(const Spec& spec) : spec_(spec), dims_(names_of_dims(spec)) {
    for (const Form& form : spec.forms) forms_.push_back(form.name);
  }

  void read(const JsonNode& node, const std::string& form) {
    if (node.json().is_array())
      shapes_.push_back({form, extents(node), {}});
    else if (node.json().is_object() && node.json().contains("any"))
      alternatives(node, form);
    else if (node.json().is_object() && node.json().contains("same_as"))
      same_as(node, form);
    else if (node.json().is_object() && form.empty())
      by_form(node);
    else
      node.wrong_kind(R"(a shape: a list, {"any": [list, ...]}, {"same_as": "x"} or {"form": list, ...})");
  }

  std::vector<Shape> take() { return std::move(shapes_); }

 private:
  void alternatives(const JsonNode& node, const std::string& form) {
    for (const auto& [key, value] : node.members()) {
      if (key != "any") {
        value.fault("unknown field '" + key + "' beside 'any'");
        continue;
      }
      const std::size_t first = shapes_.size();
      for (const JsonNode& item : value.items()) {
        if (!item.json().is_array()) {
          item.wrong_kind("a list of extents");
          continue;
        }
        const Shape shape{form, extents(item), {}};
        if (never_taken(shape, first)) item.fault("an earlier alternative has " + ranks_of(shape) + " too, so this one is never taken");
        shapes_.push_back(shape);
      }
      if (value.json().is_array() && value.json().empty()) value.fault("'any' is empty; give at least one shape");
    }
  }

  // An alternative is found by its rank: whether those from `first` on take all of its ranks.
  bool never_taken(const Shape& shape, std::size_t first) const {
    for (std::size_t rank = 0; rank <= static_cast<std::size_t>(max_rank); ++rank) {
      const auto fits = [&](const Shape& earlier) { return earlier.fits(rank); };
      if (shape.fits(rank) && std::none_of(shapes_.begin() + static_cast<std::ptrdiff_t>(first), shapes_.end(), fits)) return false;
    }
    return true;
  }

  static std::string ranks_of(const Shape& shape) {
    return shape.has_rest() ? "these numbers of dimensions" : std::to_string(shape.extents.size()) + " extents";
  }

  void same_as(const JsonNode& node, const std::string& form) {
    for (const auto& [key, value] : node.members())
      if (key != "same_as") value.fault("unknown field '" + key + "' beside 'same_as'");
    const JsonNode model = *node.field("same_as");
    const auto name = model.text();
    if (!name) return;
    const TensorSpec* tensor = spec_.tensor(*name);
    if (!tensor) {
      std::vector<std::string> known;
      for (const TensorSpec& each : spec_.tensors) known.push_back(each.name);
      return model.fault("'" + *name + "' is no tensor before this one" + suggestion(*name, known));
    }
    const std::size_t before = shapes_.size();
    for (const Shape& shape : tensor->shapes)
      if (form.empty() || takes_form(shape, form))
        shapes_.push_back({form.empty() ? shape.form : form, shape.extents, shape.same_as.empty() ? *name : shape.same_as});
    if (shapes_.size() == before && !tensor->shapes.empty()) model.fault("'" + *name + "' has no shape in the form '" + form + "'");
  }

  void by_form(const JsonNode& node) {
    if (node.json().empty()) node.fault("the shape is empty; give a list of extents, or one a form");
    std::vector<std::string> seen;
    for (const auto& [key, value] : node.members()) {
      std::size_t start = 0;
      for (std::size_t end = 0; end != std::string::npos; start = end + 1) {
        end = key.find('|', start);
        const std::string form = key.substr(start, end == std::string::npos ? end : end - start);
        if (!is_in(forms_, form))
          value.fault("unknown form '" + form + "'" + (forms_.empty() ? "; this kernel has no 'forms'" : suggestion(form, forms_)));
        else if (is_in(seen, form))
          value.fault("the form '" + form + "' has a shape already");
        else
          read(value, form);
        seen.push_back(form);
        if (end == std::string::npos) break;
      }
    }
  }

  std::vector<Extent> extents(const JsonNode& list) {
    std::vector<Extent> extents;
    const auto items = list.items();
    if (items.size() > static_cast<std::size_t>(max_rank))
      list.fault("a shape has at most " + std::to_string(max_rank) + " extents, found " + std::to_string(items.size()));
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto rest = std::find_if(extents.begin(), extents.end(), [](const Extent& each) { return each.kind == Extent::Kind::rest; });
      Extent next = extent(items[i]);
      if (next.kind == Extent::Kind::rest && rest != extents.end())
        items[i].fault("'" + next.text + "' and '" + rest->text +
                       "' each stand for any number of dimensions, and nothing tells where one ends; " + "a shape has at most one of them");
      extents.push_back(std::move(next));
    }
    return extents;
  }

  Extent extent(const JsonNode& node) {
    Extent extent;
    const Json& json = node.json();
    if (!json.is_string() && !json.is_number_integer()) {
      node.wrong_kind(R"(an extent: "B", "B|1", "C...", an expression or an integer)");
      return extent;
    }
    extent.text = json.is_string() ? json.get<std::string>() : std::to_string(json.get<std::int64_t>());
    if (json.is_number_integer() && json.get<std::int64_t>() < 0) node.fault("an extent is not negative, found " + extent.text);
    if (extent.text.ends_with("..."))
      named(node, extent, Extent::Kind::rest, extent.text.substr(0, extent.text.size() - 3));
    else if (const auto bar = extent.text.find('|'); bar != std::string::npos)
      or_one(node, extent, bar);
    else
      computed(node, extent);
    return extent;
  }

  void or_one(const JsonNode& node, Extent& extent, std::size_t bar) {
    if (extent.text.substr(bar + 1) != "1")
      node.fault("'" + extent.text + "' is no extent; a dim that may be broadcast is written \"B|1\"");
    named(node, extent, Extent::Kind::dim_or_one, extent.text.substr(0, bar));
  }

  void named(const JsonNode& node, Extent& extent, Extent::Kind kind, const std::string& dim) {
    extent.kind = kind;
    extent.dim = dim;
    if (!is_in(dims_, dim)) node.fault("unknown dim '" + dim + "'" + suggestion(dim, dims_));
  }

  void computed(const JsonNode& node, Extent& extent) {
    extent.expression = node.expression();
    if (const auto name = extent.expression.as_name()) return named(node, extent, Extent::Kind::dim, *name);
    extent.kind = Extent::Kind::expression;
    binding_sum(extent);
    for (const std::string& name : extent.expression.names())
      if (!is_in(dims_, name) && !spec_.attribute(name) && !is_in(names_of_types(spec_), name))
        node.fault("unknown name '" + name + "'" + suggestion(name, dims_));
  }

  // NAME + INTEGER also binds NAME.
  void binding_sum(Extent& extent) const {
    const std::string_view text = extent.text;
    const auto plus = text.find('+');
    if (plus == std::string_view::npos) return;
    const std::string name(trimmed(text.substr(0, plus)));
    const std::string_view number = trimmed(text.substr(plus + 1));
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc{} || end != number.data() + number.size() || value < 0 || !is_in(dims_, name)) return;
    extent.dim = name;
    extent.plus = value;
  }

  const Spec& spec_;
  std::vector<std::string> dims_, forms_;
  std::vector<Shape> shapes_;
};

}  // namespace

std::vector<Shape> load_shapes(const JsonNode& node, const Spec& spec) {
  ShapeReader reader(spec);
  reader.read(node, "");
  return reader.take();
}

}  // namespace ejk::spec
