// A place in a spec file: a JSON value, its pointer, and where faults about it go.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spec/expression/expression.hpp"
#include "spec/fault.hpp"
#include "spec/read/json.hpp"
#include "spec/read/origins.hpp"

namespace ejk::spec {

// The faults of one file while it is read.
class FileFaults {
 public:
  FileFaults(const std::string& file, std::vector<Fault>& faults) : file_(file), faults_(faults), first_(faults.size()) {}
  // pointer: of the spec made whole; the fault names where the file has it, and is said once.
  void add(const std::string& pointer, std::string sentence);
  Origins& origins() { return origins_; }
  bool any() const { return faults_.size() > first_; }
  void sort_as_in(const Json& document);  // the order of the file, whatever the order of reading
  // The expression of that text, parsed once: variants say many alike. Throws ExpressionError.
  Expression expression(const std::string& text);

 private:
  std::unordered_map<std::string, Expression> expressions_;
  Origins origins_;
  const std::string& file_;
  std::vector<Fault>& faults_;
  std::size_t first_;
};

class JsonNode {
 public:
  JsonNode(const Json& json, std::string pointer, FileFaults& faults) : json_(&json), pointer_(std::move(pointer)), faults_(&faults) {}

  const Json& json() const { return *json_; }
  const std::string& pointer() const { return pointer_; }
  std::string written_at() const { return faults_->origins().written_at(pointer_); }  // where the file has it
  void fault(std::string sentence) const { faults_->add(pointer_, std::move(sentence)); }

  // Judges an object's fields against the table in fields.hpp: kind, unknown and missing ones. false: not an object at all.
  // extra: names that an open object takes besides.
  bool open(std::string_view object, const std::vector<std::string>& extra = {}) const;

  // After open: a field that is absent or of the wrong kind (reported already) reads as nothing.
  std::optional<JsonNode> field(std::string_view name) const;
  std::vector<JsonNode> list(std::string_view name) const;
  std::vector<std::pair<std::string, JsonNode>> members(std::string_view name) const;
  std::string text(std::string_view name) const;
  bool boolean(std::string_view name) const;
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const;
  Expression expression(std::string_view name) const;

  // Of this value itself: a fault, and nothing, if it is of another kind.
  std::vector<JsonNode> items() const;
  std::vector<std::pair<std::string, JsonNode>> members() const;
  std::optional<std::string> text() const;
  std::optional<Value> scalar() const;
  Expression expression() const;

  // "the string 'x'", "a list", "3"
  std::string found() const;
  void wrong_kind(std::string_view expected) const;

 private:
  const Json* find(std::string_view name) const;  // nullptr: none

  const Json* json_;
  std::string pointer_;
  FileFaults* faults_;
};

// Why `name` cannot name a dim, tensor, attribute or the like; nullopt if it can.
std::optional<std::string> bad_name(const std::string& name);
// The same for kernels, variants, cases and archs: they become file names and words of ids. Lower case, digits, '_'.
std::optional<std::string> bad_file_name(const std::string& name);

}  // namespace ejk::spec
