// Templates: text with ${expression}, and lines `$if e` `$elif e` `$else` `$end`, `$for i in a..b` (b excluded) `$end`,
// `$require e`, `#include "device/x.h"` (inlined once). A directive may end in a // comment; `$$` is a dollar sign. `${ctype(T)}` and
// `${parameters('entry')}` are what the scope makes of them (see image.hpp). `#pragma once` vanishes; anything else passes through
// untouched. A file has at most 1 MB, blocks are nested at most 32 deep, and a rendering takes at most 4 million steps and gives 16 MB:
// whatever a template says, it ends, and says where it went too far.
#pragma once
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "spec/expression/expression.hpp"
#include "spec/fault.hpp"

namespace ejk::spec {

class Template {
 public:
  // file: as shown in faults. Throws SpecError with every fault of form (unclosed $if, bad expression, unknown directive).
  static Template parse(const std::string& file, const std::string& text);
  // Throws SpecError (file:line: sentence) for unknown names, failed $require (its expression, and the values of the names in it),
  // evaluation faults. include: returns the parsed vocabulary header of that name.
  std::string render(const Scope& scope, const class TemplateLibrary& library) const;
  struct Body;
  const Body& body() const { return *body_; }

 private:
  std::shared_ptr<const Body> body_;
};

// Parsed templates of some folders, read once; a file is taken from the first that has it. Thread-safe.
class TemplateLibrary {
 public:
  explicit TemplateLibrary(std::filesystem::path root = {}) : TemplateLibrary(std::vector{std::move(root)}) {}
  explicit TemplateLibrary(std::vector<std::filesystem::path> roots);
  bool has(const std::string& name) const;
  const Template& get(const std::string& name) const;            // "mean_pooling/forward.cpu.cpp"; throws SpecError
  std::filesystem::path path_of(const std::string& name) const;  // where it is, or would be in the first folder
  std::string folders() const;                                   // for messages: "a, b"

 private:
  struct Cache;
  std::vector<std::filesystem::path> roots_;
  std::shared_ptr<Cache> cache_;
};

// Text with ${expression}s only: requirement messages.
std::string interpolate(const std::string& text, const Scope& scope);

}  // namespace ejk::spec
