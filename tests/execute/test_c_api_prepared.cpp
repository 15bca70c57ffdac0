// Prepared calls, scopes, contracts and tuning of the C API.
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "ejk/ejk.h"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

using nlohmann::json;

class CPrepared : public StoreTest {
 protected:
  void SetUp() override { ASSERT_EQ(ejk_add_store((test::source_dir() + "/tests/execute/data").c_str()), EJK_OK) << ejk_last_error(); }
  ~CPrepared() override { ejk_release(prepared); }

  ejk_tensor tensor_of(void* data) const { return {data, {1, 0}, 1, {2, 32, 1}, shape, nullptr, 0}; }
  void prepare(const char* attributes = nullptr, const char* config = nullptr) {
    ASSERT_EQ(ejk_prepare("shift", tensors, 3, attributes, config, &prepared), EJK_OK) << ejk_last_error();
  }
  std::string image() const {
    char* text = nullptr;
    EXPECT_EQ(ejk_explain("shift", tensors, 3, nullptr, nullptr, &text), EJK_OK) << ejk_last_error();
    const auto id = json::parse(text)["image"]["id"].get<std::string>();
    ejk_free(text);
    return id;
  }

  float x[4] = {1, 2, 3, 4}, out[4] = {};
  const std::int64_t shape[1] = {4};
  ejk_tensor x_tensor = tensor_of(x), out_tensor = tensor_of(out);
  const ejk_argument tensors[3] = {{"out", &out_tensor}, {"bias", nullptr}, {"x", &x_tensor}};
  ejk_prepared* prepared = nullptr;
};

TEST_F(CPrepared, RunsOnOtherDataInTheOrderOfPreparation) {
  prepare(R"({"by": 2})");
  float other[4] = {10, 20, 30, 40}, result[4] = {};
  void* data[] = {result, nullptr, other};
  ASSERT_EQ(ejk_run(prepared, data, nullptr, nullptr), EJK_OK) << ejk_last_error();
  EXPECT_EQ(result[3], 42.0f);
  EXPECT_EQ(out[3], 0.0f) << "the prepared tensors' own data is not touched";
  const ejk_value by = {.kind = 3, .floating = 0.5};
  ASSERT_EQ(ejk_run(prepared, data, &by, nullptr), EJK_OK) << ejk_last_error();
  EXPECT_EQ(result[3], 40.5f);
  const ejk_value absent = {.kind = 0, .integer = 0};
  ASSERT_EQ(ejk_run(prepared, data, &absent, nullptr), EJK_OK) << ejk_last_error();
  EXPECT_EQ(result[3], 41.5f) << "its default";
}

TEST_F(CPrepared, ThreadsShareOneCall) {
  prepare();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        float input[4] = {float(t), float(i), 0, 0}, result[4] = {};
        void* data[] = {result, nullptr, input};
        const ejk_value by = {.kind = 3, .floating = double(t)};
        wrong[t] += ejk_run(prepared, data, &by, nullptr) != EJK_OK || result[0] != 2 * float(t) || result[1] != float(t) + float(i);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST_F(CPrepared, TellsWhatIsWrong) {
  EXPECT_EQ(ejk_prepare("nothing", tensors, 3, nullptr, nullptr, &prepared), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "no kernel 'nothing'; the stores have shift");
  EXPECT_EQ(ejk_prepare("shift", tensors, 3, R"({"bye": 1})", nullptr, &prepared), EJK_BAD_INPUT);
  EXPECT_EQ(ejk_run(nullptr, nullptr, nullptr, nullptr), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "the prepared call is NULL");
  prepare(R"({"limit": 3})");
  void* data[] = {out, nullptr, x};
  EXPECT_EQ(ejk_run(prepared, nullptr, nullptr, nullptr), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "shift: the array of data pointers is NULL");
  EXPECT_EQ(ejk_run(prepared, data, nullptr, nullptr), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "shift: x has 4 elements, more than limit = 3");
  const ejk_value odd = {.kind = 7, .integer = 0};
  EXPECT_EQ(ejk_run(prepared, data, &odd, nullptr), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "a varying attribute's kind is 7; expected 0 (absent), 1 (boolean), 2 (integer) or 3 (floating)");
  const ejk_value large = {.kind = 3, .floating = 1e6};
  EXPECT_EQ(ejk_run(prepared, data, &large, nullptr), EJK_BAD_INPUT) << "rules over varying attributes hold for each run";
}

TEST_F(CPrepared, ScopesThatWereKeptAreUsedAgainWithTheirPlans) {
  prepare();
  ejk_kept_scopes* kept = nullptr;
  ASSERT_EQ(ejk_push_overlay("shift", R"({"variant": "any"})"), EJK_OK) << ejk_last_error();
  const auto id = ejk_scopes();
  ASSERT_EQ(ejk_keep_scopes(&kept), EJK_OK) << ejk_last_error();
  ASSERT_EQ(ejk_pop_overlay(), EJK_OK);
  const auto none = ejk_scopes();
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(ejk_use_scopes(kept), EJK_OK) << ejk_last_error();
    EXPECT_EQ(ejk_scopes(), id);
    EXPECT_NE(image().find("shift.any"), std::string::npos);
    ASSERT_EQ(ejk_push_policy(R"({"cache_miss_fallback": "error"})"), EJK_OK) << "what the thread opens itself stays above";
    ASSERT_EQ(ejk_use_scopes(nullptr), EJK_OK);
    EXPECT_NE(ejk_scopes(), none);
    ASSERT_EQ(ejk_pop_policy(), EJK_OK);
    EXPECT_EQ(image().find("shift.any"), std::string::npos);
    EXPECT_EQ(ejk_scopes(), none);
  }
  ejk_release_scopes(kept);
  EXPECT_EQ(ejk_keep_scopes(nullptr), EJK_BAD_INPUT);
}

TEST_F(CPrepared, HonoursConfigsAndScopesAsTheyAre) {
  prepare();
  void* data[] = {out, nullptr, x};
  EXPECT_EQ(image().find("shift.any"), std::string::npos);
  ASSERT_EQ(ejk_push_overlay("shift", R"({"variant": "any"})"), EJK_OK) << ejk_last_error();
  EXPECT_NE(image().find("shift.any"), std::string::npos);
  ASSERT_EQ(ejk_pop_overlay(), EJK_OK);
  EXPECT_EQ(ejk_pop_overlay(), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "no overlay is open on this thread: each pop needs a push before it");
  EXPECT_EQ(ejk_push_overlay("nothing", "{}"), EJK_BAD_INPUT);

  ASSERT_EQ(ejk_run(prepared, data, nullptr, nullptr), EJK_OK) << ejk_last_error();
  ASSERT_EQ(ejk_push_policy(R"({"cache_miss_fallback": "error"})"), EJK_OK) << ejk_last_error();
  EXPECT_EQ(ejk_run(prepared, data, nullptr, nullptr), EJK_UNSUPPORTED) << "a plan of another policy is not used";
  ASSERT_EQ(ejk_pop_policy(), EJK_OK);
  ASSERT_EQ(ejk_run(prepared, data, nullptr, nullptr), EJK_OK) << ejk_last_error();
  EXPECT_EQ(ejk_pop_policy(), EJK_BAD_INPUT);
  EXPECT_EQ(ejk_push_policy(R"({"cache_miss_fallback": "sometimes"})"), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "the policy's cache_miss_fallback is 'sometimes'; expected autotune, heuristics or error");
  EXPECT_EQ(ejk_push_policy(R"({"autotune": true})"), EJK_BAD_INPUT);
}

TEST_F(CPrepared, DescribesContractsAndCounts) {
  char* text = nullptr;
  ASSERT_EQ(ejk_kernels(&text), EJK_OK) << ejk_last_error();
  EXPECT_STREQ(text, R"(["shift"])");
  ejk_free(text);
  ASSERT_EQ(ejk_describe("shift", &text), EJK_OK) << ejk_last_error();
  const auto contract = json::parse(text);
  ejk_free(text);
  EXPECT_EQ(contract["tensors"][2]["name"], "offsets");
  EXPECT_EQ(contract["tensors"][2]["shapes"][0]["extents"], json({"M + 1"}));
  EXPECT_EQ(contract["tensors"][3]["output"], true);
  EXPECT_EQ(contract["tensors"][3]["shape_reads"], json::array());
  EXPECT_EQ(contract["attributes"][0]["varies"], true);
  EXPECT_EQ(contract["attributes"][1]["default"], "100");
  ASSERT_EQ(ejk_counters(&text), EJK_OK);
  EXPECT_EQ(json::parse(text)["compiles"], 0);
  ejk_free(text);
  EXPECT_EQ(ejk_gradient("shift", tensors, 3, nullptr, &text), EJK_UNSUPPORTED);
  EXPECT_STREQ(ejk_last_error(), "shift has no gradient");
}

TEST_F(CPrepared, TuningNamesWhatItDoesNotKnow) {
  char* text = nullptr;
  EXPECT_EQ(ejk_tune("shift", tensors, 3, nullptr, R"({"seconds": 1})", &text), EJK_BAD_INPUT);
  EXPECT_NE(std::string(ejk_last_error()).find("tuning has no option 'seconds'"), std::string::npos) << ejk_last_error();
  EXPECT_EQ(ejk_tune("shift", tensors, 3, nullptr, R"({"worker": "/nowhere/ejk"})", &text), EJK_INTERNAL);
  EXPECT_STREQ(ejk_last_error(), "no worker program: looked for /nowhere/ejk");
}

// Which tensors of a mapped gradient are the call's, and which are gradients.
TEST(CGradient, NamesTensorsOfEachCall) {
  ASSERT_EQ(ejk_add_store(test::source_dir().c_str()), EJK_OK) << ejk_last_error();
  const std::int64_t lhs_shape[] = {12, 8}, rhs_shape[] = {3, 8, 16}, sizes_shape[] = {3};
  const ejk_tensor lhs = {nullptr, {1, 0}, 2, {2, 32, 1}, lhs_shape, nullptr, 0};
  const ejk_tensor rhs = {nullptr, {1, 0}, 3, {2, 32, 1}, rhs_shape, nullptr, 0};
  const ejk_tensor sizes = {nullptr, {1, 0}, 1, {0, 32, 1}, sizes_shape, nullptr, 0};
  const ejk_argument tensors[] = {{"lhs", &lhs}, {"rhs", &rhs}, {"group_sizes", &sizes}};
  char* text = nullptr;
  ASSERT_EQ(ejk_gradient("grouped_matmul", tensors, 3, nullptr, &text), EJK_OK) << ejk_last_error();
  const auto gradient = json::parse(text);
  ejk_free(text);
  ASSERT_EQ(gradient["calls"].size(), 2u) << gradient;
  const auto& dlhs = gradient["calls"][0];
  EXPECT_EQ(dlhs["kernel"], "grouped_matmul");
  EXPECT_EQ(dlhs["tensors"]["lhs"], "dout");
  EXPECT_EQ(dlhs["tensors"]["rhs"], "rhs");
  EXPECT_EQ(dlhs["tensors"]["out"], "dlhs");
  EXPECT_EQ(dlhs["outputs"], json({"out"}));
  EXPECT_EQ(dlhs["attributes"]["transpose_rhs"], true);
  EXPECT_EQ(gradient["calls"][1]["kernel"], "tgmm");
}

}  // namespace
}  // namespace ejk
