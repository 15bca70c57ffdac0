// Every CUDA device of the machine in one process: calls and shards on each, one selection for all. With one device it is the plain case.
#include "backends/backend.h"
#include "device/fixture.hpp"

namespace ejk {
namespace {

// `count` floats on a device, by the backend: the other fixtures know the first device only.
class Floats {
 public:
  Floats(int device, const std::vector<float>& values) : memory_(*backend_of("cuda")->memory()), device_(device), count_(values.size()) {
    data_ = memory_.allocate(device, bytes());
    memory_.copy_to_device(device, data_, values.data(), bytes());
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats() { memory_.free(device_, data_); }
  std::vector<float> values() const {
    std::vector<float> values(count_);
    memory_.copy_to_host(device_, values.data(), data_, bytes());
    return values;
  }
  TensorView view() const {
    TensorView view(data_, DType::f32, {static_cast<std::int64_t>(count_)});
    view.device = {DeviceType::cuda, device_};
    return view;
  }

 private:
  std::int64_t bytes() const { return static_cast<std::int64_t>(count_ * sizeof(float)); }
  DeviceMemory& memory_;
  int device_;
  std::size_t count_;
  void* data_;
};

class EveryDevice : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    for (int device = 0; device < backend_of("cuda")->device_count(); ++device) {
      inputs.push_back(std::make_unique<Floats>(device, numbers(5000, static_cast<float>(device))));
      outputs.push_back(std::make_unique<Floats>(device, std::vector<float>(5000, -1)));
    }
  }
  void expect_shifted(float by) const {
    for (std::size_t device = 0; device < inputs.size(); ++device)
      EXPECT_EQ(outputs[device]->values(), numbers(5000, static_cast<float>(device) + by)) << "device " << device;
  }
  std::vector<std::unique_ptr<Floats>> inputs, outputs;
};

TEST_F(EveryDevice, CallsInTurn) {
  for (int round = 0; round < 2; ++round)  // the second time by the plans of the first
    for (std::size_t device = 0; device < inputs.size(); ++device) {
      const auto status = call("shift", {{"x", inputs[device]->view()}, {"out", outputs[device]->view()}}, {{"by", 2.0}});
      ASSERT_TRUE(status) << status.error().message;
    }
  expect_shifted(2);
}

TEST_F(EveryDevice, ShardsUnderOneConfig) {
  std::vector<Shard> shards;
  for (std::size_t device = 0; device < inputs.size(); ++device)
    shards.push_back({{{"x", inputs[device]->view()}, {"out", outputs[device]->view()}}, {}});
  const auto report = pmap_with_config("shift", shards, {{"by", 3.0}});
  ASSERT_TRUE(report) << report.error().message;
  expect_shifted(3);
}

}  // namespace
}  // namespace ejk
