// ejk.h: calls by name, and what is told about them.
#include <nlohmann/json.hpp>

#include "backends/cuda/nvrtc.hpp"
#include "c_api/border.hpp"
#include "ejk/label.hpp"
#include "ejk/library.hpp"
#include "execute/dlpack.hpp"
#include "execute/facts.hpp"

namespace {

using namespace ejk;
using namespace ejk::c_api;

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
    if (!rank || !shape || !dtype_code || !dtype_bits) bad(handle.name + ": a place for the output's rank, shape, code or bits is NULL");
    const auto arguments = positional(handle, views_of(kernel, inputs, count), attributes_of(kernel, attributes));
    const auto* told = handle.spec->output(required(output, "the output's name"));
    const auto* tensor = handle.spec->tensor(told ? told->tensor() : output);
    if (!tensor || !(told || tensor->output)) bad(std::string(kernel) + ": no output '" + output + "'");
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

ejk_status ejk_add_toolkit(const char* path) {
  return guarded_call([&]() -> Status {
    cuda::add_toolkit(required(path, "the toolkit's path"));
    return {};
  });
}

ejk_status ejk_set_threads(int32_t threads) {
  return guarded_call([&] { return set_threads(threads); });
}

ejk_status ejk_set_jit(const char* jit) {
  return guarded_call([&]() -> Status {
    const std::string how = required(jit, "the text that says what becomes of missing images");
    if (how != "on" && how != "off" && how != "background") bad("jit is '" + how + "'; expected on, off or background");
    return set_jit(how == "on" ? Jit::on : how == "off" ? Jit::off : Jit::background);
  });
}

int32_t ejk_wait_for_images(int64_t milliseconds) { return wait_for_images(std::chrono::milliseconds(milliseconds)); }

const char* ejk_last_error(void) { return last_error().c_str(); }

const char* ejk_version(void) { return EJK_VERSION; }

}  // extern "C"
