// An image: variant + specialisation + config + arch = one source text, one id. Everything between a bound call and a source.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spec/call/binding.hpp"
#include "spec/model.hpp"
#include "spec/render/template.hpp"

namespace ejk::spec {

using Config = std::vector<std::pair<std::string, Value>>;  // in the spec's order

// The scope of a variant's expressions. Config, let and specialisation names come before the kernel's lets, arch.* (its properties,
// arch.name, arch.platform) and the binding's; a specialisation's own expression sees only the last three, so it may have the name of what
// it is made of ("D": "D"). Values are computed on first use: one thread at a time.
class VariantScope : public Scope {
 public:
  VariantScope(const Variant& variant, const Arch& arch, const Binding& binding);
  void set_config(const Config& config);  // also makes `let` names available (evaluated on use); config must outlive the scope
  // From here on the call's own facts (dims, attributes, shapes, given) are errors: an image serves every call of its specialisation.
  void close();
  Value specialisation(std::size_t index) const;  // of variant.specialize[index]; throws ExpressionError
  std::optional<Value> lookup(std::string_view name) const override;
  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value> rest) const override;
  std::vector<std::pair<const SharedLet*, Value>> shared_lets() const;  // those that had a value when they were asked for, in that order
  const Variant& variant;
  const Arch& arch;
  const Binding& binding;

 private:
  enum class State : char { unknown, evaluating, known };
  struct SharedValue {
    const SharedLet* let;
    State state;
    Value value;
  };
  Value let(std::size_t index) const;
  Value shared(const SharedLet& let) const;

  const Config* config_ = nullptr;
  bool closed_ = false;
  mutable std::vector<std::optional<Value>> specialisation_;
  mutable std::vector<Value> let_;
  mutable std::vector<State> let_state_;
  mutable std::vector<SharedValue> shared_;  // of those that were asked for
};

// The clause of `supports` that refuses the call (as written), or nullopt.
std::optional<std::string> refusal(const Variant& variant, const Arch& arch, const Binding& binding);

// The clause of `valid` the config breaks, "not in the config space: block_m = 3, expected one of 64, 128", or nullopt.
std::optional<std::string> invalid_clause(const Variant& variant, const Arch& arch, const Binding& binding, const Config& config);

std::vector<Config> config_space(const Variant& variant, const Arch& arch, const Binding& binding);        // the valid ones
std::optional<Config> heuristic_config(const Variant& variant, const Arch& arch, const Binding& binding);  // first rule that holds

struct Image {
  std::string kernel, variant, arch;  // arch: full name
  std::vector<std::pair<std::string, Value>> specialisation;
  Config config;
  std::string id;                  // flash_attention.tiled.cpu_avx512.f32.d128_causal.m64_n256
  std::string source;              // rendered, with banner, self-contained
  std::string hash;                // source_hash(source), of spec/render/source_hash.hpp
  std::string file;                // "<kernel>/<id>.cpp": below generated/src and in the store
  std::vector<std::string> flags;  // arch's and variant's; also in the banner, so the hash covers them
  Resources limits;                // the variant's: of what is built, not of the source
};

// The id alone (cheap; throws ExpressionError), and the whole image. Throws SpecError on template faults.
//
// Templates see specialisation, config, let and arch.* names, ${ctype(T)} (the C++ type of a type name: float, half, bfloat16, double,
// int8_t, ..., bool; void for 'none'), and ${parameters('entry')}: the parameter list of that launch's args, inputs const. For the CPU,
// `void ejk_<entry>(void* const* arguments, const Group* group)` is appended for each entry: arguments[i] points at the i-th value,
// which is a pointer, an int64_t, a float, a bool, or for view(x) a `const View*` that is never null. For the SIMT emulator `void
// ejk_<entry>(void* const* arguments)`, where the value of view(x) is the View itself, as it is in CUDA's and HIP's parameters.
std::string image_id(const VariantScope& scope, const Config& config);
Image make_image(const Spec& spec, const Variant& variant, const Arch& arch, const Binding& binding, const Config& config,
                 const TemplateLibrary& templates);

// ---- what a launch of an image needs, evaluated for one call ----

struct WorkspaceSize {
  std::string name;
  std::int64_t bytes = 0;
  DType type = DType::f32;
  std::vector<std::int64_t> shape;
  bool zero = false;
};
struct ArgumentValue {
  const Argument* argument = nullptr;
  Value value;                    // for Kind::value; for a varying attribute its default, if any
  std::vector<std::int64_t> box;  // for Kind::tensor_map
  std::string mapped;             // for Kind::tensor_map: the tensor or workspace
};
struct LaunchGeometry {
  const Launch* launch = nullptr;
  std::int64_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  std::int64_t shared_bytes = 0, repeat = 1;
  std::vector<ArgumentValue> arguments;
};
struct Geometry {
  std::vector<WorkspaceSize> workspace;
  std::vector<LaunchGeometry> launches;  // those whose condition holds; without those of an empty grid or no turns
};
// Throws ExpressionError that names the launch or workspace.
Geometry geometry_of(const Variant& variant, const Arch& arch, const Binding& binding, const Config& config);

}  // namespace ejk::spec
