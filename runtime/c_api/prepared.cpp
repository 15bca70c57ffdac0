// ejk_prepare and ejk_run: a call by position whose names, shapes and attributes were read once.
#include <array>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "backends/cpu/lent_executor.hpp"
#include "c_api/border.hpp"
#include "execute/facts.hpp"
#include "execute/gradient_ahead.hpp"

using namespace ejk;
using namespace ejk::c_api;

struct ejk_prepared {
  const KernelHandle* kernel = nullptr;
  std::map<std::string, Value> values;  // owns the text of attributes
  Positional call;
  std::vector<std::size_t> order;                         // of each pointer given to ejk_run: its tensor, or absent
  std::vector<std::pair<std::size_t, std::size_t>> same;  // pointers of an updated input: by the output's name, by its own
  std::vector<std::size_t> varying;                       // attributes
  std::optional<std::string> config;
  std::string differentiated;  // inputs, separated by commas; empty: no gradient is expected
  static constexpr std::size_t absent = static_cast<std::size_t>(-1);
};

namespace {

constexpr std::size_t most_tensors = 64, most_attributes = 64;

std::size_t position(const KernelHandle& kernel, std::string_view name) {
  const auto& tensors = kernel.spec->tensors;
  return static_cast<std::size_t>(std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; }) -
                                  tensors.begin());
}

std::unique_ptr<ejk_prepared> prepare(const char* kernel, const ejk_argument* tensors, std::size_t count, const char* attributes,
                                      const char* config) {
  auto prepared = std::make_unique<ejk_prepared>();
  prepared->kernel = &require_kernel(required(kernel, "the kernel's name"));
  const auto& spec = *prepared->kernel->spec;
  if (spec.tensors.size() > most_tensors || spec.attributes.size() > most_attributes)
    throw CodedError(ErrorCode::internal, spec.kernel + " has more tensors or attributes than a prepared call holds");
  prepared->values = attributes_of(kernel, attributes);
  prepared->call = positional(*prepared->kernel, views_of(kernel, tensors, count), prepared->values);
  for (std::size_t i = 0; i < count; ++i) {
    const auto* output = tensors[i].tensor ? spec.output(tensors[i].name) : nullptr;
    const bool other_name = output && !spec.tensor(output->name);
    prepared->order.push_back(tensors[i].tensor && !other_name ? position(*prepared->kernel, tensors[i].name) : ejk_prepared::absent);
    for (std::size_t input = 0; other_name && input < count; ++input)
      if (output->updates == tensors[input].name) prepared->same.emplace_back(i, input);
  }
  for (std::size_t i = 0; i < spec.attributes.size(); ++i)
    if (spec.attributes[i].varies) prepared->varying.push_back(i);
  if (const auto cfg = config_of(config)) prepared->config = to_json(*cfg);
  return prepared;
}

AttributeValue value_of(const ejk_value& value) {
  switch (value.kind) {
    case 0:
      return {};
    case 1:
      return AttributeValue::of(value.boolean != 0);
    case 2:
      return AttributeValue::of(value.integer);
    case 3:
      return AttributeValue::of(value.floating);
    default:
      bad("a varying attribute's kind is " + std::to_string(value.kind) +
          "; expected 0 (absent), 1 (boolean), 2 (integer) or 3 (floating)");
  }
}

// Room for `most` of T on the stack, of which a call makes only those it has.
template <class T, std::size_t most>
class Room {
 public:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  T& put(std::size_t i, const T& value) { return *std::construct_at(at(i), value); }
  T& operator[](std::size_t i) { return *std::launder(at(i)); }
  T* begin() { return at(0); }

 private:
  T* at(std::size_t i) { return reinterpret_cast<T*>(bytes_) + i; }
  alignas(T) std::byte bytes_[most * sizeof(T)];
};

// The tensors are told by position: the pointer's number is all there is to say which.
[[noreturn, gnu::noinline]] void refuse_other_memory(const ejk_prepared& prepared, std::size_t output) {
  const auto input =
      std::find_if(prepared.same.begin(), prepared.same.end(), [&](const auto& each) { return each.first == output; })->second;
  bad(prepared.kernel->name + ": pointer " + std::to_string(output) + " is another name of " +
      prepared.kernel->spec->tensors[prepared.order[input]].name + ", which the call updates, but not the address of pointer " +
      std::to_string(input) + "; give the same");
}

// On the caller's stack: threads share the prepared call.
template <class F>
Status with_arguments(const ejk_prepared& prepared, void* const* data, const ejk_value* varying, F&& f) {
  const auto tensor_count = prepared.call.storage.size(), attribute_count = prepared.call.attributes.size();
  Room<TensorView, most_tensors> views;
  std::array<const TensorView*, most_tensors> tensors;
  Room<AttributeValue, most_attributes> attributes;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    const auto& view = prepared.call.storage[i];
    tensors[i] = view.given() ? &views.put(i, view) : nullptr;
  }
  for (std::size_t i = 0; i < prepared.order.size(); ++i)
    if (prepared.order[i] != ejk_prepared::absent) views[prepared.order[i]].data = data[i];
  for (const auto& [output, input] : prepared.same)
    if (data[output] != data[input]) refuse_other_memory(prepared, output);
  for (std::size_t i = 0; i < attribute_count; ++i) attributes.put(i, prepared.call.attributes[i]);
  if (varying)
    for (std::size_t i = 0; i < prepared.varying.size(); ++i) attributes[prepared.varying[i]] = value_of(varying[i]);
  return f(prepared.kernel, std::span(tensors.data(), tensor_count), std::span(attributes.begin(), attribute_count),
           prepared.config ? prepared.config->c_str() : nullptr);
}

void check_data(const ejk_prepared* prepared, void* const* data) {
  if (!prepared) bad("the prepared call is NULL");
  if (!data && !prepared->order.empty()) bad(prepared->kernel->name + ": the array of data pointers is NULL");
}

}  // namespace

extern "C" {

ejk_status ejk_prepare(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* config,
                       ejk_prepared** prepared) {
  return guarded_call([&]() -> Status {
    required(prepared, "the place for the prepared call");
    *prepared = prepare(kernel, tensors, count, attributes, config).release();
    return {};
  });
}

ejk_status ejk_run(const ejk_prepared* prepared, void* const* data, const ejk_value* varying, void* stream) {
  return ejk_run_in(prepared, data, varying, stream, nullptr, 0);
}

ejk_status ejk_run_in(const ejk_prepared* prepared, void* const* data, const ejk_value* varying, void* stream, void* workspace,
                      int64_t workspace_bytes) {
  return guarded_call([&] {
    check_data(prepared, data);
    const GradientExpected gradient(prepared->differentiated.empty() ? nullptr : prepared->differentiated.c_str());
    return with_arguments(*prepared, data, varying, [&](auto* kernel, auto tensors, auto attributes, const char* config) {
      return call(kernel, tensors, attributes, Stream{stream}, config, Workspace{workspace, workspace_bytes});
    });
  });
}

ejk_status ejk_run_on(const ejk_executor* executor, const ejk_prepared* prepared, void* const* data, const ejk_value* varying, void* stream,
                      void* workspace, int64_t workspace_bytes) {
  if (!executor) return ejk_run_in(prepared, data, varying, stream, workspace, workspace_bytes);
  if (executor->threads < 1 || !executor->schedule)
    return guarded_call([&]() -> Status {
      bad("the executor has " + std::to_string(executor->threads) + " threads and " + (executor->schedule ? "a" : "no") +
          " function that schedules; expected at least 1 and one");
    });
  LentExecutor lent(executor->threads, executor->schedule, executor->context);
  const UseCpuExecutor use(lent);
  return ejk_run_in(prepared, data, varying, stream, workspace, workspace_bytes);
}

ejk_status ejk_make_ready(const ejk_prepared* prepared, void* const* data, const ejk_value* varying, void* stream) {
  return guarded_call([&] {
    check_data(prepared, data);
    return with_arguments(*prepared, data, varying, [&](auto* kernel, auto tensors, auto attributes, const char* config) {
      return make_ready(kernel, tensors, attributes, Stream{stream}, config);
    });
  });
}

ejk_status ejk_expect_gradient(ejk_prepared* prepared, const char* inputs) {
  return guarded_call([&]() -> Status {
    required(prepared, "the prepared call")->differentiated = required(inputs, "the list of inputs");
    return {};
  });
}

void ejk_release(ejk_prepared* prepared) { delete prepared; }

}  // extern "C"
