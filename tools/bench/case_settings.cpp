// A case with other values is the spec's own text of it, its lists cut down to the case's values, with other fields: read as specs are.
#include "bench/case_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "spec/call/binding.hpp"
#include "spec/check/suggest.hpp"
#include "spec/read/files.hpp"
#include "spec/read/load_parts.hpp"
#include "spec/read/loader.hpp"

namespace ejk::tools {
namespace {

using spec::Json;

constexpr const char* how_a_list_is = "several values are a list: E=[f16,bf16]";

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Parts between commas that are in no brackets and no quotes.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (!quoted) depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (c == ',' && depth == 0 && !quoted)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// JSON where it is JSON, else a word, also a number that does not fit.
Json json_or_word(const std::string& text) {
  std::vector<spec::Fault> faults;
  auto json = spec::parse_json("--set", text, faults);
  return json ? *std::move(json) : Json(text);
}

// Items of a list likewise, so that [f16,bf16] needs no quotes.
Json json_of(const std::string& text) {
  Json json = json_or_word(text);
  if (!json.is_string() || text.size() < 2 || !text.starts_with('[') || !text.ends_with(']')) return json;
  Json list = Json::array();
  for (const auto& part : parts_of(text.substr(1, text.size() - 2))) list.push_back(json_or_word(part));
  return list;
}

// What is a word by its nature, though it looks like a number: types, and attributes that are strings.
bool is_word(const spec::Spec& spec, const std::string& name) {
  const auto* attribute = spec.attribute(name);
  return attribute ? attribute->type == spec::AttributeType::string : contains(spec::names_of_types(spec), name);
}

Json value_of(const spec::Spec& spec, const std::string& name, const std::string& text) {
  Json value = json_of(text);
  if (!is_word(spec, name)) return value;
  const auto as_word = [](Json& item) {
    if (item.is_primitive() && !item.is_string()) item = item.dump();
  };
  if (value.is_array())
    for (auto& item : value) as_word(item);
  else
    as_word(value);
  return value;
}

// The cases of such a text as a spec has. option: what its faults are those of.
std::vector<spec::Case> read_case(const spec::Spec& spec, const Json& text, const std::string& pointer, const std::string& option) {
  std::vector<spec::Fault> faults;
  spec::FileFaults found(spec.file, faults);
  auto cases = spec::load_case(spec::JsonNode(text, pointer, found), spec);
  if (!faults.empty()) throw UsageError(option + ": " + faults.front().sentence);
  return cases;
}

CaseSetting setting_of(const spec::Spec& spec, const std::string& part) {
  const auto equals = part.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(fmt::format("--set: expected NAME=VALUE, found '{}'; {}", part, how_a_list_is));
  const auto name = part.substr(0, equals);
  auto known = spec::names_of_dims(spec);
  for (const auto& more : {spec::names_of_types(spec), spec::names_of_attributes(spec)})
    known.insert(known.end(), more.begin(), more.end());
  if (!contains(known, name))
    throw UsageError(fmt::format("--set: {} has no dim, type or attribute '{}'{}", spec.kernel, name, spec::suggestion(name, known)));
  CaseSetting setting{name, value_of(spec, name, part.substr(equals + 1))};
  read_case(spec, {{"name", "set"}, {"doc", "This value alone."}, {name, setting.value}}, "", "--set " + part);
  return setting;
}

// A case's own value as JSON; nothing if it does not speak of the name.
Json value_in(const spec::Case& c, const std::string& name) {
  if (const auto type = c.types.find(name); type != c.types.end()) return type->second;
  for (const auto* values : {&c.dims, &c.attributes})
    if (const auto found = values->find(name); found != values->end())
      return std::visit([](const auto& v) { return Json(v); }, found->second);
  return nullptr;
}

bool reaches(const spec::Spec& spec, const spec::Case& c, const std::string& name) {
  return spec.attribute(name) || spec.type_defaults.count(name) > 0 || !value_in(c, name).is_null();
}

bool same_call(const spec::Case& a, const spec::Case& b) {
  return a.dims == b.dims && a.types == b.types && a.attributes == b.attributes && a.given == b.given && a.fill == b.fill;
}

class CaseSetter {
 public:
  CaseSetter(const spec::Spec& spec, const std::vector<CaseSetting>& settings)
      : spec_(spec), settings_(settings), document_(read_document(spec)) {}

  std::vector<spec::Case> take(const std::vector<const spec::Case*>& cases) {
    for (const auto& setting : settings_)
      if (std::none_of(cases.begin(), cases.end(), [&](const auto* c) { return reaches(spec_, *c, setting.name); }))
        throw UsageError(fmt::format("--set: no chosen case of {} speaks of {}", spec_.kernel, setting.name));
    for (const auto* c : cases) take(*c);
    return std::move(made_);
  }

 private:
  static Json read_document(const spec::Spec& spec) {
    std::vector<spec::Fault> faults;
    auto document = spec::parse_json(spec.file, spec::read_text(spec.file), faults);
    if (!document) throw spec::SpecError(std::move(faults));
    spec::FileFaults found(spec.file, faults);
    spec::make_whole(*document, found);
    return *std::move(document);
  }

  void take(const spec::Case& c) {
    const auto& said = document_.at(Json::json_pointer(c.pointer));
    Json text = said;
    for (auto& [name, field] : text.items())
      if (auto value = value_in(c, name); field.is_array() && !value.is_null()) field = Json::array({std::move(value)});
    bool changed = false;
    for (const auto& setting : settings_) changed |= set(setting, c, text);
    if (!changed) return add(c);
    for (auto& one : read_case(spec_, text, c.pointer, "--set")) {
      name_flags(one, c, said);
      check_call(one);
      add(std::move(one));
    }
  }

  // In a list, which names the case. False: it said so before.
  static bool differs(const Json& value, const Json& field) { return field.is_array() ? field != Json::array({value}) : field != value; }
  bool set(const CaseSetting& setting, const spec::Case& c, Json& text) const {
    if (!reaches(spec_, c, setting.name)) return false;
    const auto before = text.find(setting.name);
    if (before != text.end() && !differs(setting.value, *before)) return false;
    text[setting.name] = setting.value.is_array() ? setting.value : Json::array({setting.value});
    return true;
  }

  // A list's false adds nothing to a name. Where the spec has no list, but says true or takes it for granted, the name must tell.
  void name_flags(spec::Case& one, const spec::Case& c, const Json& said) const {
    for (const auto& [name, value] : one.attributes) {
      const bool listed = said.contains(name) && said[name].is_array();
      if (value != spec::Value(false) || listed || !is_set(name)) continue;
      const auto before = spec::bind(spec_, spec::facts_of(spec_, c)).attributes;
      if (const auto found = before.find(name); found == before.end() || found->second != value) one.name += ".not_" + lower(name);
    }
  }

  bool is_set(const std::string& name) const {
    return std::any_of(settings_.begin(), settings_.end(), [&](const auto& setting) { return setting.name == name; });
  }

  void check_call(const spec::Case& one) const {
    const auto refuse = [&](const std::string& why) {
      throw UsageError(fmt::format("--set: case '{}' is no legal call: {}", one.name, why));
    };
    try {
      spec::bind(spec_, spec::facts_of(spec_, one));
    } catch (const spec::CallError& e) {
      refuse(e.what());
    } catch (const spec::ExpressionError& e) {
      refuse(e.what());
    } catch (const spec::SpecError& e) {
      refuse(e.faults().front().sentence);
    }
  }

  // Cases that differed only in what was set are one; others of one name are counted.
  void add(spec::Case c) {
    const auto name = c.name;
    for (int count = 2;; ++count) {
      const auto found = std::find_if(made_.begin(), made_.end(), [&](const auto& other) { return other.name == c.name; });
      if (found == made_.end()) return made_.push_back(std::move(c));
      if (same_call(*found, c)) return;
      c.name = fmt::format("{}.{}", name, count);
    }
  }

  const spec::Spec& spec_;
  const std::vector<CaseSetting>& settings_;
  const Json document_;
  std::vector<spec::Case> made_;
};

}  // namespace

void add_set_option(Arguments& arguments) {
  arguments.list(
      "set", "NAME=VALUE[,...]",
      "what these cases are given in place of what the spec says of a dim, type or attribute: E=f16, B=2,Sq=4096, causal=true; a list "
      "is each in turn: E=[f16,bf16]. What differs is part of a case's name. May be given several times");
}

std::vector<CaseSetting> case_settings(const spec::Spec& spec, const std::vector<std::string>& texts) {
  std::vector<CaseSetting> settings;
  for (const auto& text : texts)
    for (const auto& part : parts_of(text)) {
      auto setting = setting_of(spec, part);
      if (std::any_of(settings.begin(), settings.end(), [&](const auto& other) { return other.name == setting.name; }))
        throw UsageError(fmt::format("--set: {} is set twice; {}", setting.name, how_a_list_is));
      settings.push_back(std::move(setting));
    }
  return settings;
}

std::vector<spec::Case> cases_with(const spec::Spec& spec, const std::vector<const spec::Case*>& cases,
                                   const std::vector<CaseSetting>& settings) {
  return CaseSetter(spec, settings).take(cases);
}

}  // namespace ejk::tools
