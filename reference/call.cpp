// Calls made of a spec's case or of a user's tensors.
#include "reference/call.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "reference/data.hpp"
#include "reference/paged_data.hpp"
#include "reference/reference.hpp"

namespace ejk::reference {
namespace {

constexpr std::uint64_t attempts_at_offsets = 2000;

// C as a few dims whose product is C; sizes 1 and 0 stay one dim, or none for 1.
std::vector<std::int64_t> split(std::int64_t product, Rng& rng) {
  if (product == 1 && rng.chance(0.5)) return {};
  std::vector<std::int64_t> outer;
  for (const std::int64_t factor : {2, 3, 5})
    if (product > factor && product % factor == 0 && outer.size() < 2 && rng.chance(0.6)) {
      outer.push_back(factor);
      product /= factor;
    }
  outer.push_back(product);
  return outer;
}

// `seed`: of the stream that a rest takes in every tensor that has it.
std::vector<std::int64_t> other_shape(const spec::Shape& shape, const spec::Binding& usual, std::uint64_t seed, Rng& rng) {
  std::vector<std::int64_t> extents;
  for (const spec::Extent& extent : shape.extents) {
    const auto dim = [&] { return std::get<std::int64_t>(*usual.lookup(extent.dim)); };  // throws if it is not bound
    switch (extent.kind) {
      case spec::Extent::Kind::dim:
        extents.push_back(dim());
        break;
      case spec::Extent::Kind::dim_or_one:
        extents.push_back(rng.chance(0.5) ? 1 : dim());
        break;
      case spec::Extent::Kind::rest: {
        Rng parts = Rng::stream(seed, "rest " + extent.dim);
        for (const std::int64_t part : split(dim(), parts)) extents.push_back(part);
        break;
      }
      case spec::Extent::Kind::expression:
        extents.push_back(extent.expression.integer(usual));
        break;
    }
  }
  return extents;
}

std::vector<std::vector<std::string>> shape_words(const spec::TensorSpec& tensor) {
  std::vector<std::vector<std::string>> words;
  for (const spec::Shape& shape : tensor.shapes) {
    words.push_back({shape.form});
    for (const spec::Extent& extent : shape.extents) words.back().push_back(extent.text);
  }
  return words;
}

// The tensor after which a choice of shape is named: an output that may have the shapes of an input has that input's, as a gradient does.
const spec::TensorSpec& model_of(const spec::Spec& spec, const spec::TensorSpec& tensor) {
  for (const spec::TensorSpec& other : spec.tensors)
    if (tensor.output && !other.output && shape_words(other) == shape_words(tensor)) return other;
  return tensor;
}

// Another legal shape of the tensor in the form of the usual call. Tensors with a rest extent split it alike: they take the same stream.
std::vector<std::int64_t> choose_shape(const spec::TensorSpec& tensor, const spec::Binding& usual, std::uint64_t seed) {
  std::vector<const spec::Shape*> legal;
  bool has_rest = false;
  for (const spec::Shape& shape : tensor.shapes)
    if (spec::shape_for(tensor, usual.form, shape.extents.size()) == &shape) {
      legal.push_back(&shape);
      has_rest = has_rest || shape.has_rest();
    }
  if (legal.empty()) throw std::logic_error(fmt::format("{} has no shape in the {} form", tensor.name, usual.form));
  const std::string& model = legal.front()->same_as.empty() ? model_of(*usual.spec, tensor).name : legal.front()->same_as;
  Rng rng = Rng::stream(seed, has_rest ? "rest" : "shape of " + model);
  return other_shape(*rng.pick(std::span<const spec::Shape* const>(legal)), usual, seed, rng);
}

// What a case fills an input with. Host data lie contiguous in every layout.
const std::string& fill_of(const spec::TensorSpec& tensor, const spec::Case& c) {
  const auto own = c.fill.find(tensor.name);
  return own == c.fill.end() ? tensor.fill : own->second;
}

const spec::Dim* dim_of(const spec::Spec& spec, const std::string& name) {
  for (const spec::Dim& dim : spec.dims)
    if (dim.name == name) return dim.value ? &dim : nullptr;
  return nullptr;
}

// The case with the dims that follow from others or from data (chunks of packed sequences): its offsets are made first, from the same seed
// as later.
spec::Case with_derived_dims(const spec::Spec& spec, const spec::Case& c, std::uint64_t seed) {
  spec::Case sized = c;
  for (const spec::Dim& dim : spec.dims)
    if (dim.value) sized.dims.emplace(dim.name, std::int64_t{0});  // a placeholder: no offsets are sized by such a dim
  const spec::CallFacts facts = spec::facts_of(spec, sized);
  std::vector<HostTensor> offsets;
  spec::Binding known;
  known.spec = &spec;
  known.facts.attributes = c.attributes;
  for (const auto& [name, value] : c.dims) {
    const spec::Dim* dim = dim_of(spec, name);
    if (!dim || dim->value.subjects().empty()) known.dims[name] = std::get<std::int64_t>(value);  // what data tells is read from this data
  }
  for (const spec::Attribute& attribute : spec.attributes) {
    const auto given = c.attributes.find(attribute.name);
    if (given != c.attributes.end())
      known.attributes[attribute.name] = given->second;
    else if (attribute.fallback && attribute.fallback.names().empty())
      known.attributes[attribute.name] = attribute.fallback.evaluate(known);
  }
  for (const spec::TensorSpec& tensor : spec.tensors)
    if (const auto given = facts.tensors.find(tensor.name); given != facts.tensors.end() && is_host_data(tensor.fill)) {
      offsets.emplace_back(tensor.name, given->second.type, given->second.shape);
      fill_input(offsets.back(), fill_of(tensor, c), c.dims, seed);
      known.facts.tensors[tensor.name] = offsets.back().facts();
    }
  spec::Case result = c;
  for (bool progress = true; progress;) {
    progress = false;
    for (const spec::Dim& dim : spec.dims) {
      if (!dim.value || known.dims.contains(dim.name)) continue;
      try {
        known.dims[dim.name] = dim.value.integer(known);
        result.dims[dim.name] = known.dims[dim.name];
        progress = true;
      } catch (const spec::ExpressionError&) {
        continue;  // needs a dim that comes later, or one that this form does not have
      }
    }
  }
  return result;
}

HostTensor make_output(const spec::TensorSpec& tensor, DType type, std::vector<std::int64_t> shape, const Layout& layout,
                       std::uint64_t seed) {
  Layout output_layout = layout.outputs ? layout : Layout{};
  output_layout.broadcast = false;
  Rng rng = Rng::stream(seed, "layout of " + tensor.name);
  return {tensor.name, type, std::move(shape), output_layout, &rng};
}

// The copies that updated inputs are in a call's outputs.
void copy_updated(Call& call) {
  for (const spec::Output& output : call.spec->outputs) {
    if (output.updates.empty()) continue;
    const auto is = [](const std::string& name) { return [&name](const HostTensor& tensor) { return tensor.name() == name; }; };
    const auto input = std::find_if(call.inputs.begin(), call.inputs.end(), is(output.updates));
    if (input == call.inputs.end()) continue;
    const auto copy = std::find_if(call.outputs.begin(), call.outputs.end(), is(output.name));
    if (copy == call.outputs.end())
      call.outputs.push_back(input->copy(output.name));
    else
      *copy = input->copy(output.name);
  }
}

void complete(Call& call) {
  if (const KernelReference* reference = find_reference(call.spec->kernel)) reference->complete(call);
  copy_updated(call);
}

const spec::Value& attribute_of(const Call& call, std::string_view name) {
  const auto found = call.binding.attributes.find(name);
  if (found == call.binding.attributes.end())
    throw std::out_of_range(fmt::format("{}: the reference needs the attribute {}, which is absent", call.spec->kernel, name));
  return found->second;
}

std::out_of_range wrong_kind(const Call& call, std::string_view name, const spec::Value& value, const char* expected) {
  return std::out_of_range(fmt::format("{}: attribute {}: found {} ({}), expected {}", call.spec->kernel, name, spec::to_text(value),
                                       spec::kind_name(value), expected));
}

}  // namespace

std::string describe(const spec::Case& c) {
  std::string text;
  const auto add = [&](const std::string& word) { text += (text.empty() ? "" : ", ") + word; };
  for (const auto& [name, type] : c.types) add(name + "=" + type);
  for (const auto& [name, value] : c.dims) add(name + "=" + spec::to_text(value));
  for (const auto& [name, value] : c.attributes) add(name + "=" + spec::to_text(value));
  std::string given;
  for (const std::string& name : c.given) given += " " + name;
  if (!given.empty()) add("given" + given);
  return text;
}

const HostTensor* Call::find(std::string_view name) const {
  for (const auto* list : {&inputs, &outputs})
    for (const HostTensor& tensor : *list)
      if (tensor.name() == name) return &tensor;
  return nullptr;
}

HostTensor* Call::find(std::string_view name) { return const_cast<HostTensor*>(std::as_const(*this).find(name)); }

const HostTensor& Call::input(std::string_view name) const {
  const HostTensor* found = find(name);
  if (!found) throw std::out_of_range(fmt::format("{}: the reference needs the tensor {}, which is not given", spec->kernel, name));
  return *found;
}

HostTensor& Call::input(std::string_view name) { return const_cast<HostTensor&>(std::as_const(*this).input(name)); }

std::int64_t Call::dim(std::string_view name) const {
  const auto found = binding.dims.find(name);
  if (found == binding.dims.end())
    throw std::out_of_range(fmt::format("{}: the reference needs the dim {}, which is not bound", spec->kernel, name));
  return found->second;
}

std::int64_t Call::integer(std::string_view attribute) const {
  const spec::Value& value = attribute_of(*this, attribute);
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  throw wrong_kind(*this, attribute, value, "an integer");
}

double Call::floating(std::string_view attribute) const {
  const spec::Value& value = attribute_of(*this, attribute);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return static_cast<double>(*number);
  throw wrong_kind(*this, attribute, value, "a number");
}

bool Call::flag(std::string_view attribute) const {
  const spec::Value& value = attribute_of(*this, attribute);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  throw wrong_kind(*this, attribute, value, "a boolean");
}

bool Call::has_attribute(std::string_view name) const { return binding.attributes.find(name) != binding.attributes.end(); }

spec::CallFacts Call::facts() const {
  spec::CallFacts facts;
  facts.attributes = attributes;
  for (const auto& [name, tensor] : launched()) facts.tensors[name] = tensor->facts();
  return facts;
}

std::vector<std::pair<std::string, const HostTensor*>> Call::launched() const {
  std::vector<std::pair<std::string, const HostTensor*>> tensors;
  for (const HostTensor& input : inputs) {
    const spec::TensorSpec* told = spec->tensor(input.name());
    const bool copied = told && !told->updated_as.empty() && std::any_of(outputs.begin(), outputs.end(), [&](const HostTensor& each) {
                          return each.name() == told->updated_as;
                        });
    if (!copied) tensors.emplace_back(input.name(), &input);
  }
  for (const HostTensor& output : outputs) {
    const spec::Output* told = spec->output(output.name());
    tensors.emplace_back(told ? told->tensor() : output.name(), &output);
  }
  return tensors;
}

void Call::rebind() { binding = spec::bind(*spec, facts()); }

void Call::poison_outputs() {
  for (HostTensor& output : outputs) output.poison();
  copy_updated(*this);
}

Call make_call(const spec::Spec& spec, const spec::Case& c, std::uint64_t seed, const Arrangement& arrangement) {
  Call call;
  call.spec = &spec;
  call.label = fmt::format("{} case {} ({}), seed {}, {}{}", spec.kernel, c.name, describe(c), seed, arrangement.layout.text(),
                           arrangement.other_shapes ? ", other shapes" : "");
  call.attributes = c.attributes;
  const spec::Case sized = with_derived_dims(spec, c, seed);
  const spec::CallFacts usual = spec::facts_of(spec, sized);
  const spec::Binding bound = arrangement.other_shapes ? spec::bind(spec, usual) : spec::Binding{};
  for (const spec::TensorSpec& tensor : spec.tensors) {
    const auto facts = usual.tensors.find(tensor.name);
    if (facts == usual.tensors.end()) continue;
    std::vector<std::int64_t> shape = arrangement.other_shapes ? choose_shape(tensor, bound, seed) : facts->second.shape;
    if (tensor.output) {
      call.outputs.push_back(make_output(tensor, facts->second.type, std::move(shape), arrangement.layout, seed));
      continue;
    }
    Layout layout = is_host_data(tensor.fill) ? Layout{} : arrangement.layout;
    layout.broadcast = layout.broadcast && tensor.updated_as.empty();
    Rng rng = Rng::stream(seed, "layout of " + tensor.name);
    call.inputs.emplace_back(tensor.name, facts->second.type, std::move(shape), layout, &rng);
    if (const auto& fill = fill_of(tensor, c); !is_related(fill)) fill_input(call.inputs.back(), fill, sized.dims, seed);
  }
  call.rebind();
  fill_related(
      call, [&](const spec::TensorSpec& tensor) { return fill_of(tensor, c); }, seed);
  complete(call);
  return call;
}

spec::CallFacts facts_of_case(const spec::Spec& spec, const spec::Case& c, std::uint64_t seed) {
  return spec::facts_of(spec, with_derived_dims(spec, c, seed));
}

Call make_call(const spec::Spec& spec, const spec::CallFacts& facts, std::uint64_t seed) {
  Call call;
  call.spec = &spec;
  call.label = fmt::format("{} on random data, seed {}", spec.kernel, seed);
  call.attributes = facts.attributes;
  auto without_data = facts;
  for (auto& [name, tensor] : without_data.tensors) tensor.host_data = nullptr, tensor.address = 0;
  const auto bound = spec::bind(spec, without_data);
  std::map<std::string, spec::Value> dims;
  for (const auto& [name, size] : bound.dims) dims[name] = size;
  std::vector<std::pair<std::size_t, const spec::TensorSpec*>> offsets;
  for (const auto& tensor : spec.tensors) {
    const auto given = facts.tensors.find(tensor.name);
    if (given == facts.tensors.end()) continue;
    auto& list = tensor.output ? call.outputs : call.inputs;
    list.emplace_back(tensor.name, given->second.type, given->second.shape, given->second.strides);
    if (tensor.output) continue;
    if (!is_related(tensor.fill)) fill_input(list.back(), tensor.fill, dims, seed);
    if (is_host_data(tensor.fill)) offsets.emplace_back(list.size() - 1, &tensor);
  }
  for (std::uint64_t attempt = 1;; ++attempt) try {
      call.rebind();
      fill_related(
          call, [](const spec::TensorSpec& tensor) { return tensor.fill; }, seed);
      spec::check_live_requirements(call.binding);
      complete(call);
      return call;
    } catch (const spec::CallError&) {
      if (offsets.empty() || attempt == attempts_at_offsets) throw;
      for (const auto& [index, tensor] : offsets) fill_input(call.inputs[index], tensor->fill, dims, seed + attempt);
    }
}

Call make_call(const spec::Spec& spec, std::map<std::string, spec::Value> attributes, std::vector<HostTensor> inputs,
               const std::vector<std::string>& outputs) {
  Call call;
  call.spec = &spec;
  call.label = spec.kernel + " on given tensors";
  call.attributes = std::move(attributes);
  call.inputs = std::move(inputs);
  call.rebind();
  for (const spec::TensorSpec& tensor : spec.tensors) {
    if (!tensor.output || (tensor.optional && std::find(outputs.begin(), outputs.end(), tensor.name) == outputs.end())) continue;
    const spec::TensorFacts facts = spec::output_facts(call.binding, tensor);
    call.outputs.push_back(make_output(tensor, facts.type, facts.shape, Layout{}, 0));
  }
  copy_updated(call);
  call.rebind();
  return call;
}

}  // namespace ejk::reference
