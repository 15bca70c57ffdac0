// Calls whose data is not there yet: what they mean, what is chosen for them, and the call that then runs.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ejk/ejk.h"
#include "ejk/library.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

using nlohmann::json;

// Tensors of f32 by shape alone.
class Shapes {
 public:
  Shapes(std::initializer_list<std::pair<const char*, std::vector<std::int64_t>>> tensors) : tensors_(tensors) {
    for (const auto& [name, shape] : tensors_) views_.push_back({nullptr, {1, 0}, int(shape.size()), {2, 32, 1}, shape.data(), nullptr, 0});
    for (std::size_t i = 0; i < views_.size(); ++i) arguments_.push_back({tensors_[i].first, &views_[i]});
  }
  const ejk_argument* data() const { return arguments_.data(); }
  std::size_t size() const { return arguments_.size(); }

 private:
  std::vector<std::pair<const char*, std::vector<std::int64_t>>> tensors_;
  std::vector<ejk_tensor> views_;
  std::vector<ejk_argument> arguments_;
};

json parsed(ejk_status status, char* text) {
  EXPECT_EQ(status, EJK_OK) << ejk_last_error();
  if (status) return {};
  const auto result = json::parse(text);
  ejk_free(text);
  return result;
}

json bound(const char* kernel, const Shapes& shapes, const char* attributes = nullptr) {
  char* text = nullptr;
  const auto status = ejk_bind(kernel, shapes.data(), shapes.size(), attributes, &text);
  return parsed(status, text);
}

// The specs of the repository.
class CBind : public StoreTest {
 protected:
  void SetUp() override { ASSERT_EQ(ejk_add_store(test::source_dir().c_str()), EJK_OK) << ejk_last_error(); }
  const Shapes attention{{"q", {2, 5, 4, 64}}, {"k", {2, 7, 2, 64}}, {"v", {2, 7, 2, 32}}, {"bias", {1, 4, 5, 7}}};
};

TEST_F(CBind, TellsFormDimsAndOutputs) {
  const auto told = bound("flash_attention", attention);
  EXPECT_EQ(told["form"], "batched");
  EXPECT_EQ(told["dims"]["Sk"], 7);
  EXPECT_EQ(told["outputs"]["out"], json({{"type", "f32"}, {"shape", {2, 5, 4, 32}}}));
  EXPECT_EQ(told["outputs"]["lse"], json({{"type", "f32"}, {"shape", {2, 4, 5}}}));
}

TEST_F(CBind, TellsAlongWhichAxesCallsAreOne) {
  const auto batch = bound("flash_attention", attention)["batch"];
  EXPECT_EQ(batch["dim"], "B");
  EXPECT_EQ(batch["axes"], json({{"q", 0}, {"k", 0}, {"v", 0}, {"bias", 0}, {"out", 0}, {"lse", 0}, {"weights", 0}}));
  EXPECT_EQ(batch["or_one"], json({"bias"}));
  EXPECT_TRUE(bound("flash_attention", attention, R"({"dropout_prob": 0.5})")["batch"].is_null()) << "the spec's condition";
  const Shapes with_sinks{{"q", {2, 5, 4, 64}}, {"k", {2, 7, 4, 64}}, {"v", {2, 7, 4, 64}}, {"softmax_aux", {4, 1}}};
  EXPECT_TRUE(bound("flash_attention", with_sinks)["batch"]["axes"]["softmax_aux"].is_null());
}

TEST_F(CBind, AShapeThatOnlyDataTellsIsUnknown) {
  const std::int64_t x_shape[] = {6, 8}, ends_shape[] = {3};
  const ejk_tensor x{nullptr, {1, 0}, 2, {2, 32, 1}, x_shape, nullptr, 0}, ends{nullptr, {1, 0}, 1, {0, 32, 1}, ends_shape, nullptr, 0};
  const ejk_argument tensors[] = {{"x", &x}, {"cum_seqlens", &ends}};
  char* text = nullptr;
  const auto status = ejk_bind("mean_pooling", tensors, 2, R"({"chunk_size": 2})", &text);
  EXPECT_TRUE(parsed(status, text)["outputs"]["out"].contains("unknown"));
}

TEST_F(CBind, NamesWhatBreaksTheContract) {
  const Shapes wrong{{"q", {2, 5, 3, 64}}, {"k", {2, 7, 2, 64}}, {"v", {2, 7, 2, 64}}};
  char* text = nullptr;
  EXPECT_EQ(ejk_bind("flash_attention", wrong.data(), wrong.size(), nullptr, &text), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "flash_attention: Hq must be a multiple of Hkv; found Hq = 3, Hkv = 2");
  EXPECT_EQ(ejk_bind(nullptr, wrong.data(), wrong.size(), nullptr, &text), EJK_BAD_INPUT);
}

// A small kernel of the tests.
class CChoose : public StoreTest {
 protected:
  void SetUp() override { ASSERT_EQ(ejk_add_store((test::source_dir() + "/tests/execute/data").c_str()), EJK_OK) << ejk_last_error(); }
  const Shapes shift{{"x", {8}}, {"out", {8}}};
  json chosen(const char* config = nullptr) {
    char* text = nullptr;
    const auto status = ejk_choose("shift", shift.data(), shift.size(), nullptr, config, &text);
    return parsed(status, text);
  }
};

TEST_F(CChoose, TellsTheConfigAndMakesItReady) {
  const auto told = chosen();
  EXPECT_EQ(told["config"], json({{"variant", "wide"}, {"arch", "cpu:generic"}, {"block", 8}}));
  EXPECT_EQ(told["workspace_bytes"], 0);
  EXPECT_EQ(counters().compiles, 1u);
  float x[8] = {1}, out[8] = {};
  ejk_prepared* prepared = nullptr;
  ASSERT_EQ(ejk_prepare("shift", shift.data(), shift.size(), nullptr, told["config"].dump().c_str(), &prepared), EJK_OK);
  void* data[] = {x, out};
  EXPECT_EQ(ejk_make_ready(prepared, data, nullptr, nullptr), EJK_OK) << ejk_last_error();
  EXPECT_EQ(out[0], 0.0f) << "nothing ran";
  const auto plans = counters().plans;
  EXPECT_EQ(ejk_run_in(prepared, data, nullptr, nullptr, nullptr, 0), EJK_OK) << ejk_last_error();
  EXPECT_EQ(out[0], 2.5f);
  EXPECT_EQ(counters().plans, plans) << "the plan was there";
  EXPECT_EQ(counters().compiles, 1u);
  const auto run_here = [](void*, void (*task)(void*), void* given) {
    task(given);
    return int32_t{0};
  };
  out[0] = 0;
  const ejk_executor executor{2, run_here, nullptr}, none{0, run_here, nullptr}, idle{2, nullptr, nullptr};
  EXPECT_EQ(ejk_run_on(&executor, prepared, data, nullptr, nullptr, nullptr, 0), EJK_OK) << ejk_last_error();
  EXPECT_EQ(out[0], 2.5f);
  EXPECT_EQ(ejk_run_on(nullptr, prepared, data, nullptr, nullptr, nullptr, 0), EJK_OK) << ejk_last_error();
  EXPECT_EQ(ejk_run_on(&none, prepared, data, nullptr, nullptr, nullptr, 0), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "the executor has 0 threads and a function that schedules; expected at least 1 and one");
  EXPECT_EQ(ejk_run_on(&idle, prepared, data, nullptr, nullptr, nullptr, 0), EJK_BAD_INPUT);
  ejk_release(prepared);
}

TEST_F(CChoose, OverridesAndOverlaysCount) {
  EXPECT_EQ(chosen(R"({"block": 2})")["config"]["block"], 2);
  const auto outside = ejk_scopes();
  ASSERT_EQ(ejk_push_overlay("shift", R"({"variant": "any"})"), EJK_OK);
  EXPECT_NE(ejk_scopes(), outside);
  EXPECT_EQ(chosen()["config"]["variant"], "any");
  ASSERT_EQ(ejk_pop_overlay(), EJK_OK);
  EXPECT_EQ(ejk_scopes(), outside);
}

TEST_F(CChoose, WantsTheRequiredOutputs) {
  const Shapes alone{{"x", {8}}};
  char* text = nullptr;
  EXPECT_EQ(ejk_choose("shift", alone.data(), alone.size(), nullptr, nullptr, &text), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "shift: output out is missing, expected one of shape [8]");
}

}  // namespace
}  // namespace ejk
