// ejk.h: the C API over the C++ one.
#include <cstring>
#include <nlohmann/json.hpp>

#include "ejk/ejk.h"
#include "ejk/label.hpp"
#include "ejk/library.hpp"
#include "execute/dlpack.hpp"
#include "execute/facts.hpp"
#include "execute/guard.hpp"
#include "execute/library_state.hpp"

namespace {

using namespace ejk;

thread_local std::string last_error;

ejk_status report(const Error& error) {
  last_error = error.message;
  return static_cast<ejk_status>(error.code);
}

// Runs f, which returns a Status; keeps the error's words.
template <class F>
ejk_status guarded_call(F&& f) noexcept {
  const Status status = guarded([&]() -> Status { return f(); });
  if (!status) return report(status.error());
  last_error.clear();
  return EJK_OK;
}

[[noreturn]] void bad(const std::string& message) { throw spec::CallError(spec::CallError::Kind::bad_input, message); }

const char* required(const char* text, const char* what) {
  if (!text) bad(std::string(what) + " is NULL");
  return text;
}

std::map<std::string, TensorView> views_of(const char* kernel, const ejk_argument* tensors, std::size_t count) {
  if (count && !tensors) bad(std::string(kernel) + ": the array of tensors is NULL");
  std::map<std::string, TensorView> views;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = required(tensors[i].name, "a tensor's name");
    if (!tensors[i].tensor) continue;  // absent
    if (!views.emplace(name, view_of(kernel + (": " + name), *tensors[i].tensor)).second)
      bad(std::string(kernel) + ": tensor '" + name + "' is given twice");
  }
  return views;
}

std::map<std::string, Value> attributes_of(const char* kernel, const char* text) {
  std::map<std::string, Value> attributes;
  if (!text) return attributes;
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) bad(std::string(kernel) + ": attributes must be a JSON object such as {\"causal\": true}; found '" + text + "'");
  for (const auto& [name, node] : object.items()) {
    if (node.is_boolean())
      attributes.emplace(name, node.get<bool>());
    else if (node.is_number_integer())
      attributes.emplace(name, node.get<std::int64_t>());
    else if (node.is_number_float())
      attributes.emplace(name, node.get<double>());
    else if (node.is_string())
      attributes.emplace(name, node.get<std::string>());
    else if (!node.is_null())
      bad(std::string(kernel) + ": attribute '" + name + "' must be a number, a boolean, a string or null; found " + node.type_name());
  }
  return attributes;
}

std::optional<Config> config_of(const char* text) {
  if (!text) return std::nullopt;
  auto config = config_from_json(text);
  if (!config) bad(config.error().message);
  return *config;
}

// An output's shape may depend on data, which is read on the host only.
spec::TensorFacts shape_of_output(const spec::Binding& binding, const spec::TensorSpec& output) {
  try {
    return spec::output_facts(binding, output);
  } catch (const spec::ExpressionError& e) {
    bad(binding.spec->kernel + ": the shape of " + output.name + " cannot be told: " + e.what() + "; data on a device is not read");
  }
}

char* copied(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

Status give(Result<std::string> text, char** out) {
  if (!text) return text.error();
  *out = copied(*text);
  return {};
}

// A call by names whose tensors need no data.
Invocation invocation_of(const char* kernel, const ejk_argument* tensors, std::size_t count, const char* attributes) {
  Invocation invocation;
  invocation.kernel = required(kernel, "the kernel's name");
  const auto& handle = require_kernel(kernel);
  invocation.tensors = views_of(kernel, tensors, count);
  invocation.attributes = attributes_of(kernel, attributes);
  (void)positional(handle, invocation.tensors, invocation.attributes);  // throws: names that the kernel does not have
  invocation = handle.kernel_interface()->canonical(invocation);
  if (invocation.device.empty()) bad(std::string(kernel) + ": its tensors are on no device that ejk found; `ejk info` lists them");
  return invocation;
}

Stamp stamp_of(const char* text) {
  const std::string_view name = required(text, "the stamp");
  if (name != "hash" && name != "json") bad("the stamp is '" + std::string(name) + "'; expected hash or json");
  return name == "hash" ? Stamp::hash : Stamp::json;
}

}  // namespace

extern "C" {

ejk_status ejk_call(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* config,
                    void* stream) {
  return guarded_call([&] {
    required(kernel, "the kernel's name");
    const auto cfg = config_of(config);
    return call(kernel, views_of(kernel, tensors, count), attributes_of(kernel, attributes), Stream{stream}, cfg ? &*cfg : nullptr);
  });
}

ejk_status ejk_output(const char* kernel, const ejk_argument* inputs, size_t count, const char* attributes, const char* output,
                      int32_t* rank, int64_t* shape, uint8_t* dtype_code, uint8_t* dtype_bits) {
  return guarded_call([&]() -> Status {
    const auto& handle = require_kernel(required(kernel, "the kernel's name"));
    const auto arguments = positional(handle, views_of(kernel, inputs, count), attributes_of(kernel, attributes));
    const auto* tensor = handle.spec->tensor(required(output, "the output's name"));
    if (!tensor || !tensor->output) bad(std::string(kernel) + ": no output '" + output + "'");
    const auto binding = spec::bind(*handle.spec, facts_of(handle, arguments.tensors, arguments.attributes));
    spec::check_live_requirements(binding);
    const auto facts = shape_of_output(binding, *tensor);
    *rank = static_cast<int32_t>(facts.shape.size());
    std::copy(facts.shape.begin(), facts.shape.end(), shape);
    *dtype_code = dlpack_type(facts.type).code;
    *dtype_bits = dlpack_type(facts.type).bits;
    return {};
  });
}

ejk_status ejk_explain(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* config,
                       char** json) {
  return guarded_call([&] {
    required(kernel, "the kernel's name");
    const auto cfg = config_of(config);
    return give(explain(kernel, views_of(kernel, tensors, count), attributes_of(kernel, attributes), cfg ? &*cfg : nullptr), json);
  });
}

ejk_status ejk_label(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* stamp,
                     char** text) {
  return guarded_call([&] { return give(label(invocation_of(kernel, tensors, count, attributes), stamp_of(stamp)), text); });
}

ejk_status ejk_labels_in_hlo(const char* text, size_t length, char** json) {
  return guarded_call([&] {
    if (length) required(text, "the text");
    const auto labels = extract_labels_from_hlo_text({text, length});
    return give(nlohmann::json(labels).dump(), json);
  });
}

ejk_status ejk_record(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes) {
  return guarded_call([&] { return record_invocation(invocation_of(kernel, tensors, count, attributes)); });
}

ejk_status ejk_info(char** json) {
  return guarded_call([&] { return give(info(), json); });
}

void ejk_free(char* text) { std::free(text); }

ejk_status ejk_add_store(const char* path) {
  return guarded_call([&] { return add_store(required(path, "the store's path")); });
}

ejk_status ejk_set_threads(int32_t threads) {
  return guarded_call([&] { return set_threads(threads); });
}

const char* ejk_last_error(void) { return last_error.c_str(); }

const char* ejk_version(void) { return EJK_VERSION; }

}  // extern "C"
