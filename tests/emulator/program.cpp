// Rendering with a scope of constants; one entry of fixed parameters.
#include "emulator/program.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "emulator/sanitizer.hpp"
#include "spec/arch_property.hpp"
#include "spec/read/catalogue.hpp"
#include "spec/render/template.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

class Constants : public spec::Scope {
 public:
  Constants(const std::map<std::string, spec::Value>& values, const spec::Arch& arch) : values_(values), arch_(arch) {}
  std::optional<spec::Value> lookup(std::string_view name) const override {
    if (name == "arch.platform") return spec::Value(std::string("simt"));
    if (spec::names_arch_property(name)) return arch_.properties.at(spec::arch_property(name).name);
    const auto found = values_.find(std::string(name));
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }

 private:
  const std::map<std::string, spec::Value>& values_;
  const spec::Arch& arch_;
};

constexpr char entry_point[] = R"(
extern "C" __attribute__((visibility("default"))) void ejk_kernel(void* const* arguments) {
  kernel(*static_cast<void* const*>(arguments[0]), *static_cast<void* const*>(arguments[1]), *static_cast<void* const*>(arguments[2]),
         *static_cast<const int64_t*>(arguments[3]));
}
)";

const spec::Arch& arch_of(const std::string& name) {
  static const auto catalogue = spec::Catalogue::open(test::source_dir() + "/specs", test::source_dir() + "/templates");
  return *catalogue.arch("simt:" + name + (simt::sanitized ? "_sanitized" : ""));
}

spec::Image render(const std::string& body, const std::map<std::string, spec::Value>& values, const spec::Arch& arch) {
  static const spec::TemplateLibrary library(test::source_dir() + "/templates");
  spec::Image image;
  image.id = "a test's kernel";
  image.source = spec::Template::parse("test", "#include \"device/gpu.h\"\n" + body).render(Constants(values, arch), library) + entry_point;
  image.flags = arch.flags;
  return image;
}

}  // namespace

Program::Program(const std::string& body, const std::map<std::string, spec::Value>& values, const std::string& arch_name) {
  const auto& arch = arch_of(arch_name);
  const auto image = render(body, values, arch);
  const auto compiled = simt_backend().compile(image, arch);
  if (!compiled.ok) throw std::runtime_error(compiled.log);
  module_ = simt_backend().load_bytes(compiled.binary, image);
}

void Program::run(const Dimensions& dimensions, void* a, void* b, void* c, std::int64_t n) const {
  void* arguments[] = {&a, &b, &c, &n};
  LaunchRequest request;
  request.entry = module_->entry("kernel");
  request.grid[0] = dimensions.grid_x;
  request.grid[1] = dimensions.grid_y;
  request.grid[2] = dimensions.grid_z;
  request.block[0] = dimensions.threads;
  request.shared_bytes = dimensions.shared_bytes;
  request.cooperative = dimensions.cooperative;
  request.arguments = arguments;
  simt_backend().launch(request, nullptr);
}

std::string Program::complaint(const Dimensions& dimensions, void* a, void* b, void* c, std::int64_t n) const {
  try {
    run(dimensions, a, b, c, n);
    return {};
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

}  // namespace ejk
