// flash_attention of few query rows, whose keys are cut into parts: however many there are, the result is the same, sinks count once, and
// parts of which a row sees nothing add nothing.
#include "emulator/sanitizer.hpp"
#include "emulator/simt.hpp"
#include "execute/strange_views.hpp"

namespace ejk::split_keys_test {
namespace {

// Sinks and the log-sum-exp are wanted: a sink in each part would show in both outputs.
reference::Call few_rows(const Dims& changed, std::map<std::string, spec::Value> attributes, const char* type) {
  spec::Case c;
  c.name = "few_rows";
  c.dims = {{"B", 1L}, {"Sq", 2L}, {"Sk", 2500L}, {"Hq", 4L}, {"Hkv", 1L}, {"D", 64L}, {"Dv", 64L}, {"A", 2L}};
  for (const auto& [name, value] : changed) c.dims[name] = value;
  c.types = {{"E", type}, {"Eb", "f32"}, {"Es", "f32"}};
  c.given = {"softmax_aux", "lse"};
  c.attributes = std::move(attributes);
  return reference::make_call(reference::spec_of("flash_attention"), c, 11);
}

// A row that sees all parts, rows that see some, rows that see none of many parts, and rows that see nothing at all.
std::vector<reference::Call> calls(const char* type) {
  return {few_rows({}, {}, type), few_rows({}, {{"causal", true}}, type),
          few_rows({{"Sk", 2499L}}, {{"causal", true}, {"window_left", std::int64_t{700}}}, type),
          few_rows({{"Dv", 80L}}, {{"causal", true}, {"causal_offset", std::int64_t{-1}}}, type),
          few_rows({{"B", 2L}, {"Sk", 33L}}, {{"logits_soft_cap", 3.0}}, type)};
}

class SplitKeys : public StoreTest {
 protected:
  void SetUp() override {
    use_project_store();
    add_backend(simt_backend());
  }

  // All outputs of the call, after they were found right; on the emulator if `device` says so.
  static std::vector<std::vector<double>> outputs(reference::Call call, const Config& config, Device device) {
    const auto truth = reference::compute(call);
    std::map<std::string, TensorView> views;
    for (auto* list : {&call.inputs, &call.outputs})
      for (auto& tensor : *list) {
        views[tensor.name()] = tensor.view();
        views[tensor.name()].device = device;
      }
    EXPECT_EQ(message_of(ejk::call(call.spec->kernel, views, call.attributes, {}, &config)), "") << call.label;
    std::vector<std::vector<double>> values;
    for (const auto& output : call.outputs) {
      EXPECT_EQ(reference::compare(output, truth.at(output.name()), reference::tolerance_of(call, output)).message, "") << call.label;
      values.push_back(output.values());
    }
    return values;
  }

  // As close as two roundings of one number.
  static void agree(const reference::Call& call, const std::vector<std::vector<double>>& found,
                    const std::vector<std::vector<double>>& expected) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto& output = call.outputs[i];
      const double tolerance = reference::tolerance_of(call, output);
      EXPECT_EQ(reference::compare(output.name(), output.shape(), found[i], expected[i], tolerance).message, "") << call.label;
    }
  }
};

TEST_F(SplitKeys, AgreeOnAnyNumberOfThreads) {
  auto all = calls("f32");  // and kv heads that take turns: four and then two, pairs, each alone
  all.push_back(few_rows({{"Sk", 1801L}, {"Hq", 12L}, {"Hkv", 6L}, {"D", 256L}, {"Dv", 40L}}, {{"causal", true}}, "f32"));
  for (const auto& call : all) {
    ASSERT_TRUE(set_threads(1));  // one part
    const Config config{"few_rows", "generic", {}};
    const auto whole = outputs(call, config, {});
    for (const int threads : {2, 3}) {  // 16 parts and more
      ASSERT_TRUE(set_threads(threads));
      agree(call, outputs(call, config, {}), whole);
    }
  }
}

constexpr const char* warp = simt::sanitized ? "warp32_sanitized" : "warp32";

TEST_F(SplitKeys, AgreeHoweverManyBlocksAProcessorTakes) {
  for (const auto& call : calls("bf16")) {
    const auto with = [](std::int64_t blocks) {  // 4, 8 or 12 parts on the emulator's 4 processors, of one stream
      return Config{
          "split", warp, {{"warps", std::int64_t{4}}, {"tile", std::int64_t{16}}, {"stages", std::int64_t{2}}, {"blocks", blocks}}};
    };
    constexpr Device emulated{DeviceType::extension, 0};
    const auto few = outputs(call, with(1), emulated);
    for (const std::int64_t blocks : {2, 3}) agree(call, outputs(call, with(blocks), emulated), few);
  }
}

}  // namespace
}  // namespace ejk::split_keys_test
