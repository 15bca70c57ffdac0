// Devices by name, shardings as text, block sizes as configs.
#include "emulator/simt.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

class Devices : public StoreTest {};

TEST_F(Devices, HaveKindPlatformAndFingerprint) {
  add_backend(simt_backend());
  ASSERT_TRUE(add_store(test::source_dir() + "/tests/device/data"));
  const auto kind = device_kind(), fingerprint = device_fingerprint();
  ASSERT_TRUE(kind) << message_of(kind);
  EXPECT_NE(kind->find(" thread"), std::string::npos) << *kind;
  EXPECT_TRUE(fingerprint->starts_with("cpu-")) << *fingerprint;
  EXPECT_EQ(*device_fingerprint({DeviceType::extension, 0}), "simt-warp32");
  EXPECT_EQ(get_device_platform(), "cpu");
  EXPECT_EQ(get_device_platform({DeviceType::cuda, 3}), "gpu");
  EXPECT_EQ(get_device_platform({DeviceType::rocm, 0}), "gpu");
  EXPECT_EQ(get_device_platform({DeviceType::extension, 0}), "unknown");
}

TEST_F(Devices, ThatAreNotThereAreNamed) {
  use_test_store();
  EXPECT_EQ(message_of(device_kind({DeviceType::rocm, 902})), "hip:902 is no device that ejk found; `ejk info` lists them");
  EXPECT_EQ(message_of(device_fingerprint({DeviceType::cuda, 900})), "cuda:900 is no device that ejk found; `ejk info` lists them");
}

const Mesh mesh{{"data", "model"}, {4, 2}};

TEST(Shardings, AreTextThatTellsThemApart) {
  EXPECT_EQ(*sharding_fingerprint({mesh, {{"data"}, {}, {"model"}}}), "mesh[data=4,model=2]:[data|-|model]");
  EXPECT_EQ(*sharding_fingerprint({mesh, {{"data", "model"}}}), "mesh[data=4,model=2]:[data*model]");
  EXPECT_EQ(*sharding_fingerprint({mesh, {{"data"}, {}, {}}}), *sharding_fingerprint({mesh, {{"data"}}}));
  EXPECT_NE(*sharding_fingerprint({mesh, {{"model", "data"}}}), *sharding_fingerprint({mesh, {{"data", "model"}}})) << "order counts";
  EXPECT_EQ(*sharding_fingerprint({}), "mesh[]:[]");
}

TEST(Shardings, ThatMakeNoSenseAreRefused) {
  EXPECT_EQ(message_of(sharding_fingerprint({mesh, {{"rows"}}})),
            "a dimension is split over 'rows', which is no axis of the mesh (data, model)");
  EXPECT_EQ(message_of(sharding_fingerprint({mesh, {{"data"}, {"data"}}})), "mesh axis 'data' splits a tensor twice");
  EXPECT_EQ(message_of(sharding_fingerprint({{{"a", "a"}, {1, 1}}, {}})), "the mesh names axis 'a' twice");
  EXPECT_EQ(message_of(sharding_fingerprint({{{"a"}, {0}}, {}})), "mesh axis 'a' has size 0, expected 1 or more");
  EXPECT_EQ(message_of(sharding_fingerprint({{{"a"}, {}}, {}})), "the mesh names 1 axes, but has 0 sizes; expected one size an axis");
  EXPECT_EQ(message_of(sharding_fingerprint({{{"a|b"}, {1}}, {}})), "mesh axis 'a|b': expected a name of letters, digits and _");
}

TEST(Shardings, AreInKeys) {
  Invocation invocation;
  invocation.kernel = "k";
  invocation.device = "cpu-generic-1t";
  invocation.tensors = {{"x", TensorView(nullptr, DType::f32, {8, 4})}};
  EXPECT_EQ(*default_key_builder_with_sharding(invocation, {}), invocation.key());
  const auto rows = default_key_builder_with_sharding(invocation, {{"x", {mesh, {{"data"}}}}});
  const auto columns = default_key_builder_with_sharding(invocation, {{"x", {mesh, {{}, {"data"}}}}});
  ASSERT_TRUE(rows) << message_of(rows);
  EXPECT_NE(*rows, *columns);
  EXPECT_EQ(*stable_json(*rows), *rows);
  EXPECT_EQ(message_of(default_key_builder_with_sharding(invocation, {{"y", {mesh, {}}}})), "k: no tensor 'y' that a sharding could be of");
  EXPECT_EQ(message_of(default_key_builder_with_sharding(invocation, {{"x", {mesh, {{}, {}, {"data"}}}}})),
            "k: the sharding of 'x' has 3 dimensions, the tensor 2");
}

TEST(BlockSizes, GoToConfigsAndBack) {
  const FwdParams forward{.q_blocksize = 64, .kv_blocksize = 128, .num_stages = 2};
  const auto config = to_config(forward);
  EXPECT_EQ(to_json(config), R"({"kv_blocksize":128,"num_stages":2,"q_blocksize":64})");
  EXPECT_EQ(*fwd_params(config), forward);
  const BwdParams backward{.q_blocksize = 32, .kv_blocksize = 32, .num_warps = 4};
  EXPECT_EQ(*bwd_params(to_config(backward)), backward);
  EXPECT_EQ(*bwd_params({"v", "cpu:avx2", {{"block_m", std::int64_t{8}}}}), BwdParams{}) << "other values are left aside";
  EXPECT_EQ(to_config(FwdParams{}), Config{});
}

TEST(BlockSizes, MustBePositiveIntegers) {
  EXPECT_EQ(message_of(fwd_params({"", "", {{"num_warps", std::int64_t{0}}}})),
            "config: 'num_warps' must be an integer of 1 or more; found 0");
  EXPECT_EQ(message_of(bwd_params({"", "", {{"q_blocksize", 2.0}}})), "config: 'q_blocksize' must be an integer of 1 or more; found 2.0");
}

}  // namespace
}  // namespace ejk
