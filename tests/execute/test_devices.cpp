// Calls on tensors of a device, on the emulator's: nothing of them is read on the host, outputs are the caller's, devices are not mixed.
#include <sys/mman.h>

#include "ejk/ejk.h"
#include "emulator/simt.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

constexpr Device simt{DeviceType::extension, 0};

// Memory of the emulator's device, with values from the host.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values)
      : count_(values.size()), data_(static_cast<T*>(memory().allocate(0, static_cast<std::int64_t>(bytes())))) {
    memory().copy_to_device(0, data_, values.data(), static_cast<std::int64_t>(bytes()));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { memory().free(0, data_); }

  TensorView view(DType type) const {
    TensorView view(data_, type, {static_cast<std::int64_t>(count_)});
    view.device = simt;
    return view;
  }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    memory().copy_to_host(0, values.data(), data_, static_cast<std::int64_t>(bytes()));
    return values;
  }

 private:
  static DeviceMemory& memory() { return *simt_backend().memory(); }
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::size_t count_;
  T* data_;
};

class Devices : public StoreTest {
 protected:
  void SetUp() override {
    add_backend(simt_backend());
    ASSERT_TRUE(add_store(test::source_dir() + "/tests/device/data"));
  }
  static TensorView moved(TensorView view, Device device) {
    view.device = device;
    return view;
  }
  // Outputs wanted of a call that may allocate.
  static Result<std::vector<Tensor>> allocating(const TensorView& x, const TensorView& offsets, std::uint64_t wanted) {
    const TensorView none;
    const TensorView* tensors[] = {&x, &offsets, &none, &none};
    const AttributeValue attributes[3] = {};
    return call_allocating(find_kernel("shift"), tensors, wanted, attributes);
  }
};

TEST_F(Devices, ACallOnDeviceTensorsRunsThere) {
  std::vector<float> numbers(70);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const OnDevice<float> x(numbers), out(std::vector<float>(70));
  for (const std::int64_t scratch : {0, 4, 280}) {
    const auto status = call("shift", {{"x", x.view(DType::f32)}, {"out", out.view(DType::f32)}}, {{"by", 2.0}, {"scratch", scratch}});
    ASSERT_TRUE(status) << message_of(status);
    const auto found = out.values();
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], static_cast<float>(i) + 2);
  }
}

TEST_F(Devices, RulesAboutDataAreJudgedOnTheHostAndTrustedOnADevice) {
  const OnDevice<float> x({1, 2, 3}), out({0, 0, 0});
  const OnDevice<std::int32_t> offsets({1, 3});
  const auto on_device =
      call("shift", {{"x", x.view(DType::f32)}, {"out", out.view(DType::f32)}, {"offsets", offsets.view(DType::i32)}}, {{"by", 1.0}});
  EXPECT_TRUE(on_device) << message_of(on_device);
  std::int32_t host_offsets[] = {1, 3};
  float host_x[] = {1, 2, 3}, host_out[3];
  const auto on_host = call("shift",
                            {{"x", TensorView(host_x, DType::f32, {3})},
                             {"out", TensorView(host_out, DType::f32, {3})},
                             {"offsets", TensorView(host_offsets, DType::i32, {2})}},
                            {{"by", 1.0}});
  EXPECT_EQ(message_of(on_host), "shift: offsets must start at 0; found 1");
}

class CheckedDevices : public Devices {
 protected:
  void SetUp() override {
    setenv("EJKERNEL_CHECK", "on", 1);
    Devices::SetUp();
  }
};

TEST_F(CheckedDevices, RulesAboutDataHoldForDataOfADevice) {
  const OnDevice<float> x({1, 2, 3}), out({0, 0, 0});
  const auto run = [&](const std::vector<std::int32_t>& values) {
    const OnDevice<std::int32_t> offsets(values);
    return message_of(
        call("shift", {{"x", x.view(DType::f32)}, {"out", out.view(DType::f32)}, {"offsets", offsets.view(DType::i32)}}, {{"by", 1.0}}));
  };
  EXPECT_EQ(run({1, 3}), "shift: offsets must start at 0; found 1");
  EXPECT_EQ(out.values(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(run({0, 3}), "");
  EXPECT_EQ(run({2, 3}), "shift: offsets must start at 0; found 2");  // the same plan
  EXPECT_EQ(out.values(), (std::vector<float>{2, 3, 4}));
}

TEST_F(Devices, NothingOfADeviceTensorIsReadOnTheHost) {
  void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // a look at it is the end of the process
  ASSERT_NE(page, MAP_FAILED);
  const auto at = [&](std::int64_t bytes, DType type, std::int64_t count) {
    return moved(TensorView(static_cast<char*>(page) + bytes, type, {count}), simt);
  };
  const std::map<std::string, TensorView> tensors{
      {"x", at(0, DType::f32, 8)}, {"offsets", at(64, DType::i32, 3)}, {"rows", at(128, DType::i32, 5)}, {"out", at(256, DType::f32, 8)}};
  const auto told = explain("shift", tensors, {{"by", 1.0}});
  ASSERT_TRUE(told) << message_of(told);
  EXPECT_NE(told->find("\"R\": 5"), std::string::npos) << *told;
  munmap(page, 4096);
}

TEST_F(Devices, AnOutputSizedByDataIsTakenAsGiven) {
  const OnDevice<float> x({1, 2, 3, 4, 5}), out(std::vector<float>(5));
  const OnDevice<std::int32_t> offsets({0, 5}), rows({7, 7});
  const auto status = call(
      "shift",
      {{"x", x.view(DType::f32)}, {"out", out.view(DType::f32)}, {"offsets", offsets.view(DType::i32)}, {"rows", rows.view(DType::i32)}},
      {});
  ASSERT_TRUE(status) << message_of(status);
  EXPECT_EQ(rows.values(), (std::vector<std::int32_t>{0, 1}));
}

TEST_F(Devices, AbsentOutputsAreRefusedByNameAndShape) {
  const OnDevice<float> x({1, 2, 3});
  const OnDevice<std::int32_t> offsets({0, 3});
  EXPECT_EQ(message_of(call("shift", {{"x", x.view(DType::f32)}}, {})), "shift: output out is missing, expected one of shape [3]");
  EXPECT_EQ(message_of(allocating(x.view(DType::f32), {}, 0)),
            "shift: the tensors are on simt:0, where ejk allocates no outputs: give out, expected one of shape [3]");
}

TEST_F(Devices, AnOutputThatDataSizesIsRefusedWithTheReason) {
  const OnDevice<float> x({1, 2, 3}), out({0, 0, 0});
  const OnDevice<std::int32_t> offsets({0, 3});
  const TensorView views[] = {x.view(DType::f32), offsets.view(DType::i32), out.view(DType::f32), {}};
  const TensorView* tensors[] = {&views[0], &views[1], &views[2], &views[3]};
  const AttributeValue attributes[3] = {};
  const auto message = message_of(call_allocating(find_kernel("shift"), tensors, 2, attributes));
  EXPECT_TRUE(
      message.starts_with("shift: the tensors are on simt:0, where ejk allocates no outputs: give rows, and its shape cannot be told "
                          "without it: "))
      << message;
  EXPECT_TRUE(message.ends_with("; data on a device is not read")) << message;
}

TEST_F(Devices, TheShapeOfAnOutputThatDataSizesCannotBeAskedFor) {
  const OnDevice<float> x({1, 2, 3});
  const OnDevice<std::int32_t> offsets({0, 3});
  std::int64_t three[] = {3}, two[] = {2};
  ejk_tensor a{}, b{};
  a.data = x.view(DType::f32).data;
  a.device = {12, 0};
  a.rank = 1;
  a.dtype = {2, 32, 1};
  a.shape = three;
  b = a;
  b.data = offsets.view(DType::i32).data;
  b.dtype = {0, 32, 1};
  b.shape = two;
  const ejk_argument arguments[] = {{"x", &a}, {"offsets", &b}};
  std::int32_t rank = 0;
  std::int64_t shape[8] = {};
  std::uint8_t code = 0, bits = 0;
  ASSERT_EQ(ejk_output("shift", arguments, 2, nullptr, "out", &rank, shape, &code, &bits), EJK_OK) << ejk_last_error();
  EXPECT_EQ(shape[0], 3);
  EXPECT_EQ(ejk_output("shift", arguments, 2, nullptr, "rows", &rank, shape, &code, &bits), EJK_BAD_INPUT);
  EXPECT_TRUE(std::string(ejk_last_error()).starts_with("shift: the shape of rows cannot be told: ")) << ejk_last_error();
}

TEST_F(Devices, AMisalignedDeviceTensorIsRefused) {
  const OnDevice<float> x({1, 2, 3, 4}), out({0, 0, 0});
  TensorView odd(reinterpret_cast<char*>(x.view(DType::f32).data) + 2, DType::f32, {3});
  odd.device = simt;
  EXPECT_EQ(message_of(call("shift", {{"x", odd}, {"out", out.view(DType::f32)}}, {})),
            "shift: x lies at an address that is no multiple of its element size, 4 bytes; simt:0 reads no such memory");
}

// Where there is a driver its devices are hidden; the words differ, the refusal does not.
TEST_F(Devices, ACudaTensorWithoutADeviceIsRefused) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const OnDevice<float> x({1, 2, 3}), out({0, 0, 0});
  const auto status = call(
      "shift", {{"x", moved(x.view(DType::f32), {DeviceType::cuda, 0})}, {"out", moved(out.view(DType::f32), {DeviceType::cuda, 0})}}, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_TRUE(message_of(status).starts_with("shift: its tensors are on cuda:0, but that backend cannot be used: ")) << message_of(status);
}

TEST_F(Devices, TensorsOnTwoDevicesAreRefused) {
  const OnDevice<float> x({1, 2, 3}), out({0, 0, 0});
  float host[3];
  EXPECT_EQ(message_of(call("shift", {{"x", x.view(DType::f32)}, {"out", TensorView(host, DType::f32, {3})}}, {})),
            "shift: out is on cpu, but x is on simt:0; all tensors of a call must be on one device");
  EXPECT_EQ(message_of(call("shift", {{"x", x.view(DType::f32)}, {"out", moved(out.view(DType::f32), {DeviceType::extension, 1})}}, {})),
            "shift: out is on simt:1, but x is on simt:0; all tensors of a call must be on one device");
}

TEST_F(Devices, ADeviceThatIsNotThereIsRefused) {
  const OnDevice<float> x({1, 2, 3}), out({0, 0, 0});
  const auto on = [&](Device device) {
    return call("shift", {{"x", moved(x.view(DType::f32), device)}, {"out", moved(out.view(DType::f32), device)}}, {});
  };
  const auto third = on({DeviceType::extension, 7});
  EXPECT_EQ(third.error().code, ErrorCode::unsupported);
  EXPECT_EQ(message_of(third), "shift: its tensors are on simt:7, which is no device that ejk found; `ejk info` lists them");
  EXPECT_EQ(message_of(on({DeviceType::rocm, 900})),
            "shift: its tensors are on hip:900, which is no device that ejk found; `ejk info` lists them");
}

TEST_F(Devices, NullAndOverlappingDeviceTensorsAreRefused) {
  const OnDevice<float> x({1, 2, 3}), out({0, 0, 0});
  auto nothing = x.view(DType::f32);
  nothing.data = nullptr;
  EXPECT_EQ(message_of(call("shift", {{"x", nothing}, {"out", out.view(DType::f32)}}, {})),
            "shift: x has no memory: its data pointer is null, but it has 3 elements");
  EXPECT_EQ(message_of(call("shift", {{"x", x.view(DType::f32)}, {"out", x.view(DType::f32)}}, {})),
            "shift: output out overlaps input x in memory, expected memory of its own");
}

TEST_F(Devices, VaryingAttributesAreJudgedAsOnTheHost) {
  const OnDevice<float> x({1, 2, 3}), out({0, 0, 0});
  const std::map<std::string, TensorView> tensors{{"x", x.view(DType::f32)}, {"out", out.view(DType::f32)}};
  ASSERT_TRUE(call("shift", tensors, {{"by", 2.0}}));
  EXPECT_EQ(message_of(call("shift", tensors, {{"by", 2000.0}})), "shift: by must be below 1000; found 2000.0");
}

}  // namespace
}  // namespace ejk
