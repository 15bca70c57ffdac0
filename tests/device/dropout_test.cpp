// Dropout draws one pattern on the CPU and on a GPU, bit for bit: in f32 by the definition, in bf16 on matrix instructions.
#include "device/fixture.hpp"

namespace ejk::dropout_test {
namespace {

constexpr std::int64_t batches = 3, queries = 70, keys = 128, heads = 4;

// 1 in f32 and bf16.
template <class T>
constexpr T one = sizeof(T) == 4 ? static_cast<T>(1) : static_cast<T>(0x3f80);

// v that is 1 in one feature a key, [batches, keys, heads, keys]: then out is the table of weights.
template <class T>
std::vector<T> table_of_ones() {
  std::vector<T> values(static_cast<std::size_t>(batches * keys * heads * keys), T{});
  for (std::int64_t row = 0; row < batches * keys * heads; ++row)
    values[static_cast<std::size_t>(row * keys + row / heads % keys)] = one<T>;
  return values;
}

class Dropout : public DeviceTest {
 protected:
  void SetUp() override {
    if (!Driver::instance().usable()) GTEST_SKIP() << Driver::instance().why_not();
    Driver::instance().use_on_this_thread();
    const auto added = add_store(source_folder());
    if (!added) GTEST_SKIP() << "needs a process of its own: " << added.error().message;
  }

  static TensorView shaped(void* data, DType type, std::vector<std::int64_t> shape, Device device) {
    TensorView view(data, type, std::move(shape));
    view.device = device;
    return view;
  }

  // Which weights are there: out where all scores are 0.
  static void attend(void* q, void* k, void* v, void* out, DType type, Device device) {
    const auto status = call("flash_attention",
                             {{"q", shaped(q, type, {batches, queries, heads, keys}, device)},
                              {"k", shaped(k, type, {batches, keys, heads, keys}, device)},
                              {"v", shaped(v, type, {batches, keys, heads, keys}, device)},
                              {"out", shaped(out, type, {batches, queries, heads, keys}, device)}},
                             {{"dropout_prob", 0.3}, {"dropout_seed", std::int64_t{-20240229}}, {"causal", true}});
    ASSERT_TRUE(status) << status.error().message;
  }

  template <class T>
  static std::vector<bool> there(const std::vector<T>& out) {
    std::vector<bool> result;
    for (const T x : out) result.push_back(x != T{});
    return result;
  }

  template <class T>
  static void same_pattern(DType type) {
    std::vector<T> q(static_cast<std::size_t>(batches * queries * heads * keys)), k = table_of_ones<T>(), v = k, out = q;
    attend(q.data(), k.data(), v.data(), out.data(), type, Device{});
    const OnGpu<T> q_there(q), k_there(k), v_there(v), out_there(out);
    attend(q_there.view().data, k_there.view().data, v_there.view().data, out_there.view().data, type, first_gpu);
    Driver::instance().wait();
    const auto on_cpu = there(out), on_gpu = there(out_there.values());
    EXPECT_EQ(on_gpu, on_cpu);
    const auto kept = std::count(on_cpu.begin(), on_cpu.end(), true), all = static_cast<std::ptrdiff_t>(on_cpu.size());
    EXPECT_GT(kept, all / 4);  // of the weights that causality leaves, about three quarters, 0.7 are kept
    EXPECT_LT(kept, all * 3 / 4);
  }
};

TEST_F(Dropout, IsTheCpusInF32) { same_pattern<float>(DType::f32); }
TEST_F(Dropout, IsTheCpusOnMatrixInstructions) { same_pattern<std::uint16_t>(DType::bf16); }

}  // namespace
}  // namespace ejk::dropout_test
