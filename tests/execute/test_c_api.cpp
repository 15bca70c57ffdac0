// The C API: named DLPack tensors, JSON attributes, errors by status and words.
#include <cstring>
#include <string>

#include "ejk/ejk.h"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

ejk_tensor dl_tensor(void* data, const std::int64_t* shape, std::int32_t rank, const std::int64_t* strides = nullptr) {
  return {data, {1, 0}, rank, {2, 32, 1}, shape, strides, 0};
}

class CApi : public StoreTest {
 protected:
  void SetUp() override { ASSERT_EQ(ejk_add_store((test::source_dir() + "/tests/execute/data").c_str()), EJK_OK) << ejk_last_error(); }
  float x[4] = {1, 2, 3, 4}, out[4] = {};
  std::int64_t shape[1] = {4};
  ejk_tensor x_tensor = dl_tensor(x, shape, 1), out_tensor = dl_tensor(out, shape, 1);
};

TEST_F(CApi, CallsByName) {
  const ejk_argument tensors[] = {{"x", &x_tensor}, {"out", &out_tensor}, {"bias", nullptr}};
  ASSERT_EQ(ejk_call("shift", tensors, 3, R"({"by": 2})", nullptr, nullptr), EJK_OK) << ejk_last_error();
  EXPECT_EQ(out[3], 6.0f);
  EXPECT_STREQ(ejk_last_error(), "");
}

TEST_F(CApi, HonoursByteOffsetAndStrides) {
  auto offset = dl_tensor(x, shape, 1);
  offset.byte_offset = 2 * sizeof(float);
  const std::int64_t two[] = {2}, unit[] = {1};
  offset.shape = two;
  offset.strides = unit;
  auto result = dl_tensor(out, two, 1);
  const ejk_argument tensors[] = {{"x", &offset}, {"out", &result}};
  ASSERT_EQ(ejk_call("shift", tensors, 2, nullptr, nullptr, nullptr), EJK_OK) << ejk_last_error();
  EXPECT_EQ(out[0], 4.5f);
}

TEST_F(CApi, ReportsErrorsWithStatusAndWords) {
  const ejk_argument tensors[] = {{"x", &x_tensor}, {"out", &out_tensor}};
  EXPECT_EQ(ejk_call("nothing", tensors, 2, nullptr, nullptr, nullptr), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "no kernel 'nothing'; the stores have shift");
  EXPECT_EQ(ejk_call(nullptr, tensors, 2, nullptr, nullptr, nullptr), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "the kernel's name is NULL");
  EXPECT_EQ(ejk_call("shift", tensors, 2, "[", nullptr, nullptr), EJK_BAD_INPUT);
  EXPECT_TRUE(std::string(ejk_last_error()).starts_with("shift: attributes:1:2: not JSON: ")) << ejk_last_error();
  EXPECT_EQ(ejk_call("shift", tensors, 2, "[]", nullptr, nullptr), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "shift: attributes must be a JSON object such as {\"causal\": true}; found array");
  EXPECT_EQ(ejk_call("shift", tensors, 2, nullptr, "{\"block\": 7}", nullptr), EJK_BAD_INPUT);
  EXPECT_NE(std::string(ejk_last_error()).find("block"), std::string::npos);
  x_tensor.dtype.lanes = 4;
  EXPECT_EQ(ejk_call("shift", tensors, 2, nullptr, nullptr, nullptr), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "shift: x has elements of 4 lanes, expected 1");
  const ejk_argument twice[] = {{"out", &out_tensor}, {"out", &out_tensor}};
  EXPECT_EQ(ejk_call("shift", twice, 2, nullptr, nullptr, nullptr), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "shift: tensor 'out' is given twice");
}

TEST_F(CApi, TellsOutputShapes) {
  const ejk_argument tensors[] = {{"x", &x_tensor}};
  std::int32_t rank = 0;
  std::int64_t found[8];
  std::uint8_t code = 0, bits = 0;
  ASSERT_EQ(ejk_output("shift", tensors, 1, nullptr, "out", &rank, found, &code, &bits), EJK_OK) << ejk_last_error();
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(found[0], 4);
  EXPECT_EQ(code, 2);
  EXPECT_EQ(bits, 32);
}

TEST_F(CApi, ExplainsAndInforms) {
  const ejk_argument tensors[] = {{"x", &x_tensor}, {"out", &out_tensor}};
  char* text = nullptr;
  ASSERT_EQ(ejk_explain("shift", tensors, 2, nullptr, nullptr, &text), EJK_OK) << ejk_last_error();
  EXPECT_NE(std::strstr(text, "shift.wide.cpu_generic.f32.block2"), nullptr) << text;
  ejk_free(text);
  ASSERT_EQ(ejk_info(&text), EJK_OK) << ejk_last_error();
  EXPECT_NE(std::strstr(text, "\"cpu\""), nullptr);
  ejk_free(text);
  EXPECT_STREQ(ejk_version(), EJK_VERSION);
}

TEST(CApiWithoutStore, SaysWhereItLooked) {
  setenv("EJKERNEL_STORE", "/nonexistent/pack", 1);
  EXPECT_EQ(ejk_call("shift", nullptr, 0, nullptr, nullptr, nullptr), EJK_BAD_INPUT);
  EXPECT_NE(std::string(ejk_last_error()).find("/nonexistent/pack: no specs folder"), std::string::npos) << ejk_last_error();
  EXPECT_EQ(ejk_add_store("/nonexistent"), EJK_BAD_INPUT);
  EXPECT_NE(std::string(ejk_last_error()).find("is not a store"), std::string::npos) << ejk_last_error();
}

// A label of tensors without data is that of the call on tensors with data, and is found again in a program's text.
TEST_F(CApi, LabelsAndRecordsWithoutData) {
  setenv("EJKERNEL_OPS_RECORD", (folder / "trace.jsonl").c_str(), 1);
  auto no_x = dl_tensor(nullptr, shape, 1), no_out = dl_tensor(nullptr, shape, 1);
  const ejk_argument abstract[] = {{"x", &no_x}, {"out", &no_out}}, tensors[] = {{"x", &x_tensor}, {"out", &out_tensor}};
  char *hash = nullptr, *json = nullptr, *found = nullptr;
  ASSERT_EQ(ejk_label("shift", abstract, 2, R"({"limit": 100})", "hash", &hash), EJK_OK) << ejk_last_error();
  ASSERT_EQ(ejk_label("shift", abstract, 2, nullptr, "json", &json), EJK_OK) << ejk_last_error();
  const recording scope;
  ASSERT_EQ(ejk_call("shift", tensors, 2, nullptr, nullptr, nullptr), EJK_OK) << ejk_last_error();
  const auto call = get_invocations(scope).invocations.at(0).invocation;
  EXPECT_EQ(*label(call), hash) << "limit has its default";
  EXPECT_EQ(*label(call, Stamp::json), json);

  const std::string text = std::string("op_name=\"f/") + hash + "/g\"";
  ASSERT_EQ(ejk_labels_in_hlo(text.data(), text.size(), &found), EJK_OK) << ejk_last_error();
  EXPECT_EQ(found, std::string("[\"") + hash + "\"]");
  for (auto* each : {hash, json, found}) ejk_free(each);

  ASSERT_EQ(ejk_record("shift", abstract, 2, R"({"limit": 50})"), EJK_OK) << ejk_last_error();
  EXPECT_EQ(get_invocations((folder / "trace.jsonl").string())->invocations.size(), 2u);
  EXPECT_EQ(ejk_label("shift", abstract, 2, nullptr, "none", &hash), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "the stamp is 'none'; expected hash or json");
  EXPECT_EQ(ejk_record("shift", abstract, 2, R"({"limits": 50})"), EJK_BAD_INPUT);
  no_x.device = no_out.device = {10, 0};
  EXPECT_EQ(ejk_label("shift", abstract, 2, nullptr, "hash", &hash), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "shift: its tensors are on no device that ejk found; `ejk info` lists them");
}

}  // namespace
}  // namespace ejk
