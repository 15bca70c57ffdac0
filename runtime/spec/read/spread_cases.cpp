// Cases with "each" become several in their place, so that what is "like" one of them finds it by its name.
#include "spec/read/spread_cases.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace ejk::spec {
namespace {

class Spreader {
 public:
  Spreader(FileFaults& faults, CopyRoom& room) : faults_(faults), room_(room) {}

  Json spread(const Json& cases) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::string written = pointer_to("/cases", i);
      if (cases[i].is_object() && cases[i].contains("each"))
        several(cases[i], written);
      else
        add(cases[i], written);
    }
    for (const auto& [pointer, written] : places_)
      faults_.origins().settle(pointer, written);  // after faults, which are told by the file's
    return std::move(result_);
  }

 private:
  std::string next() const { return pointer_to("/cases", result_.size()); }

  void add(Json one, const std::string& written) {
    places_.emplace_back(next(), written);
    result_.push_back(std::move(one));
  }

  void several(const Json& one, const std::string& written) {
    const Json& each = one.at("each");
    const std::string below = pointer_to(written, "each");
    if (!each.is_object() || each.empty())
      return faults_.add(below, "expected an object that is not empty: what each case adds to the name, and what differs in it");
    Json common = one;
    common.erase("each");
    for (const auto& [name, differs] : each.items()) {
      const std::string place = pointer_to(below, name);
      if (!differs.is_object())
        faults_.add(place, "expected an object: what differs in this case");
      else if (room_.take(common, place))
        add(common, differs, name, written, place);
    }
  }

  // written, place: where the file has what they have in common, and what differs.
  void add(Json one, const Json& differs, const std::string& name, const std::string& written, const std::string& place) {
    const std::string pointer = next();
    for (const auto& [key, value] : differs.items()) {
      const std::string at = pointer_to(place, key);
      if (key == "name" || key == "like" || key == "each")
        faults_.add(at, "'" + key + "' cannot differ among the cases of one 'each'");
      else if (!value.is_null() || one.contains("like"))  // null removes what the other case has, too, when that is known
        one[key] = value;
      else if (one.erase(key) == 0)
        faults_.add(at, "there is no '" + key + "' to remove in this case");
      places_.emplace_back(pointer_to(pointer, key), at);
    }
    if (one.contains("name") && one["name"].is_string()) one["name"] = one["name"].get<std::string>() + "_" + name;
    places_.emplace_back(pointer_to(pointer, "name"), place);
    add(std::move(one), written);
  }

  FileFaults& faults_;
  CopyRoom& room_;
  Json result_ = Json::array();
  std::vector<std::pair<std::string, std::string>> places_;  // of the result, and where the file has them
};

}  // namespace

void spread_cases(Json& kernel, FileFaults& faults, CopyRoom& room) {
  Json* const cases = list_in(kernel, "cases");
  const auto has_each = [](const Json& one) { return one.is_object() && one.contains("each"); };
  if (cases && std::any_of(cases->begin(), cases->end(), has_each)) *cases = Spreader(faults, room).spread(*cases);
}

}  // namespace ejk::spec
