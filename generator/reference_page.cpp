// Pages as Markdown, and the folder that holds them.
#include "generator/reference_page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "generator/files.hpp"
#include "generator/reference_example.hpp"
#include "generator/typed_api.hpp"
#include "spec/check/suggest.hpp"
#include "spec/choose/clauses.hpp"
#include "spec/read/catalogue.hpp"
#include "spec/render/banner.hpp"

namespace ejk::generator {
namespace {

using namespace spec;
namespace fs = std::filesystem;

// Text of a table's cell.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  return out;
}

std::string type_word(AttributeType type) {
  switch (type) {
    case AttributeType::boolean:
      return "bool";
    case AttributeType::integer:
      return "integer";
    case AttributeType::floating:
      return "number";
    case AttributeType::string:
      return "string";
  }
  return "";
}

std::string default_of(const Attribute& attribute) {
  if (attribute.fallback) return "`" + attribute.fallback.text() + "`";
  return attribute.optional ? "absent" : "must be given";
}

class Page {
 public:
  explicit Page(const Spec& spec) : spec_(spec) {}

  std::string make() {
    text_ = fmt::format("# {}\n\n<!-- {} -->\n{}\n", spec_.kernel, generated_mark, spec_.doc);
    if (spec_.same_as)
      text_ += fmt::format("\nA call of [{0}]({0}.md) by another contract: on its variants and images.\n", spec_.same_as->kernel);
    tensors("Inputs", false);
    attributes();
    tensors("Outputs", true);
    sizes();
    errors();
    gradient();
    accuracy();
    variants();
    cases();
    if (const auto examples = reference_examples(spec_); !examples.empty()) text_ += "\n## Examples\n\n" + examples;
    return text_;
  }

 private:
  void tensors(const char* title, bool outputs) {
    text_ += fmt::format("\n## {}\n\n| name | type | shape | |\n|---|---|---|---|\n", title);
    for (const TensorSpec& tensor : spec_.tensors)
      if (tensor.output == outputs) row(tensor.name, tensor, note(tensor), tensor.doc);
    for (const Output& output : spec_.outputs)
      if (outputs && !output.updates.empty())
        row(output.name, *spec_.tensor(output.updates), fmt::format(" (`{}`, updated)", output.updates), output.doc);
  }

  static std::string note(const TensorSpec& tensor) {
    if (!tensor.updated_as.empty()) return tensor.optional ? " (optional; updated in place)" : " (updated in place)";
    return tensor.for_gradient ? " (for the gradient alone)" : tensor.optional ? " (optional)" : "";
  }

  void row(const std::string& name, const TensorSpec& tensor, const std::string& note, const std::string& doc) {
    text_ += fmt::format("| `{}`{} | {} | {} | {} |\n", name, note, tensor.type, cell(shapes_text(spec_, tensor)), cell(doc));
  }

  void attributes() {
    if (spec_.attributes.empty()) return;
    text_ += "\n## Attributes\n\n| name | type | default | |\n|---|---|---|---|\n";
    for (const Attribute& attribute : spec_.attributes) {
      std::string doc = attribute.doc;
      if (!attribute.choices.empty()) doc += " One of: " + listed(attribute.choices) + ".";
      if (attribute.varies) doc += " It may differ from call to call at no cost.";
      text_ += fmt::format("| `{}` | {} | {} | {} |\n", attribute.name, type_word(attribute.type), cell(default_of(attribute)), cell(doc));
    }
  }

  void sizes() {
    text_ += "\n## Sizes and types\n\n";
    for (const Dim& dim : spec_.dims)
      text_ += fmt::format("- `{}`: {}{}\n", dim.name, dim.doc, dim.value ? fmt::format(" (= `{}`)", dim.value.text()) : "");
    for (const auto& [variable, types] : spec_.types) text_ += fmt::format("- `{}`: one of {}\n", variable, listed(types));
    if (spec_.forms.empty()) return;
    text_ += "\nForms of a call, the first that fits:\n\n";
    for (const Form& form : spec_.forms) text_ += fmt::format("- `{}`, if `{}`: {}\n", form.name, form.when.text(), form.doc);
  }

  void errors() {
    text_ += "\n## Errors\n\nA wrong type, rank, size or stride is an error that names the argument; nothing is written.";
    text_ += spec_.requirements.empty() ? "\n" : " So is a call that breaks one of these rules:\n\n";
    for (const Requirement& rule : spec_.requirements) {
      text_ += fmt::format("- {}", rule_text(rule));
      text_ += rule.reads.empty() ? "\n" : " (judged where the data can be read, on the host, or everywhere with `EJKERNEL_CHECK=on`)\n";
    }
  }

  void gradient() {
    if (spec_.gradient.empty()) return;
    text_ += "\n## Gradient\n\n";
    for (const GradientStep& step : spec_.gradient) {
      if (step.kernel.empty())
        text_ += fmt::format("- `{}` is `{}`\n", step.tensor, step.is);
      else
        text_ += fmt::format("- [{0}]({0}.md)\n", step.kernel);
    }
  }

  void accuracy() {
    if (spec_.tolerance.empty()) return;
    text_ += "\n## Accuracy\n\nLargest relative Frobenius error beside a float64 evaluation, on random data:";
    std::string list;
    for (const auto& [type, tolerance] : spec_.tolerance) list += fmt::format("{} {} {:g}", list.empty() ? "" : ",", type, tolerance);
    text_ += list + ".\n";
    std::map<std::string, std::string> bounded;  // precision → outputs
    for (const TensorSpec& tensor : spec_.tensors) {
      if (!tensor.precision) continue;
      std::string& names = bounded[tensor.precision.text()];
      names += fmt::format("{}`{}`", names.empty() ? "" : ", ", tensor.name);
    }
    for (const auto& [precision, outputs] : bounded)
      text_ += fmt::format("{} may be as far off as the type `{}` allows.\n", outputs, precision);
  }

  void variants() {
    if (spec_.same_as) return;
    text_ += "\n## Variants\n\nOf those that take a call, the one of the highest priority that has a config for it serves it.\n";
    for (const Variant& variant : spec_.variants) {
      text_ += fmt::format("\n### {}\n\n{}\n\n- archs: {}; priority {}; template [{}](../../templates/{})\n", variant.name, variant.doc,
                           listed(variant.archs), variant.priority, variant.template_file, variant.template_file);
      for (const Expression& clause : variant.supports)
        for (const std::string& text : clauses_of(spec_, clause)) text_ += fmt::format("- takes calls with `{}`\n", text);
      for (const ConfigParameter& parameter : variant.config) {
        std::vector<std::string> values;
        for (const Value& value : parameter.values) values.push_back(to_text(value));
        text_ += fmt::format("- config `{}`: {}{}\n", parameter.name, listed(values), parameter.doc.empty() ? "" : "; " + parameter.doc);
      }
    }
  }

  void cases() {
    if (spec_.cases.empty()) return;
    text_ += "\n## Cases\n\nWhat `ejk verify`, `bench` and `tune` call, and what images are made for:\n\n";
    std::map<std::string, std::size_t> seen;  // a list of values in the spec makes several cases of one doc
    for (const Case& c : spec_.cases) {
      const auto stem = c.name.substr(0, c.name.find('.'));
      if (seen[stem]++ == 0) text_ += fmt::format("- `{}`: {}\n", stem, c.doc);
    }
  }

  const Spec& spec_;
  std::string text_;
};

std::string index_page(const Catalogue& catalogue) {
  std::string text =
      fmt::format("# Kernels\n\n<!-- {} -->\nA page a kernel, made from its spec.\n\n| kernel | |\n|---|---|\n", generated_mark);
  for (const std::string& name : catalogue.kernel_names())
    if (const auto spec = catalogue.kernel(name)) text += fmt::format("| [{0}]({0}.md) | {1} |\n", name, cell(spec->doc));
  return text;
}

using Tree = std::map<std::string, std::string>;  // file → text

Tree pages(const fs::path& specs, const fs::path& templates) {
  const Catalogue catalogue = Catalogue::load(specs, templates);
  Tree tree = {{"README.md", index_page(catalogue)}};
  for (const std::string& name : catalogue.kernel_names())
    if (const auto spec = catalogue.kernel(name)) tree[name + ".md"] = reference_page(*spec);
  return tree;
}

// Files of the folder that a run before wrote and that are none of the tree's.
std::vector<fs::path> left_over(const fs::path& folder, const Tree& tree) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::string bytes;
    if (entry.path().extension() != ".md" || tree.count(entry.path().filename().string())) continue;
    if (read_file(entry.path(), bytes) && bytes.find(generated_mark) != std::string::npos) files.push_back(entry.path());
  }
  return files;
}

}  // namespace

std::string reference_page(const Spec& spec) { return Page(spec).make(); }

std::size_t write_reference(const fs::path& specs, const fs::path& templates, const fs::path& folder) {
  const Tree tree = pages(specs, templates);
  std::size_t changed = 0;
  fs::create_directories(folder);
  for (const auto& [name, text] : tree) {
    std::string bytes;
    if (read_file(folder / name, bytes) && bytes == text) continue;
    write_file(folder / name, text);
    ++changed;
  }
  for (const auto& path : left_over(folder, tree)) changed += fs::remove(path);
  return changed;
}

std::vector<std::string> check_reference(const fs::path& specs, const fs::path& templates, const fs::path& folder) {
  const Tree tree = pages(specs, templates);
  std::vector<std::string> lines;
  for (const auto& [name, text] : tree) {
    std::string bytes;
    if (!read_file(folder / name, bytes))
      lines.push_back((folder / name).string() + ": missing");
    else if (bytes != text)
      lines.push_back((folder / name).string() + ": differs from what the specs make");
  }
  for (const auto& path : left_over(folder, tree)) lines.push_back(path.string() + ": no spec makes it");
  return lines;
}

}  // namespace ejk::generator
