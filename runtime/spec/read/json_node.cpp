// Reading fields, with faults instead of exceptions.
#include "spec/read/json_node.hpp"

#include <algorithm>
#include <map>

#include "spec/check/suggest.hpp"
#include "spec/read/fields.hpp"

namespace ejk::spec {
namespace {

bool fits(const Json& json, FieldKind kind) {
  switch (kind) {
    case FieldKind::doc:
    case FieldKind::text:
      return json.is_string();
    case FieldKind::boolean:
      return json.is_boolean();
    case FieldKind::integer:
      return json.is_number_integer();
    case FieldKind::list:
      return json.is_array();
    case FieldKind::object:
      return json.is_object();
    case FieldKind::expression:
      return json.is_string() || json.is_number() || json.is_boolean();
    case FieldKind::any:
      break;
  }
  return true;
}

std::string_view name_of(FieldKind kind) {
  switch (kind) {
    case FieldKind::doc:
    case FieldKind::text:
      return "a string";
    case FieldKind::boolean:
      return "true or false";
    case FieldKind::integer:
      return "an integer";
    case FieldKind::list:
      return "a list";
    case FieldKind::object:
      return "an object";
    case FieldKind::expression:
      return "an expression (a string, a number or a boolean)";
    case FieldKind::any:
      break;
  }
  return "a value";
}

void number_pointers(const Json& json, const std::string& pointer, std::map<std::string, std::size_t>& order) {
  order.emplace(pointer, order.size());
  if (json.is_object())
    for (const auto& [key, value] : json.items()) number_pointers(value, pointer_to(pointer, key), order);
  if (json.is_array())
    for (std::size_t i = 0; i < json.size(); ++i) number_pointers(json[i], pointer_to(pointer, i), order);
}

std::vector<std::string> known_in(const ObjectFields& row, const std::vector<std::string>& extra) {
  std::vector<std::string> known;
  for (const Field& field : row.fields) known.emplace_back(field.name);
  known.insert(known.end(), extra.begin(), extra.end());
  return known;
}

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

}  // namespace

void FileFaults::add(const std::string& pointer, std::string sentence) {
  Fault fault{file_, origins_.written_at(pointer), std::move(sentence)};
  const auto same = [&](const Fault& other) { return other.where == fault.where && other.sentence == fault.sentence; };
  if (std::none_of(faults_.begin() + static_cast<std::ptrdiff_t>(first_), faults_.end(), same)) faults_.push_back(std::move(fault));
}

void FileFaults::sort_as_in(const Json& document) {
  if (!any()) return;  // numbering a document takes as long as reading it
  std::map<std::string, std::size_t> order;
  number_pointers(document, "", order);
  const auto place = [&](const Fault& fault) {
    const auto found = order.find(fault.where);
    return found == order.end() ? 0 : found->second;
  };
  std::stable_sort(faults_.begin() + static_cast<std::ptrdiff_t>(first_), faults_.end(),
                   [&](const Fault& a, const Fault& b) { return place(a) < place(b); });
}

Expression FileFaults::expression(const std::string& text) {
  const auto [place, fresh] = expressions_.try_emplace(text);
  if (!fresh && place->second) return place->second;
  return place->second = Expression::parse(text);
}

bool JsonNode::open(std::string_view object, const std::vector<std::string>& extra) const {
  const ObjectFields& row = fields_of(object);
  if (!json_->is_object()) {
    wrong_kind("an object (" + std::string(object) + ")");
    return false;
  }
  for (const auto& [key, value] : json_->items()) {
    const auto member = [&, &key = key, &value = value] { return JsonNode(value, pointer_to(pointer_, key), *faults_); };
    const auto field = std::find_if(row.fields.begin(), row.fields.end(), [&key = key](const Field& f) { return f.name == key; });
    if (field == row.fields.end()) {
      if (std::find(extra.begin(), extra.end(), key) == extra.end())
        member().fault("unknown field '" + key + "'" + suggestion(key, known_in(row, extra)));
    } else if (!fits(value, field->kind)) {
      member().wrong_kind(name_of(field->kind));
    } else if (field->kind == FieldKind::doc && is_blank(value.get_ref<const std::string&>())) {
      member().fault("'" + key + "' is empty; say what a reader needs to know");
    }
  }
  for (const Field& field : row.fields)
    if (field.required && !json_->contains(field.name)) fault("missing field '" + std::string(field.name) + "'");
  return true;
}

const Json* JsonNode::find(std::string_view name) const {
  const auto found = json_->find(name);
  return found == json_->end() ? nullptr : &*found;
}

std::optional<JsonNode> JsonNode::field(std::string_view name) const {
  const Json* const found = find(name);
  if (!found) return std::nullopt;
  return JsonNode(*found, pointer_to(pointer_, name), *faults_);
}

std::vector<JsonNode> JsonNode::list(std::string_view name) const {
  const auto node = field(name);
  return node && node->json_->is_array() ? node->items() : std::vector<JsonNode>();
}

std::vector<std::pair<std::string, JsonNode>> JsonNode::members(std::string_view name) const {
  const auto node = field(name);
  if (!node || !node->json_->is_object()) return {};
  return node->members();
}

std::string JsonNode::text(std::string_view name) const {
  const Json* const json = find(name);
  return json && json->is_string() ? json->get<std::string>() : std::string();
}

bool JsonNode::boolean(std::string_view name) const {
  const Json* const json = find(name);
  return json && json->is_boolean() && json->get<bool>();
}

std::int64_t JsonNode::integer(std::string_view name, std::int64_t otherwise) const {
  const Json* const json = find(name);
  return json && json->is_number_integer() ? json->get<std::int64_t>() : otherwise;
}

Expression JsonNode::expression(std::string_view name) const {
  const auto node = field(name);
  return node && fits(*node->json_, FieldKind::expression) ? node->expression() : Expression();
}

std::vector<JsonNode> JsonNode::items() const {
  std::vector<JsonNode> nodes;
  if (!json_->is_array()) {
    wrong_kind("a list");
    return nodes;
  }
  nodes.reserve(json_->size());
  for (std::size_t i = 0; i < json_->size(); ++i) nodes.emplace_back((*json_)[i], pointer_to(pointer_, i), *faults_);
  return nodes;
}

std::vector<std::pair<std::string, JsonNode>> JsonNode::members() const {
  std::vector<std::pair<std::string, JsonNode>> nodes;
  if (!json_->is_object()) {
    wrong_kind("an object");
    return nodes;
  }
  nodes.reserve(json_->size());
  for (const auto& [key, value] : json_->items()) nodes.emplace_back(key, JsonNode(value, pointer_to(pointer_, key), *faults_));
  return nodes;
}

std::optional<std::string> JsonNode::text() const {
  if (json_->is_string()) return json_->get<std::string>();
  wrong_kind("a string");
  return std::nullopt;
}

std::optional<Value> JsonNode::scalar() const {
  if (json_->is_number_integer()) return json_->get<std::int64_t>();
  if (json_->is_boolean()) return json_->get<bool>();
  if (json_->is_number_float()) return json_->get<double>();
  if (json_->is_string()) return json_->get<std::string>();
  wrong_kind("a number, a boolean or a string");
  return std::nullopt;
}

Expression JsonNode::expression() const {
  if (!fits(*json_, FieldKind::expression)) {
    wrong_kind(name_of(FieldKind::expression));
    return {};
  }
  const std::string* const own = json_->get_ptr<const std::string*>();
  const std::string made = own ? std::string() : to_text(*scalar()), &text = own ? *own : made;
  try {
    return faults_->expression(text);
  } catch (const ExpressionError& error) {
    constexpr std::size_t most = 120;
    fault("bad expression '" + (text.size() <= most ? text : text.substr(0, most) + "...") + "': " + error.what());
    return {};
  }
}

std::string JsonNode::found() const {
  if (json_->is_object()) return "an object";
  if (json_->is_array()) return "a list";
  if (json_->is_string()) return "the string '" + json_->get<std::string>() + "'";
  if (json_->is_null()) return "null";
  return to_text(*scalar());
}

void JsonNode::wrong_kind(std::string_view expected) const { fault("expected " + std::string(expected) + ", found " + found()); }

}  // namespace ejk::spec
