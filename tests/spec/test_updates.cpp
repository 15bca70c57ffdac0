// Outputs that are an input's memory ("updates"), and outputs for the gradient alone: what the checker says of them, and what binding
// allows.
#include <gtest/gtest.h>

#include "spec/call/binding.hpp"
#include "spec/check/check_names.hpp"
#include "spec/read/loader.hpp"
#include "spec/render/entry_points.hpp"

namespace ejk::spec::updates_test {
namespace {

// A recurrence: outputs, launch arguments and gradient as each test wants them.
std::string scan_json(const std::string& outputs, const std::string& arguments = R"("x", "state", "out")", const std::string& more = "") {
  return R"json({ "kernel": "scan", "doc": "Sums.", "dims": {"N": "rows", "C": "features"}, "types": {"E": ["f32", "bf16"]},
  "attributes": [],
  "inputs": [
    {"name": "x", "type": "E", "shape": ["N", "C"], "doc": "d"}, {"name": "bias", "type": "E", "shape": ["N", "C|1"], "optional": true, "doc": "d"},
    {"name": "state", "type": "f32", "shape": ["N", "C"], "doc": "d"}],
  "outputs": [)json" +
         outputs + R"json(], )json" + more + R"json(
  "cost": {"flops": "N", "bytes": "N"},
  "variants": [{"name": "plain", "archs": ["cpu:generic"], "template": "scan/scan.cpu.cpp", "specialize": {"E": "E"}, "supports": "not given(bias)",
    "launches": [{"entry": "scan", "grid": ["N"], "args": [)json" +
         arguments + R"json(]}]}],
  "cases": [], "tolerance": {"f32": 1e-5, "bf16": 1e-2} })json";
}

const std::string out = R"({"name": "out", "type": "E", "shape": ["N", "C"], "doc": "d"}, )";

std::string faults_of(const std::string& text) {
  std::vector<Fault> faults;
  const auto spec = load_spec("scan.json", text, faults);
  if (spec) check_contract(*spec, faults);
  Arch generic;
  generic.name = "generic", generic.platform = "cpu";
  if (spec) check_variant_names(*spec, spec->variants[0], {{"cpu:generic", generic}}, faults);
  std::string all;
  for (const Fault& fault : faults) all += fault.where + ": " + fault.sentence + "\n";
  return all;
}

std::string fault_of_output(const std::string& output) { return faults_of(scan_json(out + output)); }

Spec loaded(const std::string& text) {
  std::vector<Fault> faults;
  auto spec = load_spec("scan.json", text, faults);
  if (!spec || !faults.empty()) throw SpecError(faults);
  return *std::move(spec);
}

TEST(Updates, AnOutputIsAnInputsMemoryUnderItsNameOrAnother) {
  for (const std::string name : {"state", "final_state"}) {
    const Spec spec = loaded(scan_json(out + R"({"name": ")" + name + R"(", "updates": "state", "doc": "d"})"));
    ASSERT_EQ(spec.tensors.size(), 4U);  // x, bias, state, out
    EXPECT_EQ(spec.tensor("state")->updated_as, name);
    EXPECT_TRUE(spec.tensor("state")->written() && !spec.tensor("state")->output && !spec.tensor("x")->written());
    ASSERT_EQ(spec.outputs.size(), 2U);
    EXPECT_EQ(spec.outputs[0].tensor(), "out");
    EXPECT_EQ(spec.outputs[1].name, name);
    EXPECT_EQ(spec.outputs[1].tensor(), "state");
  }
}

TEST(Updates, TypeAndShapeMayBeSaidAndMustAgree) {
  EXPECT_EQ(fault_of_output(R"({"name": "end", "updates": "state", "type": "f32", "shape": ["N", "C"], "doc": "d"})"), "");
  EXPECT_EQ(fault_of_output(R"({"name": "end", "updates": "state", "type": "E", "doc": "d"})"),
            "/outputs/1/type: 'end' is the memory of 'state', whose type is 'f32'; say that type or leave it out\n");
  EXPECT_EQ(fault_of_output(R"({"name": "end", "updates": "state", "shape": ["C", "N"], "doc": "d"})"),
            "/outputs/1/shape: 'end' is the memory of 'state' and has its shape; say that shape or leave it out\n");
}

TEST(Updates, FaultsNameWhatIsWrong) {
  EXPECT_EQ(fault_of_output(R"({"name": "end", "updates": "sate", "doc": "d"})"),
            "/outputs/1/updates: 'sate' is no input; did you mean 'state'?\n");
  EXPECT_NE(fault_of_output(R"({"name": "end", "updates": "out", "doc": "d"})").find("/outputs/1/updates: 'out' is no input"),
            std::string::npos);
  EXPECT_EQ(fault_of_output(R"({"name": "end", "updates": "bias", "doc": "d"})"),
            "/outputs/1/updates: 'bias' may be broadcast along `C|1`, so it cannot be updated; give it the shape of what is written\n");
  EXPECT_EQ(fault_of_output(R"({"name": "end", "updates": "state", "doc": "d"}, {"name": "later", "updates": "state", "doc": "d"})"),
            "/outputs/2/updates: 'state' is updated already, by the output 'end'\n");
  EXPECT_NE(fault_of_output(R"({"name": "x", "updates": "state", "doc": "d"})").find("the name 'x' is already taken by the input"),
            std::string::npos);
  EXPECT_NE(fault_of_output(R"({"name": "end", "updates": "state", "optional": true, "doc": "d"})").find("optional"), std::string::npos);
}

TEST(Updates, LaunchesAndExpressionsSayTheInputsName) {
  const std::string end = R"({"name": "end", "updates": "state", "doc": "d"})";
  const std::string said = "'end' is the memory of 'state', which it updates; say 'state'";
  EXPECT_EQ(faults_of(scan_json(out + end, R"("x", "end", "out")")), "/variants/0/launches/0/args/1: " + said + "\n");
  EXPECT_EQ(faults_of(scan_json(out + end, R"--("x", "state", "out", "stride(end, 0)")--")),
            "/variants/0/launches/0/args/3: stride(end): " + said + "\n");
}

CallFacts facts(std::uintptr_t x, std::uintptr_t state, std::vector<std::int64_t> strides = {4, 1}) {
  CallFacts facts;
  facts.tensors["x"] = {DType::f32, {2, 4}, {4, 1}, 64, nullptr, x};
  facts.tensors["state"] = {DType::f32, {2, 4}, std::move(strides), 64, nullptr, state};
  facts.tensors["out"] = {DType::f32, {2, 4}, {4, 1}, 64, nullptr, 4096};
  return facts;
}

std::string refused(const CallFacts& facts) {
  try {
    bind(loaded(scan_json(out + R"({"name": "state", "updates": "state", "doc": "d"})")), facts);
  } catch (const CallError& error) {
    return error.what();
  }
  return "";
}

TEST(Updates, WhatIsUpdatedOverlapsNothing) {
  EXPECT_EQ(refused(facts(64, 1024)), "");
  EXPECT_EQ(refused(facts(1024, 1024)), "scan: updated input state overlaps input x in memory, expected memory of its own");
  EXPECT_EQ(refused(facts(64, 4096 + 28)), "scan: updated input state overlaps output out in memory, expected memory of its own");
  EXPECT_EQ(refused(facts(64, 1024, {0, 1})),
            "scan: updated input state has shape [2, 4] and strides [0, 1]: its elements overlap, expected memory of its own for each");
}

const std::string saved = R"({"name": "saved", "type": "f32", "shape": ["N"], "for": "gradient", "doc": "d"})";
const std::string gradient = R"("gradient": {"kernel": "scan_bwd"},)";

TEST(ForGradient, IsNoOutputOfCallers) {
  const Spec spec = loaded(scan_json(out + saved, R"("x", "state", "out", "saved")", gradient));
  ASSERT_EQ(spec.outputs.size(), 2U - 1U);
  EXPECT_EQ(spec.outputs[0].name, "out");
  EXPECT_TRUE(spec.tensor("saved")->output && spec.tensor("saved")->optional && spec.tensor("saved")->for_gradient);
}

TEST(ForGradient, FaultsNameWhatIsWrong) {
  EXPECT_EQ(faults_of(scan_json(out + saved)), "/outputs/1/for: the kernel has no 'gradient', so nobody takes 'saved'\n");
  EXPECT_EQ(faults_of(scan_json(saved, R"("x", "state", "saved")", gradient)),
            "/outputs: every output is for the gradient alone; a kernel has at least one for its callers\n");
  const std::string other = R"({"name": "saved", "type": "f32", "shape": ["N"], "for": "training", "doc": "d"})";
  EXPECT_EQ(faults_of(scan_json(out + other, R"("x", "state", "out")", gradient)),
            "/outputs/1/for: an output is for callers, or for \"gradient\" alone; found 'training'\n");
  const std::string optional = R"({"name": "saved", "type": "f32", "shape": ["N"], "for": "gradient", "optional": true, "doc": "d"})";
  EXPECT_EQ(faults_of(scan_json(out + optional, R"("x", "state", "out")", gradient)),
            "/outputs/1/for: an output for the gradient is made where a gradient will be taken, and only there: drop 'optional'\n");
}

}  // namespace
}  // namespace ejk::spec::updates_test
