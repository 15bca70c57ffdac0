// Inputs that a call updates: by name, by position, in batches and in keys; on the CPU and the emulator against the reference; and the
// sources for CUDA and HIP.
#include <nlohmann/json.hpp>

#include "backends/backend.h"
#include "ejk/batch.hpp"
#include "ejk/ejk.h"
#include "ejk/library.hpp"
#include "emulator/simt.hpp"
#include "execute/library_state.hpp"
#include "execute/store_fixture.hpp"
#include "reference/reference.hpp"
#include "spec/read/catalogue.hpp"
#include "spec/render/image.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

const std::string store = test::source_dir() + "/tests/in_place/data";

class InPlace : public StoreTest {
 protected:
  void SetUp() override { ASSERT_TRUE(add_store(store)); }

  // 1 step of 1 sequence of 4 channels: state = state / 2 + x.
  std::map<std::string, TensorView> tensors() { return {{"x", x.view()}, {"state", state.view()}, {"out", out.view()}}; }
  Tensor x{DType::f32, {1, 1, 4}}, out{DType::f32, {1, 1, 4}}, state{DType::f32, {1, 4}}, other{DType::f32, {1, 4}};
  void fill() {
    for (int i = 0; i < 4; ++i) x.data<float>()[i] = static_cast<float>(i), state.data<float>()[i] = 10.0f;
  }
};

TEST_F(InPlace, TheOutputNeedNotBeGivenAndIsThatMemory) {
  fill();
  ASSERT_EQ(message_of(call("leaky_sum", tensors(), {})), "");
  EXPECT_EQ(state.data<float>()[3], 8.0f);
  auto all = tensors();
  all["final_state"] = state.view();
  ASSERT_EQ(message_of(call("leaky_sum", all, {})), "");
  EXPECT_EQ(state.data<float>()[3], 7.0f);
  all["final_state"] = other.view();
  EXPECT_EQ(
      message_of(call("leaky_sum", all, {})),
      "leaky_sum: output final_state is the memory of the input state, updated; other memory is given, expected that same memory, or none");
  all.erase("state");
  EXPECT_NE(message_of(call("leaky_sum", all, {})).find("state is not given"), std::string::npos);
  EXPECT_EQ(state.data<float>()[3], 7.0f);
}

TEST_F(InPlace, OverlapsAreFoundInCallsSeenBeforeToo) {
  fill();
  ASSERT_EQ(message_of(call("leaky_sum", tensors(), {})), "");
  auto all = tensors();
  const std::array<std::int64_t, 2> pair{1, 4};
  all["state"] = TensorView(x.data<float>(), DType::f32, pair);
  EXPECT_EQ(message_of(call("leaky_sum", all, {})),
            "leaky_sum: updated input state overlaps input x in memory, expected memory of its own");
  all["state"] = TensorView(out.data<float>(), DType::f32, pair);
  EXPECT_EQ(message_of(call("leaky_sum", all, {})),
            "leaky_sum: updated input state overlaps output out in memory, expected memory of its own");
}

TEST_F(InPlace, APreparedCallTakesTheOtherNameIfItIsTheSameMemory) {
  fill();
  const std::int64_t three[] = {1, 1, 4}, two[] = {1, 4};
  ejk_tensor x_tensor{x.data<float>(), {1, 0}, 3, {2, 32, 1}, three, nullptr, 0}, out_tensor = x_tensor;
  ejk_tensor state_tensor{state.data<float>(), {1, 0}, 2, {2, 32, 1}, two, nullptr, 0};
  out_tensor.data = out.data<float>();
  const ejk_argument arguments[] = {{"final_state", &state_tensor}, {"x", &x_tensor}, {"state", &state_tensor}, {"out", &out_tensor}};
  ejk_prepared* prepared = nullptr;
  ASSERT_EQ(ejk_prepare("leaky_sum", arguments, 4, nullptr, nullptr, &prepared), EJK_OK) << ejk_last_error();
  void* data[] = {state.data<float>(), x.data<float>(), state.data<float>(), out.data<float>()};
  EXPECT_EQ(ejk_run(prepared, data, nullptr, nullptr), EJK_OK) << ejk_last_error();
  EXPECT_EQ(state.data<float>()[3], 8.0f);
  data[0] = other.data<float>();
  EXPECT_EQ(ejk_run(prepared, data, nullptr, nullptr), EJK_BAD_INPUT);
  EXPECT_EQ(std::string(ejk_last_error()),
            "leaky_sum: pointer 0 is another name of state, which the call updates, but not the address of pointer 2; give the same");
  EXPECT_EQ(state.data<float>()[3], 8.0f);
  ejk_release(prepared);

  std::int32_t rank = 0;
  std::int64_t shape[8] = {};
  std::uint8_t code = 0, bits = 0;
  ASSERT_EQ(ejk_output("leaky_sum", arguments + 1, 2, nullptr, "final_state", &rank, shape, &code, &bits), EJK_OK) << ejk_last_error();
  EXPECT_EQ(rank, 2);
  EXPECT_EQ(shape[1], 4);
}

TEST_F(InPlace, BatchesWriteTheirOwnParts) {
  fill();
  const TensorView xs(x.data<float>(), DType::f32, std::array<std::int64_t, 4>{2, 1, 1, 2});
  const TensorView outs(out.data<float>(), DType::f32, std::array<std::int64_t, 4>{2, 1, 1, 2});
  const TensorView states(state.data<float>(), DType::f32, std::array<std::int64_t, 3>{2, 1, 2});
  const auto report = vmap_with_config("leaky_sum", {{"x", xs}, {"out", outs}, {"state", states}, {"final_state", states}});
  ASSERT_EQ(message_of(report), "");
  EXPECT_EQ(report->made, 1) << report->why_not_folded;
  EXPECT_EQ(state.data<float>()[3], 8.0f);
  const TensorView one(state.data<float>(), DType::f32, std::array<std::int64_t, 2>{1, 2});
  EXPECT_NE(message_of(vmap_with_config("leaky_sum", {{"x", xs}, {"out", outs}, {"state", one}}, {}, {{"state", std::nullopt}}))
                .find("updated input state must be mapped: each call writes its own part"),
            std::string::npos);
}

// What the forward pass saves, temporaries of the steps, and a sum.
TEST_F(InPlace, AGradientsCallsComeInOrderWithTheirTemporaries) {
  const std::int64_t dims[] = {5, 7};
  const ejk_tensor x_tensor{nullptr, {1, 0}, 2, {2, 32, 1}, dims, nullptr, 0};
  const ejk_argument arguments[] = {{"x", &x_tensor}};
  char* text = nullptr;
  ASSERT_EQ(ejk_gradient("rms_scale", arguments, 1, nullptr, &text), EJK_OK) << ejk_last_error();
  const auto calls = nlohmann::json::parse(text)["calls"];
  ejk_free(text);
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[0]["tensors"], (nlohmann::json{{"a", "dout"}, {"b", "x"}, {"out", "dots"}}));
  EXPECT_EQ(calls[0]["shapes"].dump(), R"({"out":["f32",[5]]})");
  EXPECT_EQ(calls[1]["tensors"], (nlohmann::json{{"x", "dout"}, {"factors", "factors"}, {"out", "dx"}}));
  EXPECT_EQ(calls[2]["tensors"], (nlohmann::json{{"x", "x"}, {"factors", "factors"}, {"dots", "dots"}, {"out", "dx"}}));
  EXPECT_EQ(calls[2]["shapes"].dump(), "{}");
}

// On the copies that a reference's call keeps of updated inputs.
void run_on(reference::Call& call, Device device) {
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : call.launched()) {
    views[name] = tensor->view();
    views[name].device = device;
  }
  const auto status = ejk::call(call.spec->kernel, views, call.attributes);
  if (!status) throw std::runtime_error(status.error().message);
}

void verify_on(Device device) {
  auto catalogue = spec::Catalogue::open(store + "/specs", store + "/templates");
  for (const std::string kernel : {"store_rows", "leaky_sum"}) {
    const auto spec = catalogue.kernel(kernel);
    const auto& reference = *reference::find_reference(kernel);
    reference::Rng rng(7);
    for (int i = 0; i < 12; ++i) {
      const auto layout = i % 3 ? reference::random_layout(rng) : reference::Layout{};
      auto call = reference::make_call(*spec, reference.random_case(rng), static_cast<std::uint64_t>(i), {layout, false});
      const auto results = reference::verify_call(reference, call, [&](reference::Call& each) { run_on(each, device); });
      EXPECT_EQ(reference::first_failure(results), "") << call.label;
    }
  }
}

TEST_F(InPlace, TheResultIsTheReferencesOnTheCpu) { verify_on({}); }

TEST_F(InPlace, TheResultIsTheReferencesOnTheEmulator) {
  add_backend(simt_backend());
  for (const int device : {0, 1, 2}) verify_on({DeviceType::extension, device});
}

// Every kernel's GPU source, by the compilers that are here.
TEST_F(InPlace, SourcesCompileForCudaAndHip) {
  const auto catalogue = spec::Catalogue::open(store + "/specs", store + "/templates");
  int compiled = 0;
  for (const std::string arch_name : {"cuda:sm_80", "cuda:sm_90a", "hip:gfx90a", "hip:gfx1100"}) {
    const auto& arch = *catalogue.arch(arch_name);
    auto& backend = *backend_of(arch.platform);
    if (std::string why_not; !backend.can_compile(arch, why_not)) continue;  // no compiler of that platform here
    for (const std::string kernel : {"store_rows", "leaky_sum", "rms_scale"}) {
      const auto spec = catalogue.kernel(kernel);
      const auto& variant = *spec->variant("threads");
      const auto binding = spec::bind(*spec, spec::facts_of(*spec, spec->cases.at(0)));
      const auto image =
          spec::make_image(*spec, variant, arch, binding, *spec::heuristic_config(variant, arch, binding), catalogue.templates());
      if (kernel == "store_rows") {
        EXPECT_NE(image.source.find("const float* rows, float* pages"), std::string::npos) << image.source;
      }
      const auto result = backend.compile(image, arch);
      EXPECT_TRUE(result.ok) << image.id << "\n" << result.log;
      ++compiled;
    }
  }
  if (!compiled) GTEST_SKIP() << "neither NVRTC nor a compiler for HIP is here";
}

}  // namespace
}  // namespace ejk
