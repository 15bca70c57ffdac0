// The example's case, and its call in Python (NumPy, PyTorch, JAX) and C++.
#include "generator/reference_example.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <optional>

#include "generator/typed_api.hpp"
#include "spec/call/binding.hpp"

namespace ejk::generator {
namespace {

using namespace spec;

struct Example {
  const Case* of = nullptr;
  CallFacts facts;
};

// NumPy's and JAX's name of a type, which bfloat16 and the 8-bit floats are not among; nullptr: none.
const char* numpy_type(DType type) {
  if (type == DType::f32) return "float32";
  if (type == DType::f16) return "float16";
  if (type == DType::i32) return "int32";
  if (type == DType::i64) return "int64";
  if (type == DType::boolean) return "bool";
  return nullptr;
}

// Elements of all inputs, or nullopt if NumPy lacks a type of one. Optional inputs make an example longer: they count as very large.
std::optional<double> size_of(const Spec& spec, const Case& c, const CallFacts& facts) {
  double elements = 1e12 * static_cast<double>(c.given.size());
  for (const TensorSpec& tensor : spec.tensors) {
    const auto found = facts.tensors.find(tensor.name);
    if (tensor.output || found == facts.tensors.end()) continue;
    if (!numpy_type(found->second.type)) return std::nullopt;
    double count = 1;
    for (const auto extent : found->second.shape) count *= static_cast<double>(extent);
    elements += count;
  }
  return elements;
}

Example smallest_case(const Spec& spec) {
  Example best;
  double least = std::numeric_limits<double>::infinity();
  for (const Case& c : spec.cases) {
    auto facts = facts_of(spec, c);
    const auto size = size_of(spec, c, facts);
    if (!size || *size >= least) continue;
    least = *size;
    best = {&c, std::move(facts)};
  }
  return best;
}

std::string python_value(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "True" : "False";
  if (const auto* text = std::get_if<std::string>(&value)) return fmt::format("\"{}\"", *text);
  return to_text(value);
}
std::string cpp_value(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return fmt::format("\"{}\"", *text);
  return to_text(value);
}

struct Words {
  const Spec& spec;
  const Example& example;

  template <class Write>
  std::string each_input(Write&& write) const {
    std::string text;
    for (const TensorSpec& tensor : spec.tensors)
      if (const auto found = example.facts.tensors.find(tensor.name); !tensor.output && found != example.facts.tensors.end())
        text += write(tensor, found->second);
    return text;
  }
  // Required inputs by position, others and attributes by name.
  std::string python_arguments() const {
    std::string text =
        each_input([](const TensorSpec& tensor, const TensorFacts&) { return tensor.optional ? std::string() : tensor.name + ", "; });
    text += each_input([](const TensorSpec& tensor, const TensorFacts&) {
      return tensor.optional ? fmt::format("{0}={0}, ", tensor.name) : std::string();
    });
    for (const Attribute& attribute : spec.attributes)
      if (const auto value = example.of->attributes.find(attribute.name); value != example.of->attributes.end())
        text += fmt::format("{}={}, ", attribute.name, python_value(value->second));
    return text.substr(0, text.size() - std::min<std::size_t>(2, text.size()));
  }
  std::string cpp_arguments() const {
    std::string text =
        each_input([](const TensorSpec& tensor, const TensorFacts&) { return tensor.optional ? std::string() : tensor.name + ", "; });
    std::string options = each_input([](const TensorSpec& tensor, const TensorFacts&) {
      return tensor.optional ? fmt::format(".{0} = {0}, ", tensor.name) : std::string();
    });
    for (const Attribute& attribute : spec.attributes)
      if (const auto value = example.of->attributes.find(attribute.name); value != example.of->attributes.end())
        options += fmt::format(".{} = {}, ", attribute.name, cpp_value(value->second));
    if (!options.empty()) return text + "{" + options.substr(0, options.size() - 2) + "}";
    return text.substr(0, text.size() - std::min<std::size_t>(2, text.size()));
  }

  std::string numpy() const {
    return each_input([](const TensorSpec& tensor, const TensorFacts& facts) {
      const std::string shape = fmt::format("({}{})", fmt::join(facts.shape, ", "), facts.shape.size() == 1 ? "," : "");
      const std::string type = numpy_type(facts.type);
      if (type.starts_with("float"))
        return fmt::format("{} = numpy.random.standard_normal({}).astype(numpy.{})\n", tensor.name, shape, type);
      return fmt::format("{} = numpy.{}({}, numpy.{})\n", tensor.name, type == "bool" ? "ones" : "zeros", shape, type);
    });
  }
  std::string cpp() const {
    return each_input([](const TensorSpec& tensor, const TensorFacts& facts) {
      return fmt::format("ejk::Tensor {}(ejk::DType::{}, {{{}}});\n", tensor.name,
                         facts.type == DType::boolean ? "boolean" : name_of(facts.type), fmt::join(facts.shape, ", "));
    });
  }
};

}  // namespace

std::string reference_examples(const Spec& spec) {
  const Example example = smallest_case(spec);
  if (!example.of) return "";
  const Words words{spec, example};
  std::string text = fmt::format("The case `{}` of the spec. Python, with NumPy arrays:\n\n```python\nimport ejk\nimport numpy\n\n{}\n",
                                 example.of->name, words.numpy());
  text += fmt::format("result = ejk.{}({})\n```\n\n", spec.kernel, words.python_arguments());
  text += fmt::format(
      "The same function takes PyTorch's tensors (with autograd where there is a gradient) and JAX's arrays; inside `jax.jit`, `grad`, "
      "`vmap` "
      "and `shard_map` it is `ejk.jax.{}`.\n\nC++:\n\n```cpp\n#include <ejk/ejk.hpp>\n#include <ejk/{}.hpp>\n\n{}",
      spec.kernel, spec.kernel, words.cpp());
  text += fmt::format("// ... fill them ...\nconst auto result = ejk::{}({});\nif (!result) return result.error();\n```\n", spec.kernel,
                      words.cpp_arguments());
  return text;
}

}  // namespace ejk::generator
