// Two small kernels and calls of them, for the tests of bindings.
#pragma once
#include <gtest/gtest.h>

#include "spec/call/binding.hpp"
#include "spec/read/loader.hpp"

namespace ejk::spec::binding_test {

inline const char* const attend_json = R"json({ "kernel": "attend", "doc": "A small attention.",
  "dims": {"B": "batch", "Sq": "queries", "Sk": "keys", "Hq": "query heads", "Hkv": "kv heads", "D": "head dim",
           "T": "tokens", "N": "sequences", "C": "rest", "G": {"doc": "group", "value": "Hq / Hkv"},
           "R": {"doc": "chunks", "value": "chunks(cum, 4)"}},
  "types": {"E": ["f32", "bf16"], "Eb": ["f32", "f16"]},
  "forms": [{"name": "packed", "when": "given(cum)", "doc": "End to end."}, {"name": "batched", "when": "true", "doc": "One length."}],
  "attributes": [
    {"name": "causal", "type": "bool", "default": false, "doc": "d"},
    {"name": "window", "type": "int", "default": -1, "doc": "d"},
    {"name": "scale", "type": "float", "default": "1 / sqrt(D)", "varies": true, "doc": "d"},
    {"name": "offset", "type": "int", "optional": true, "doc": "d"},
    {"name": "layout", "type": "string", "default": "HND", "choices": ["HND", "NHD"], "doc": "d"}],
  "inputs": [
    {"name": "q", "type": "E", "shape": {"batched": ["B", "Sq", "Hq", "D"], "packed": ["T", "Hq", "D"]}, "doc": "d"},
    {"name": "k", "type": "E", "shape": {"batched": ["B", "Sk", "Hkv", "D"], "packed": ["T", "Hkv", "D"]}, "doc": "d"},
    {"name": "bias", "type": "Eb", "optional": true, "shape": {"batched": ["B|1", "Hq|1", "Sq", "Sk"]}, "doc": "d"},
    {"name": "mask", "type": "bool", "optional": true, "shape": {"batched": ["B", "Sk"]}, "doc": "d"},
    {"name": "sinks", "type": "f32", "optional": true, "shape": {"any": [["Hq", "C"], ["C"]]}, "doc": "d"},
    {"name": "cum", "type": "i32", "optional": true, "fill": "offsets T", "shape": {"packed": ["N + 1"]}, "doc": "d"}],
  "outputs": [
    {"name": "out", "type": "E", "shape": {"batched": ["B", "Sq", "Hq", "D"], "packed": ["T", "Hq", "D"]}, "doc": "d"},
    {"name": "pairs", "type": "f32", "optional": true, "shape": {"batched": ["B", "ceil_div(Sq, 2)"]}, "doc": "d"}],
  "requires": [
    {"that": "Hkv > 0 ? Hq % Hkv == 0 : Hq == 0", "else": "Hq must be a multiple of Hkv; found Hq = ${Hq}, Hkv = ${Hkv}"},
    {"that": "scale >= 0", "else": "scale must not be negative; found ${scale}"},
    {"that": "first(cum) == 0", "reads": "cum", "else": "cum must start at 0; found ${first(cum)}"},
    {"that": "nondecreasing(cum)", "reads": "cum", "else": "cum must not decrease"},
    {"that": "last(cum) <= T", "reads": "cum", "else": "cum must end within q's ${T} tokens; found ${last(cum)}"}],
  "cost": {"flops": "1", "bytes": "1"}, "variants": [],
  "cases": [{"name": "one", "doc": "d", "E": "bf16", "B": 2, "Sq": 4, "Sk": 8, "Hq": 6, "Hkv": 2, "D": 64, "given": ["mask"]}],
  "tolerance": {
  "f32" : 1e-5, "bf16" : 8e-3
}
})json";

inline const char* const pool_json = R"json({ "kernel": "pool", "doc": "Trailing dims.",
  "dims": {"S": "tokens", "C": "features"}, "types": {"E": ["f32"]},
  "inputs": [{"name": "x", "type": "E", "shape": ["S", "C..."], "doc": "d"}],
  "outputs": [{"name": "out", "type": "E", "shape": ["C..."], "doc": "d"}],
  "cost": {"flops": "1", "bytes": "1"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5} })json";

inline Spec loaded(const char* text) {
  std::vector<Fault> faults;
  auto spec = load_spec("specs/test.json", text, faults);
  for (const Fault& fault : faults) ADD_FAILURE() << fault.text();
  return spec.value_or(Spec{});
}

inline const Spec& attend() {
  static const Spec spec = loaded(attend_json);
  return spec;
}
inline const Spec& pool() {
  static const Spec spec = loaded(pool_json);
  return spec;
}

inline TensorFacts tensor(DType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {}) {
  TensorFacts facts;
  facts.type = type;
  facts.shape = std::move(shape);
  facts.strides = std::move(strides);
  return facts;
}

inline CallFacts batched() {
  CallFacts call;
  call.tensors["q"] = tensor(DType::f32, {2, 4, 6, 64});
  call.tensors["k"] = tensor(DType::f32, {2, 8, 2, 64});
  call.tensors["out"] = tensor(DType::f32, {2, 4, 6, 64});
  return call;
}

inline CallFacts packed(const std::vector<std::int32_t>& cum) {
  CallFacts call;
  call.tensors["q"] = tensor(DType::f32, {10, 6, 64});
  call.tensors["k"] = tensor(DType::f32, {10, 2, 64});
  call.tensors["cum"] = tensor(DType::i32, {static_cast<std::int64_t>(cum.size())});
  call.tensors["cum"].host_data = cum.data();
  return call;
}

inline std::string error_of(const Spec& spec, CallFacts call) {
  try {
    const Binding binding = bind(spec, std::move(call));
    check_live_requirements(binding);
  } catch (const CallError& e) {
    EXPECT_EQ(e.kind(), CallError::Kind::bad_input);
    return e.what();
  }
  return "no error";
}

inline Value value_of(const Binding& binding, const char* expression) { return Expression::parse(expression).evaluate(binding); }

}  // namespace ejk::spec::binding_test
