// Making an image: specialisation, rendered template, entry points, banner, hash.
#include "spec/render/image.hpp"

#include <fmt/format.h>

#include "spec/render/banner.hpp"
#include "spec/render/entry_points.hpp"
#include "spec/render/source_hash.hpp"

namespace ejk::spec {
namespace {

// What a template sees: the closed scope, ctype() and parameters(). Parameters are judged in the open one: their types may follow
// from expressions over the call, whose values stay out of the source.
class TemplateScope : public Scope {
 public:
  TemplateScope(const VariantScope& closed, const VariantScope& open) : closed_(closed), open_(open) {}
  std::optional<Value> lookup(std::string_view name) const override { return closed_.lookup(name); }
  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value> rest) const override {
    if (function == "parameters") return Value(parameter_list(parameters_of(open_, name)));
    if (function != "ctype") return closed_.call(function, name, rest);
    std::string text = c_type(name);
    if (!text.empty()) return Value(text);
    const Value value = closed_.lookup(name).value();
    text = c_type(to_text(value));
    if (text.empty()) throw ExpressionError(fmt::format("ctype({}): {} is {}, not an element type", name, name, to_text(value)), 0);
    return Value(text);
  }

 private:
  const VariantScope& closed_;
  const VariantScope& open_;
};

std::string_view extension_of(const Arch& arch) { return arch.platform == "cuda" ? "cu" : arch.platform == "hip" ? "hip" : "cpp"; }

void describe(Image& image, const VariantScope& scope) {
  image.kernel = scope.binding.spec->server().kernel;
  image.variant = scope.variant.name;
  image.arch = scope.arch.full_name();
  for (std::size_t i = 0; i < scope.variant.specialize.size(); ++i)
    image.specialisation.emplace_back(scope.variant.specialize[i].name, scope.specialisation(i));
  image.id = image_id(scope, image.config);
  image.file = fmt::format("{}/{}.{}", image.kernel, image.id, extension_of(scope.arch));
  image.flags = scope.arch.flags;
  image.flags.insert(image.flags.end(), scope.variant.flags.begin(), scope.variant.flags.end());
  image.limits = scope.variant.limits;
}

std::string render(const VariantScope& closed, const VariantScope& open, const TemplateLibrary& templates) {
  const Template& source = templates.get(closed.variant.template_file);
  std::string text = source.render(TemplateScope(closed, open), templates);
  if (closed.arch.platform == "simt") return text + simt_entry_points(open);
  if (closed.arch.platform != "cpu") return text;
  if (text.find("struct Group") == std::string::npos)
    throw SpecError({{templates.path_of(closed.variant.template_file).string(), "1",
                      "a CPU template must #include \"device/cpu.h\", which its entry points need"}});
  return text + cpu_entry_points(open);
}

}  // namespace

Image make_image(const Spec& spec, const Variant& variant, const Arch& arch, const Binding& binding, const Config& config,
                 const TemplateLibrary& templates) {
  Image image;
  image.config = config;
  try {
    VariantScope open(variant, arch, binding), closed(variant, arch, binding);
    open.set_config(image.config);
    closed.set_config(image.config);
    closed.close();
    describe(image, open);
    const std::string body = render(closed, open, templates);
    image.source = banner(image, closed) + body;
  } catch (const ExpressionError& e) {
    throw SpecError({{spec.server().file, variant.pointer, fmt::format("{}: {}", arch.full_name(), e.what())}});
  }
  image.hash = source_hash(image.source);
  return image;
}

}  // namespace ejk::spec
