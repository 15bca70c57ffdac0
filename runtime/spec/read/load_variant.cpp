// One variant: what it takes, its config space and heuristic, its workspace and launches.
#include <algorithm>

#include "spec/check/is_in.hpp"
#include "spec/check/limits.hpp"
#include "spec/check/suggest.hpp"
#include "spec/read/load_parts.hpp"

namespace ejk::spec {
namespace {

// Arguments of one launch: the names of the rendered function's parameters.
class ArgumentReader {
 public:
  ArgumentReader(const Spec& spec, const Variant& variant, const Launch& launch)
      : launch_(launch), tensors_(names_of_tensors(spec)), pointers_(tensors_) {
    for (const WorkspaceSpec& workspace : variant.workspace) pointers_.push_back(workspace.name);
  }

  Argument read(const JsonNode& node, std::size_t index) {
    Argument argument;
    if (node.json().is_object())
      tensor_map(node, argument);
    else
      from_text(node, index, argument);
    const std::string name = argument.parameter_name();
    if (is_in(taken_, name) && !argument.name.empty()) node.fault("the argument '" + argument.name + "' occurs twice in this launch");
    taken_.push_back(name);
    return argument;
  }

 private:
  void from_text(const JsonNode& node, std::size_t index, Argument& argument) const {
    const std::string text = node.json().is_string() ? node.json().get<std::string>() : std::string();
    if (is_in(pointers_, text)) {
      argument.kind = Argument::Kind::pointer;
      argument.name = text;
    } else if (text.starts_with("view(") && text.ends_with(")")) {
      argument.kind = Argument::Kind::view;
      argument.name = text.substr(5, text.size() - 6);
      if (!is_in(tensors_, argument.name))
        node.fault("view() takes a tensor; '" + argument.name + "' is none" + suggestion(argument.name, tensors_));
    } else if (text == "step" && launch_.repeat) {
      argument.kind = Argument::Kind::step;
      argument.name = text;
    } else if (text == "grid_barrier") {
      argument.kind = Argument::Kind::grid_barrier;
      argument.name = text;
      if (!launch_.cooperative) node.fault("only a launch that is \"cooperative\": true has a grid barrier");
    } else {
      argument.kind = Argument::Kind::value;
      argument.expression = node.expression();
      if (launch_.repeat && argument.expression.names().contains("step"))
        node.fault("'step' is an argument by that name alone, not part of an expression; let the template compute with it");
      argument.name = argument.expression.as_name().value_or("a" + std::to_string(index));
      std::replace(argument.name.begin(), argument.name.end(), '.', '_');
    }
  }

  void tensor_map(const JsonNode& node, Argument& argument) const {
    argument.kind = Argument::Kind::tensor_map;
    if (!node.open("tensor_map")) return;
    if (const auto mapped = node.field("tensor_map")) {
      if (mapped->json().is_array()) choices(*mapped, argument);
      if (argument.choices.empty()) argument.name = mapped_tensor(*mapped);
    }
    argument.box = expressions_of(node.list("box"));
    argument.swizzle = node.integer("swizzle", 0);
    static constexpr std::int64_t legal[] = {0, 32, 64, 128};
    if (std::find(std::begin(legal), std::end(legal), argument.swizzle) == std::end(legal))
      field_or(node, "swizzle").fault("a swizzle is 0, 32, 64 or 128 bytes, found " + std::to_string(argument.swizzle));
  }

  std::string mapped_tensor(const JsonNode& node) const {
    if (!node.json().is_string()) {
      if (!node.json().is_array()) node.wrong_kind("a tensor's name, or a list of {\"if\": ..., \"tensor\": ...}");
      return {};
    }
    const auto name = node.json().get<std::string>();
    if (!is_in(pointers_, name)) node.fault("'" + name + "' is no tensor" + suggestion(name, pointers_));
    return name;
  }

  // As a heuristic's rules: the last one, and no other, is unconditional.
  void choices(const JsonNode& list, Argument& argument) const {
    const auto items = list.items();
    if (items.size() < 2) list.fault("a list says of which of several tensors the map is; of one, give its name alone");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (!items[i].open("map_choice")) continue;
      MapChoice choice{items[i].expression("if"), {}};
      if (const auto tensor = items[i].field("tensor")) choice.tensor = mapped_tensor(*tensor);
      const bool last = i + 1 == items.size(), conditional = items[i].json().contains("if");
      if (last && conditional) items[i].fault("the last choice has no 'if', so that there always is a tensor");
      if (!last && !conditional) items[i].fault("this choice has no 'if', so those after it are never taken");
      argument.choices.push_back(std::move(choice));
    }
    if (!argument.choices.empty()) argument.name = argument.choices.front().tensor;
  }

  const Launch& launch_;
  std::vector<std::string> tensors_, pointers_, taken_;
};

class VariantReader {
 public:
  VariantReader(const JsonNode& node, const Spec& spec)
      : node_(node), spec_(spec), dims_(names_of_dims(spec)), types_(names_of_types(spec)) {}

  Variant read() {
    variant_.pointer = node_.pointer();
    if (!node_.open("variant")) return std::move(variant_);
    variant_.name = node_.text("name");
    variant_.doc = node_.text("doc");
    variant_.like = node_.text("like");
    variant_.priority = node_.integer("priority", 0);
    variant_.template_file = node_.text("template");
    for (const JsonNode& flag : node_.list("flags"))  // a flag may repeat ("-mllvm", "x", "-mllvm", "y")
      if (const auto text = flag.text()) variant_.flags.push_back(*text);
    if (const auto name = node_.field("name"); name && name->json().is_string())
      if (const auto why = bad_file_name(variant_.name)) name->fault(*why);
    archs();
    supports();
    for (const auto& [name, node] : node_.members("specialize")) specialisation(name, node);
    for (const auto& [name, node] : node_.members("config")) parameter(name, node);
    for (const auto& [name, node] : node_.members("let")) variant_.let.push_back({declared(node, name, "let"), node.expression()});
    variant_.valid = expressions_of(node_.list("valid"));
    for (const JsonNode& node : node_.list("heuristic")) rule(node);
    heuristic_as_a_whole();
    for (const JsonNode& node : node_.list("workspace")) workspace(node);
    for (const JsonNode& node : node_.list("launches")) launch(node);
    if (const auto node = node_.field("fold"); node && node->json().is_object() && node->open("fold"))
      variant_.fold = Fold{node->expression("if"), expressions_of(node->list("same"))};
    for (const auto& [name, node] : node_.members("limits")) limit(name, node);
    if (const auto launches = node_.field("launches"); launches && launches->json().is_array() && launches->json().empty())
      launches->fault("a variant has at least one launch");
    return std::move(variant_);
  }

 private:
  bool in_contract(const std::string& name) const {
    const auto is = [&](const std::vector<std::string>& names) { return is_in(names, name); };
    return is(dims_) || is(types_) || spec_.attribute(name) || spec_.tensor(name);
  }

  // A name of the variant's own: unique, and none of the contract's.
  std::string declared(const JsonNode& node, const std::string& name, std::string_view what) {
    if (spec_.shared_let(name))
      node.fault("the name '" + name + "' is already a let of the kernel; choose another for this " + std::string(what));
    else if (in_contract(name))
      node.fault("the name '" + name + "' is already taken by the kernel's contract; choose another for this " + std::string(what));
    else
      names_.declare(node, name, what);
    return name;
  }

  void archs() {
    variant_.archs = load_words(node_, "archs", "arch");
    if (const auto list = node_.field("archs"); list && list->json().is_array() && list->json().empty())
      list->fault("a variant names at least one arch, such as 'cpu:generic+'");
  }

  // One clause, or a list of them.
  void supports() {
    const auto node = node_.field("supports");
    variant_.supports_is_list = node && node->json().is_array();
    if (node) variant_.supports = node->json().is_array() ? expressions_of(node->items()) : expressions_of({*node});
  }

  // "E": "E" specialises on a name of the contract; any other use of such a name would hide it.
  void specialisation(const std::string& name, const JsonNode& node) {
    Named named{name, node.expression()};
    const bool itself = named.expression.as_name() == name;
    const bool taken = in_contract(name) || spec_.shared_let(name);
    if (taken && !itself && named.expression)
      node.fault("'" + name + "' is a " + (in_contract(name) ? "name of the contract" : "let of the kernel") +
                 "; specialise on its value (\"" + name + "\": \"" + name + "\") or choose another name");
    else if (!taken && !(itself && name == "form"))
      declared(node, name, "specialisation");
    variant_.specialize.push_back(std::move(named));
  }

  void parameter(const std::string& name, const JsonNode& node) {
    ConfigParameter parameter;
    parameter.name = declared(node, name, "config parameter");
    parameter.label = name;
    if (node.json().is_array()) {
      values(node, parameter);
    } else if (!node.json().is_object()) {
      node.wrong_kind(R"(the values of a config parameter: a list, or {"values": list, "label": ..., "doc": ...})");
    } else if (node.open("config_parameter")) {
      parameter.doc = node.text("doc");
      if (const auto label = node.field("label"); label && label->json().is_string()) {
        parameter.label = node.text("label");
        if (const auto why = bad_label(parameter.label)) label->fault(*why);
      }
      if (const auto list = node.field("values"); list && list->json().is_array()) values(*list, parameter);
    }
    for (const ConfigParameter& other : variant_.config)
      if (other.label == parameter.label && other.name != parameter.name)
        field_or(node, "label")
            .fault("the label '" + parameter.label + "' is already that of '" + other.name + "'; image ids would not be unique");
    variant_.config.push_back(std::move(parameter));
  }

  // Letters only: "m64" must read back as m and 64.
  static std::optional<std::string> bad_label(const std::string& label) {
    const bool letters =
        !label.empty() && std::all_of(label.begin(), label.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
    if (letters) return std::nullopt;
    return "the label '" + label + "' is not made of lower-case letters and '_'; it is followed by the value in image ids";
  }

  static void values(const JsonNode& list, ConfigParameter& parameter) {
    const auto items = list.items();
    if (items.empty()) list.fault("the config parameter '" + parameter.name + "' has no values");
    for (const JsonNode& item : items) {
      const auto value = item.scalar();
      if (!value) continue;
      if (!parameter.values.empty() && value->index() != parameter.values.front().index())
        item.fault("the values of '" + parameter.name + "' are of one kind; found " + item.found() + " after " +
                   to_text(parameter.values.front()));
      else if (std::find(parameter.values.begin(), parameter.values.end(), *value) != parameter.values.end())
        item.fault("the value " + to_text(*value) + " occurs twice");
      if (const auto* word = std::get_if<std::string>(&*value))
        if (const auto why = bad_file_name(*word)) item.fault(*why);
      parameter.values.push_back(*value);
    }
  }

  void rule(const JsonNode& node) {
    if (!node.open("rule")) return;
    HeuristicRule rule;
    rule.condition = node.expression("if");
    std::vector<std::string> known;
    for (const ConfigParameter& parameter : variant_.config) known.push_back(parameter.name);
    for (const auto& [name, value] : node.members("use")) {
      if (std::find(known.begin(), known.end(), name) == known.end())
        value.fault("'" + name + "' is no config parameter" + suggestion(name, known));
      rule.use.push_back({name, value.expression()});
    }
    if (const auto use = node.field("use"); use && use->json().is_object())
      for (const ConfigParameter& parameter : variant_.config)
        if (parameter.values.size() > 1 && !use->json().contains(parameter.name))
          use->fault("'use' gives no value for the config parameter '" + parameter.name + "'");
    variant_.heuristic.push_back(std::move(rule));
  }

  // The heuristic always has an answer: its last rule, and no other, is unconditional.
  void heuristic_as_a_whole() {
    const auto list = node_.field("heuristic");
    const bool has_choice =
        std::any_of(variant_.config.begin(), variant_.config.end(), [](const auto& each) { return each.values.size() > 1; });
    if (!list) {
      if (has_choice) node_.fault("missing field 'heuristic': a variant with a config says which config to use");
      return;
    }
    const auto rules = node_.list("heuristic");
    if (rules.empty()) {
      if (has_choice) list->fault("the heuristic has no rules; give one without 'if'");
      return;
    }
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const bool last = i + 1 == rules.size();
      const bool conditional = rules[i].json().is_object() && rules[i].json().contains("if");
      if (last && conditional) rules[i].fault("the last rule of a heuristic has no 'if', so that there always is an answer");
      if (!last && !conditional && rules[i].json().is_object())
        rules[i].fault("this rule has no 'if', so the rules after it are never used");
    }
  }

  void workspace(const JsonNode& node) {
    if (!node.open("workspace")) return;
    WorkspaceSpec workspace;
    workspace.name = node.text("name");
    workspace.doc = node.text("doc");
    if (const auto name = node.field("name"); name && name->json().is_string()) declared(*name, workspace.name, "workspace");
    const std::string type = node.text("type");
    if (const auto known = dtype_named(type))
      workspace.type = *known;
    else if (const auto field = node.field("type"); field && field->json().is_string())
      field->fault("unknown element type '" + type + "'" + suggestion(type, names_of_dtypes()));
    workspace.shape = expressions_of(node.list("shape"));
    workspace.zero = node.expression("zero");
    variant_.workspace.push_back(std::move(workspace));
  }

  void limit(const std::string& name, const JsonNode& node) {
    const auto& known = names_of_resources();
    const auto value = node.json().is_number_integer() ? node.json().get<std::int64_t>() : -1;
    if (std::find(known.begin(), known.end(), name) == known.end())
      node.fault("'" + name + "' is no resource of an image" + suggestion(name, known));
    else if (value < 0)
      node.wrong_kind("an integer of 0 or more");
    variant_.limits.emplace_back(name, value);
  }

  static std::vector<Expression> up_to_three(const JsonNode& node, std::string_view name, std::size_t least) {
    const auto items = node.list(name);
    if (const auto field = node.field(name); field && field->json().is_array() && (items.size() < least || items.size() > 3))
      field->fault("'" + std::string(name) + "' has " + std::to_string(least) + " to 3 entries, found " + std::to_string(items.size()));
    return expressions_of(items);
  }

  // A launch whose turns alternate with those of the launch before it.
  void join_round(const JsonNode& node, Launch& launch) const {
    launch.round = static_cast<std::int64_t>(variant_.launches.size());
    if (!node.boolean("in_turn")) return;
    const Launch* const before = variant_.launches.empty() ? nullptr : &variant_.launches.back();
    if (!launch.repeat || !before || before->repeat.text() != launch.repeat.text())
      node.field("in_turn")->fault(
          "a launch takes turns with the one before it, so that both say the same 'repeat'; say so, or drop 'in_turn'");
    else
      launch.round = before->round;
  }

  void launch(const JsonNode& node) {
    if (!node.open("launch")) return;
    Launch launch;
    launch.entry = node.text("entry");
    if (const auto entry = node.field("entry"); entry && entry->json().is_string())
      if (const auto why = bad_name(launch.entry)) entry->fault(*why);
    launch.condition = node.expression("if");
    launch.grid = up_to_three(node, "grid", 1);
    launch.block = up_to_three(node, "block", 0);
    launch.cluster = up_to_three(node, "cluster", 0);
    launch.shared = node.expression("shared");
    launch.cooperative = node.boolean("cooperative");
    launch.overlaps = node.boolean("overlaps");
    launch.repeat = node.expression("repeat");
    if (const auto repeat = node.field("repeat"); repeat && (in_contract("step") || names_.taken("step")))
      repeat->fault("'step' is which turn of a repeated launch it is, and this spec has something else of that name; give that another");
    join_round(node, launch);
    ArgumentReader reader(spec_, variant_, launch);
    const auto arguments = node.list("args");
    for (std::size_t i = 0; i < arguments.size(); ++i) launch.arguments.push_back(reader.read(arguments[i], i));
    variant_.launches.push_back(std::move(launch));
  }

  const JsonNode& node_;
  const Spec& spec_;
  const std::vector<std::string> dims_, types_;
  Variant variant_;
  NameTable names_;
};

}  // namespace

Variant load_variant(const JsonNode& node, const Spec& spec) { return VariantReader(node, spec).read(); }

}  // namespace ejk::spec
