// The example's case, and its call with NumPy's, PyTorch's and JAX's arrays and in C++.
#include "generator/reference_example.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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
  // The number that the case gives every element of an input ("all 4096"), unless it is 0.
  std::string all_of(const std::string& input) const {
    const auto fill = example.of->fill.find(input);
    if (fill == example.of->fill.end() || !fill->second.starts_with("all ")) return "";
    const std::string number = fill->second.substr(4);
    return number != "0" && number.find_first_not_of("0123456789") == std::string::npos ? number : "";
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

  // "name = made" of each input. random: a format of a shape, a type, of_first (of the first of them, else nothing) and a number, for
  // floats; constant: one of ones, zeros or full (whose number follows the shape), a shape and a type, for others.
  std::string python_inputs(const char* random, const char* constant, const std::string& of_first = "") const {
    return each_input([&, number = 0](const TensorSpec& tensor, const TensorFacts& facts) mutable {
      const std::string shape = fmt::format("({}{})", fmt::join(facts.shape, ", "), facts.shape.size() == 1 ? "," : "");
      const std::string type = numpy_type(facts.type);
      if (const std::string all = all_of(tensor.name); !all.empty())
        return fmt::format("{} = {}\n", tensor.name, fmt::format(fmt::runtime(constant), "full", shape + ", " + all, type));
      if (!type.starts_with("float"))
        return fmt::format("{} = {}\n", tensor.name, fmt::format(fmt::runtime(constant), type == "bool" ? "ones" : "zeros", shape, type));
      const std::string more = number == 0 ? of_first : "";
      return fmt::format("{} = {}\n", tensor.name, fmt::format(fmt::runtime(random), shape, type, more, number++));
    });
  }
  std::string numpy() const {
    return "import ejk\nimport numpy\n\n" + python_inputs("numpy.random.standard_normal({0}).astype(numpy.{1})", "numpy.{}({}, numpy.{})") +
           fmt::format("\nresult = ejk.{}({})\n", spec.kernel, python_arguments());
  }
  std::string torch() const {
    std::string text = "import ejk\nimport torch\n\n" +
                       python_inputs("torch.randn({0}, dtype=torch.{1}{2})", "torch.{}({}, dtype=torch.{})",
                                     differentiable() ? ", requires_grad=True" : "") +
                       fmt::format("\nresult = ejk.{}({})\n", spec.kernel, python_arguments());
    return differentiable() ? text + fmt::format("result{}.sum().backward()  # {}.grad\n", first_output(), first_float()) : text;
  }
  std::string jax() const {
    std::string text = "import ejk.jax\nimport jax\nimport jax.numpy as jnp\n\n" +
                       python_inputs("jax.random.normal(jax.random.key({3}), {0}, jnp.{1})", "jnp.{}({}, jnp.{})") +
                       fmt::format("\n\ndef call({}):\n    return ejk.jax.{}({})\n\n\n", names(), spec.kernel, python_arguments()) +
                       fmt::format("result = jax.jit(call)({})\n", names());
    if (differentiable())
      text += fmt::format("slope = jax.grad(lambda {0}: call({1}){2}.sum())({0})\n", first_float(), names(), first_output());
    return text;
  }
  std::string names() const {
    const auto text = each_input([](const TensorSpec& tensor, const TensorFacts&) { return tensor.name + ", "; });
    return text.substr(0, text.size() - std::min<std::size_t>(2, text.size()));
  }
  std::string first_float() const {
    std::string name;
    each_input([&](const TensorSpec& tensor, const TensorFacts& facts) {
      if (name.empty() && std::string(numpy_type(facts.type)).starts_with("float")) name = tensor.name;
      return std::string();
    });
    return name;
  }
  std::size_t results() const {
    return std::count_if(spec.tensors.begin(), spec.tensors.end(), [](const auto& tensor) { return tensor.output && !tensor.optional; });
  }
  // ".out" of a named tuple; nothing of a result that is one array.
  std::string first_output() const { return results() == 1 ? "" : "." + spec.outputs.front().name; }
  bool differentiable() const {
    const auto is_new = [](const Output& output) { return output.updates.empty(); };
    return !spec.gradient.empty() && !first_float().empty() && std::all_of(spec.outputs.begin(), spec.outputs.end(), is_new);
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
  const bool differentiable = words.differentiable();
  return fmt::format("The case `{}` of the spec. With NumPy's arrays:\n\n```python\n{}```\n\n", example.of->name, words.numpy()) +
         fmt::format("With PyTorch's tensors{}, also inside `torch.compile`:\n\n```python\n{}```\n\n",
                     differentiable ? " and autograd" : "", words.torch()) +
         fmt::format("In JAX{}, also under `vmap` and `shard_map`:\n\n```python\n{}```\n\n", differentiable ? ", with a gradient" : "",
                     words.jax()) +
         fmt::format("In C++:\n\n```cpp\n#include <ejk/ejk.hpp>\n#include <ejk/{}.hpp>\n\n{}", spec.kernel, words.cpp()) +
         fmt::format("// ... fill them ...\nconst auto result = ejk::{}({});\nif (!result) return result.error();\n```\n", spec.kernel,
                     words.cpp_arguments());
}

}  // namespace ejk::generator
