// Recurrent layers give the same bits from run to run, gradients too; and on a busy device what they give alone: their blocks wait for each
// other, and none may begin with a part of them.
#include <deque>
#include <random>

#include "device/fixture.hpp"

namespace ejk::recurrent_test {
namespace {

class RecurrentLayers : public DeviceTest {
 protected:
  void SetUp() override {
    if (!Driver::instance().usable()) GTEST_SKIP() << Driver::instance().why_not();
    Driver::instance().use_on_this_thread();
    static const auto added = add_store(source_folder());
    if (!added) GTEST_SKIP() << "needs a process of its own: " << added.error().message;
  }
};

TensorView shaped(void* data, DType type, std::vector<std::int64_t> shape) {
  TensorView view(data, type, std::move(shape));
  view.device = first_gpu;
  return view;
}

// A layer whose steps want all of the device, or most; elements are 16 or 32 bits.
template <class T>
struct Layer {
  const char* cell;
  DType type;
  std::int64_t batch, tokens, features;
  std::int64_t gates = cell == std::string("gru") ? 3 : 4;
  OnGpu<T> x{small(batch * tokens * features, 1)}, w_ih{small(gates * features * features, 2)}, w_hh{small(gates * features * features, 3)};

  // Numbers up to 1/16 in size, of few bits.
  static std::vector<T> small(std::int64_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<T> values(static_cast<std::size_t>(count));
    for (auto& value : values) {
      const std::uint32_t bits = (random() % 2 ? 0x80000000u : 0u) | (0x3d000000u + random() % 128 * 0x10000u);
      value = static_cast<T>(sizeof(T) == 4 ? bits : bits >> 16);
    }
    return values;
  }

  struct Result {
    OnGpu<T> y;
    OnGpu<float> h_n;
    Result(std::int64_t batch, std::int64_t tokens, std::int64_t features)
        : y(std::vector<T>(static_cast<std::size_t>(batch * tokens * features), static_cast<T>(0x7fc0))),
          h_n(zeros(static_cast<std::size_t>(batch * features))) {}
  };
  Status run(const Result& to, void* stream) const {
    return call("rnn",
                {{"x", shaped(x.view().data, type, {batch, tokens, features})},
                 {"w_ih", weights(w_ih)},
                 {"w_hh", weights(w_hh)},
                 {"y", shaped(to.y.view().data, type, {batch, tokens, features})},
                 {"h_n", shaped(to.h_n.view().data, DType::f32, {1, batch, features})}},
                {{"cell_type", std::string(cell)}}, {stream});
  }

  struct Gradients {
    OnGpu<T> dx, dw_ih, dw_hh;
    explicit Gradients(const Layer& layer) : dx(layer.x.values()), dw_ih(layer.w_ih.values()), dw_hh(layer.w_hh.values()) {}
  };
  // y: of `run`, which is its own cotangent.
  Status differentiate(const OnGpu<T>& y, const Gradients& to) const {
    const auto of_x = [&](const OnGpu<T>& numbers) { return shaped(numbers.view().data, type, {batch, tokens, features}); };
    return call("rnn_bwd",
                {{"x", of_x(x)},
                 {"w_ih", weights(w_ih)},
                 {"w_hh", weights(w_hh)},
                 {"y", of_x(y)},
                 {"dy", of_x(y)},
                 {"dx", of_x(to.dx)},
                 {"dw_ih", weights(to.dw_ih)},
                 {"dw_hh", weights(to.dw_hh)}},
                {{"cell_type", std::string(cell)}}, {});
  }
  TensorView weights(const OnGpu<T>& numbers) const { return shaped(numbers.view().data, type, {1, gates * features, features}); }
};

// Twelve calls on three streams, so that each waits for processors that others have.
template <class T>
void runs_beside_others(const Layer<T>& one, const Layer<T>& other) {
  const Layer<T>* const layers[] = {&one, &other};
  std::vector<T> alone[2];
  for (int i = 0; i < 2; ++i) {
    const typename Layer<T>::Result result(layers[i]->batch, layers[i]->tokens, layers[i]->features);
    const auto status = layers[i]->run(result, nullptr);
    ASSERT_TRUE(status) << message_of(status);
    Driver::instance().wait();
    alone[i] = result.y.values();
  }
  const OwnStream streams[3];
  std::deque<typename Layer<T>::Result> results;
  for (int i = 0; i < 12; ++i) {
    const auto& layer = *layers[i % 2];
    results.emplace_back(layer.batch, layer.tokens, layer.features);
  }
  for (int i = 0; i < 12; ++i) {
    const auto status = layers[i % 2]->run(results[static_cast<std::size_t>(i)], streams[i % 3].handle);
    ASSERT_TRUE(status) << message_of(status);
  }
  for (const OwnStream& stream : streams) Driver::instance().wait(stream.handle);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(results[static_cast<std::size_t>(i)].y.values(), alone[i % 2]) << i;
}

// Three times, each into outputs that held the inputs.
template <class T>
void repeats(const Layer<T>& layer) {
  std::vector<std::vector<T>> first;
  for (int i = 0; i < 3; ++i) {
    const typename Layer<T>::Result result(layer.batch, layer.tokens, layer.features);
    const typename Layer<T>::Gradients gradients(layer);
    const auto ran = layer.run(result, nullptr);
    ASSERT_TRUE(ran) << message_of(ran);
    const auto differentiated = layer.differentiate(result.y, gradients);
    ASSERT_TRUE(differentiated) << message_of(differentiated);
    Driver::instance().wait();
    const std::vector<std::vector<T>> found = {result.y.values(), gradients.dx.values(), gradients.dw_ih.values(),
                                               gradients.dw_hh.values()};
    if (i == 0) first = found;
    EXPECT_TRUE(found == first) << layer.cell << " " << i;
    EXPECT_NE(found[1], layer.x.values()) << "nothing was written";
  }
}

TEST_F(RecurrentLayers, Of16BitsRepeatBitForBit) {
  repeats(Layer<std::uint16_t>{"lstm", DType::bf16, 64, 48, 1024});
  repeats(Layer<std::uint16_t>{"gru", DType::bf16, 64, 48, 1024});
  repeats(Layer<std::uint16_t>{"lstm", DType::bf16, 16, 128, 512});
  repeats(Layer<std::uint16_t>{"gru", DType::bf16, 3, 37, 21});
}

TEST_F(RecurrentLayers, OfF32RepeatBitForBit) {
  repeats(Layer<std::uint32_t>{"lstm", DType::f32, 64, 48, 1024});
  repeats(Layer<std::uint32_t>{"gru", DType::f32, 5, 37, 21});
}

TEST_F(RecurrentLayers, OfBf16OnABusyDevice) {
  const Layer<std::uint16_t> large{"lstm", DType::bf16, 64, 64, 1024}, small{"gru", DType::bf16, 48, 128, 512};
  runs_beside_others(large, small);
}

TEST_F(RecurrentLayers, OfF32OnABusyDevice) {
  const Layer<std::uint32_t> large{"lstm", DType::f32, 64, 64, 1024}, small{"gru", DType::f32, 16, 64, 512};
  runs_beside_others(large, small);
}

}  // namespace
}  // namespace ejk::recurrent_test
