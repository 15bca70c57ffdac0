// Merging what is "like" another with it, and remembering where each part is written.
#include "spec/read/like.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include "spec/check/suggest.hpp"

namespace ejk::spec {
namespace {

// A part of the spec: where it is in the spec made whole, and where the file has what it says itself.
struct Part {
  std::string pointer, written;
  Part below(std::string_view key) const { return {pointer_to(pointer, key), pointer_to(written, key)}; }
};

const std::string* text_in(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
}

// What an element of a list goes by; nullptr: it has no name. A tensor map of several tensors has the first one's.
const std::string* name_of(const Json& element) {
  for (const char* key : {"name", "entry", "tensor_map"})
    if (const std::string* text = text_in(element, key)) return text;
  const auto maps = element.is_object() ? element.find("tensor_map") : element.end();
  const bool several = maps != element.end() && maps->is_array() && !maps->empty();
  return several ? text_in(maps->front(), "tensor") : nullptr;
}

bool is_named(const Json& element, const std::string& name) {
  if (element.is_primitive()) return element.is_string() ? element.get_ref<const std::string&>() == name : element.dump() == name;
  const std::string* const own = name_of(element);
  return own && *own == name;
}

class Merger {
 public:
  Merger(FileFaults& faults, CopyRoom& room) : origins_(faults.origins()), faults_(faults), room_(room) {}

  // What is like a whole element of a list: all of it but its name, and what that is like. base_at: the pointer of the base in the spec
  // made whole.
  Json taken(const Json& base, const std::string& base_at, Json own, const Part& at) {
    return objects(base, base_at, std::move(own), at, {"like", "name"});
  }

  Json merged(const Json& base, const std::string& base_at, Json own, const Part& at) {
    if (base.is_object() && own.is_object()) return objects(base, base_at, std::move(own), at);
    if (own.is_object() && (own.contains("change") || own.contains("also"))) return edited(base, base_at, std::move(own), at);
    return own;
  }

 private:
  // but: keys of the base that are left out.
  Json objects(const Json& base, const std::string& base_at, Json own, const Part& at, std::initializer_list<std::string_view> but = {}) {
    const auto is_out = [&](const std::string& key) { return std::find(but.begin(), but.end(), key) != but.end(); };
    Json result = Json::object();
    auto& fields = own.get_ref<Json::object_t&>();  // in the order of the file
    auto next = fields.begin();                     // the first that is not taken yet
    const auto take_new = [&](const auto& end) {
      for (; next < end; ++next)
        if (is_out(next->first) || !base.contains(next->first)) add_new(result, next->first, next->second, at);
    };
    for (const auto& [key, value] : base.items()) {
      if (is_out(key)) continue;
      const auto mine = fields.find(key);
      if (mine == fields.end()) {
        origins_.add(pointer_to(at.pointer, key), pointer_to(base_at, key));
        result[key] = value;
        continue;
      }
      if (mine->second.is_null()) continue;
      take_new(mine);
      result[key] = merged(value, pointer_to(base_at, key), std::move(mine->second), at.below(key));
    }
    take_new(fields.end());
    return result;
  }

  void add_new(Json& result, const std::string& key, Json& value, const Part& at) {
    if (value.is_null()) return faults_.add(pointer_to(at.written, key), "there is no '" + key + "' to remove in what this is like");
    result[key] = std::move(value);
  }

  Json edited(const Json& base, const std::string& base_at, Json own, const Part& at) {
    for (const auto& [key, value] : own.items())
      if (key != "change" && key != "also")
        faults_.add(pointer_to(at.written, key),
                    "unknown field '" + key + "'; a list of what this is like is edited by 'change' and 'also'");
    Json result = Json::array();
    change(result, base, base_at, own.value("change", Json::object()), at);
    const Json also = own.value("also", Json::array());
    const std::string written = pointer_to(at.written, "also");
    if (!also.is_array()) faults_.add(written, "expected a list");
    for (std::size_t i = 0; also.is_array() && i < also.size(); ++i) {
      origins_.add(pointer_to(at.pointer, result.size()), pointer_to(written, i));
      result.push_back(also[i]);
    }
    return result;
  }

  void change(Json& result, const Json& base, const std::string& base_at, Json changes, const Part& at) {
    const std::string written = pointer_to(at.written, "change");
    if (!changes.is_object()) return faults_.add(written, "expected an object: elements of the list, and what they become");
    std::set<std::string> used;
    const bool is_list = base.is_array();  // else one clause alone
    for (std::size_t i = 0; i < (is_list ? base.size() : 1); ++i) {
      const Json& element = is_list ? base[i] : base;
      const std::string from = is_list ? pointer_to(base_at, i) : base_at, to = pointer_to(at.pointer, result.size());
      auto found = changes.begin();
      while (found != changes.end() && !is_named(element, found.key())) ++found;
      if (found == changes.end()) {
        origins_.add(to, from);
        result.push_back(element);
        continue;
      }
      used.insert(found.key());
      replace(result, element, from, *found, at, pointer_to(written, found.key()));
    }
    for (const auto& [key, value] : changes.items())
      if (!used.count(key))
        faults_.add(pointer_to(written, key), "'" + key + "' is no element of the list" + suggestion(key, names_in(base)));
  }

  // What an element of the list at `at` becomes: nothing, several, or one.
  void replace(Json& result, const Json& element, const std::string& from, const Json& value, const Part& at, const std::string& written) {
    if (!room_.take(value, written)) return;
    const auto next = [&] { return pointer_to(at.pointer, result.size()); };
    if (value.is_array()) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        origins_.add(next(), pointer_to(written, i));
        result.push_back(value[i]);
      }
    } else if (!value.is_null()) {
      const Part place{next(), written};
      origins_.add(place.pointer, written);
      result.push_back(merged(element, from, value, place));
    }
  }

  static std::vector<std::string> names_in(const Json& list) {
    std::vector<std::string> names;
    for (const Json& element : list) {
      if (element.is_string()) names.push_back(element.get<std::string>());
      if (const std::string* text = name_of(element)) names.push_back(*text);
    }
    return names;
  }

  Origins& origins_;
  FileFaults& faults_;
  CopyRoom& room_;
};

// One list whose elements may be like others of it.
class LikeList {
 public:
  LikeList(Json& list, std::string pointer, const char* key, std::string_view what, FileFaults& faults, CopyRoom& room)
      : list_(list), pointer_(std::move(pointer)), key_(key), what_(what), faults_(faults), room_(room), state_(list.size()) {}

  // Another list, which is whole, whose elements they may be like, too.
  void besides(const Json& more, std::string pointer) {
    more_ = &more;
    more_pointer_ = std::move(pointer);
  }

  void resolve() {
    for (std::size_t i = 0; i < list_.size(); ++i) resolve(i);
  }

 private:
  enum class State : char { open, resolving, whole };

  // false: it is in a circle.
  bool resolve(std::size_t index) {
    if (state_[index] != State::open) return state_[index] == State::whole;
    state_[index] = State::resolving;
    std::optional<std::size_t> base;
    if (const std::string* other = text_in(list_[index], "like")) base = make_whole(index, std::string(*other));
    launches_of(index, base);  // before another variant takes them
    state_[index] = State::whole;
    return true;
  }

  // Which of the list it is like.
  std::optional<std::size_t> make_whole(std::size_t index, const std::string& other) {
    const std::string pointer = pointer_to(pointer_, index);
    if (const auto base = find(list_, other, index)) {
      if (in_a_row_ == longest_like && state_[*base] == State::open) {
        faults_.add(pointer + "/like", "more than " + std::to_string(longest_like) + " are each like the next; make this like a later one");
        return std::nullopt;
      }
      ++in_a_row_;
      const bool whole = resolve(*base);
      --in_a_row_;
      if (whole) return take(index, list_[*base], pointer_to(pointer_, *base)), base;
      faults_.add(pointer + "/like", "a circle: '" + other + "' is itself like this " + std::string(what_));
    } else if (const auto more = more_ ? find(*more_, other, more_->size()) : std::nullopt) {
      take(index, (*more_)[*more], pointer_to(more_pointer_, *more));
    } else {
      unknown(index, other);
    }
    return std::nullopt;
  }

  void take(std::size_t index, const Json& whole, const std::string& base_at) {
    const std::string pointer = pointer_to(pointer_, index);
    if (!room_.take(whole, pointer + "/like")) return;
    if (text_in(whole, "entry")) list_[index].erase("like");  // another variant may take the launch as it is then
    list_[index] = Merger(faults_, room_).taken(whole, base_at, std::move(list_[index]), {pointer, pointer});
  }

  void launches_of(std::size_t index, std::optional<std::size_t> base) {
    const auto below = [&](std::size_t i) { return pointer_to(pointer_, i) + "/launches"; };
    Json* const launches = list_in(list_[index], "launches");
    if (!launches) return;
    LikeList list(*launches, below(index), "entry", "launch", faults_, room_);
    if (const Json* more = base ? list_in(list_[*base], "launches") : nullptr) list.besides(*more, below(*base));
    list.resolve();
  }

  std::optional<std::size_t> find(const Json& list, const std::string& name, std::size_t but) const {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (const std::string* text = i == but ? nullptr : text_in(list[i], key_); text && *text == name) return i;
    return std::nullopt;
  }

  void unknown(std::size_t index, const std::string& other) {
    const std::string pointer = pointer_to(pointer_, index) + "/like";
    const std::string* own = text_in(list_[index], key_);
    if (own && *own == other) return faults_.add(pointer, "the " + std::string(what_) + " '" + other + "' is like itself");
    std::vector<std::string> known;
    for (const Json& each : list_)
      if (const std::string* text = text_in(each, key_); text && text != own) known.push_back(*text);
    faults_.add(pointer, "there is no " + std::string(what_) + " '" + other + "'" + suggestion(other, known));
  }

  Json& list_;
  const std::string pointer_;
  const char* const key_;
  const std::string_view what_;
  FileFaults& faults_;
  CopyRoom& room_;
  std::size_t in_a_row_ = 0;
  const Json* more_ = nullptr;
  std::string more_pointer_;
  std::vector<State> state_;
};

}  // namespace

void resolve_like(Json& kernel, FileFaults& faults, CopyRoom& room) {
  for (const auto& [field, what] : {std::pair("variants", "variant"), std::pair("cases", "case")})
    if (Json* list = list_in(kernel, field)) LikeList(*list, pointer_to("", field), "name", what, faults, room).resolve();
}

}  // namespace ejk::spec
