// Folders of specs with their archs and templates: <root>/*.json, <root>/arch/*.json, and a templates folder each.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "spec/model.hpp"
#include "spec/render/template.hpp"

namespace ejk::spec {

class Catalogue {
 public:
  // Reads and checks everything; throws SpecError with every fault of every file, those that open() passes over too (also
  // std::runtime_error if a folder is unreadable).
  static Catalogue load(const std::filesystem::path& specs, const std::filesystem::path& templates);

  // Reads the archs and, on demand, only the kernel asked for; its cases, and the variants that no CPU runs, if they are asked for (the
  // runtime's way: nothing is read that is not called).
  // Thread-safe. nullptr: no such kernel file. Throws SpecError.
  static Catalogue open(const std::filesystem::path& specs, const std::filesystem::path& templates);
  // The same over several folders: a kernel, an arch and a template are taken from the first that has them, so that a folder of one's own
  // kernels needs neither archs nor vocabulary.
  struct Folders {
    std::filesystem::path specs, templates;
  };
  static Catalogue open(const std::vector<Folders>& folders);
  std::shared_ptr<const Spec> kernel(const std::string& name) const;

  std::vector<std::string> kernel_names() const;     // sorted, from the folders' listings
  std::vector<Fault> passed_over() const;            // files *.json there that are nobody's specs or archs, and why
  const std::map<std::string, Arch>& archs() const;  // by full name "cpu:avx512"; features and properties include the parents'
  const Arch* arch(const std::string& full_name) const;
  const TemplateLibrary& templates() const;

  // Archs of `variant` in this catalogue, deepest (most specific) first. "cuda:sm_80+" covers sm_80 and all that extend it.
  std::vector<const Arch*> archs_of(const Variant& variant) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ejk::spec
