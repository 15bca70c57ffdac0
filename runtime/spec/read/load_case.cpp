// Cases: named calls. Lists of values expand to one case for each combination.
#include <algorithm>
#include <cctype>

#include "spec/check/suggest.hpp"
#include "spec/read/load_parts.hpp"

namespace ejk::spec {
namespace {

constexpr std::size_t max_combinations = 1000;

// One field of a case with its values; a list of one value still names the case.
struct Choice {
  enum class Kind { dim, type, attribute };
  Kind kind = Kind::dim;
  std::string name;
  std::vector<Value> values;
  bool is_list = false;
};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// A value as part of a name: "-1" is "m1", "0.5" is "0p5".
std::string name_part(const Value& value) {
  std::string text = to_text(value);
  if (std::holds_alternative<std::string>(value)) return text;
  for (char& c : text) c = c == '-' ? 'm' : c == '.' ? 'p' : c;
  text.erase(std::remove(text.begin(), text.end(), '+'), text.end());
  return text;
}

std::string suffix_of(const Choice& choice, const Value& value) {
  if (choice.kind == Choice::Kind::type) return "." + to_text(value);
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "." + lower(choice.name) : "";
  return "." + lower(choice.name) + name_part(value);
}

class CaseReader {
 public:
  CaseReader(const JsonNode& node, const Spec& spec) : node_(node), spec_(spec), dims_(names_of_dims(spec)), types_(names_of_types(spec)) {}

  std::vector<Case> read() {
    std::vector<std::string> names = dims_;
    names.insert(names.end(), types_.begin(), types_.end());
    for (const Attribute& attribute : spec_.attributes) names.push_back(attribute.name);
    if (!node_.open("case", names)) return {};
    base_.name = node_.text("name");
    base_.doc = node_.text("doc");
    base_.pointer = node_.pointer();
    if (const auto name = node_.field("name"); name && name->json().is_string())
      if (const auto why = bad_file_name(base_.name)) name->fault(*why);
    given();
    for (const auto& [name, node] : node_.members("fill")) fill(name, node);
    for (const auto& [name, node] : node_.members()) field(name, node);
    return expanded();
  }

 private:
  void given() {
    base_.given = load_words(node_, "given", "tensor");
    std::vector<std::string> optional;
    for (const TensorSpec& tensor : spec_.tensors)
      if (tensor.optional) optional.push_back(tensor.name);
    for (const JsonNode& item : node_.list("given")) {
      if (!item.json().is_string()) continue;
      const std::string name = item.json().get<std::string>();
      const TensorSpec* tensor = spec_.tensor(name);
      if (!tensor)
        item.fault("'" + name + "' is no tensor" + suggestion(name, optional));
      else if (!tensor->optional)
        item.fault("'" + name + "' is not optional: it is always given");
    }
  }

  void fill(const std::string& name, const JsonNode& node) {
    std::vector<std::string> inputs;
    for (const TensorSpec& tensor : spec_.tensors)
      if (!tensor.output) inputs.push_back(tensor.name);
    if (std::find(inputs.begin(), inputs.end(), name) == inputs.end()) node.fault("'" + name + "' is no input" + suggestion(name, inputs));
    if (const auto words = node.text()) base_.fill[name] = *words;
  }

  void field(const std::string& name, const JsonNode& node) {
    Choice choice;
    choice.name = name;
    choice.is_list = node.json().is_array();
    const Attribute* attribute = spec_.attribute(name);
    if (std::find(dims_.begin(), dims_.end(), name) != dims_.end())
      choice.kind = Choice::Kind::dim;
    else if (std::find(types_.begin(), types_.end(), name) != types_.end())
      choice.kind = Choice::Kind::type;
    else if (attribute)
      choice.kind = Choice::Kind::attribute;
    else
      return;  // name, doc, given, fill, or reported as unknown
    const auto items = choice.is_list ? node.items() : std::vector<JsonNode>{node};
    if (items.empty()) node.fault("the list of values for '" + name + "' is empty");
    for (const JsonNode& item : items) {
      const auto value = attribute ? attribute_value(item, *attribute) : choice.kind == Choice::Kind::dim ? size(item) : type(item, name);
      if (!value) continue;
      if (std::find(choice.values.begin(), choice.values.end(), *value) != choice.values.end())
        item.fault("the value " + to_text(*value) + " occurs twice");
      choice.values.push_back(*value);
    }
    choices_.push_back(std::move(choice));
  }

  static std::optional<Value> size(const JsonNode& node) {
    if (!node.json().is_number_integer())
      node.wrong_kind("an integer (the size of a dim)");
    else if (node.json().get<std::int64_t>() < 0)
      node.fault("the size of a dim is not negative, found " + node.found());
    else
      return node.json().get<std::int64_t>();
    return std::nullopt;
  }

  std::optional<Value> type(const JsonNode& node, const std::string& variable) const {
    const auto text = node.text();
    if (!text) return std::nullopt;
    for (const auto& [name, types] : spec_.types) {
      if (name != variable) continue;
      if (std::find(types.begin(), types.end(), *text) != types.end()) return *text;
      node.fault("'" + *text + "' is no element type of " + variable + ": " + listed(types));
    }
    return std::nullopt;
  }

  // Every combination, the last list changing fastest.
  std::vector<Case> expanded() const {
    std::vector<Case> cases = {base_};
    for (const Choice& choice : choices_) {
      if (cases.size() * std::max<std::size_t>(choice.values.size(), 1) > max_combinations) {
        node_.fault("the lists of this case make more than " + std::to_string(max_combinations) + " combinations");
        return cases;
      }
      std::vector<Case> next;
      for (const Case& one : cases)
        for (const Value& value : choice.values) next.push_back(with(one, choice, value));
      if (!next.empty()) cases = std::move(next);
    }
    return cases;
  }

  static Case with(Case one, const Choice& choice, const Value& value) {
    if (choice.is_list) one.name += suffix_of(choice, value);
    if (choice.kind == Choice::Kind::dim)
      one.dims[choice.name] = value;
    else if (choice.kind == Choice::Kind::type)
      one.types[choice.name] = std::get<std::string>(value);
    else
      one.attributes[choice.name] = value;
    return one;
  }

  const JsonNode& node_;
  const Spec& spec_;
  std::vector<std::string> dims_, types_;
  Case base_;
  std::vector<Choice> choices_;
};

}  // namespace

std::vector<Case> load_case(const JsonNode& node, const Spec& spec) { return CaseReader(node, spec).read(); }

}  // namespace ejk::spec
