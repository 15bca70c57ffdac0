// What a device cannot do is an error of that call, in clear words; the next call works.
#include <cstdlib>

#include "backends/backend.h"
#include "device/fixture.hpp"
#include "ejk/ejk.h"
#include "execute/library_state.hpp"

namespace ejk {
namespace {

class Refusals : public DeviceTest {};

TEST_F(Refusals, AWorkspaceLargerThanTheDeviceIsAnErrorOfThatCall) {
  const OnGpu<float> x(numbers(100)), out(zeros(100));
  const auto status = shift(x.view(), out.view(), 1, std::int64_t{1} << 46);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::device) << message_of(status);
  EXPECT_NE(message_of(status).find("workspace"), std::string::npos) << message_of(status);
  EXPECT_NE(message_of(status).find("70368744177664 bytes"), std::string::npos) << message_of(status);
  ASSERT_TRUE(shift(x.view(), out.view(), 1, 400));
  Driver::instance().wait();
  EXPECT_EQ(out.values(), plus(numbers(100), 1));
}

TEST_F(Refusals, AnArchOfAnotherDeviceIsRefused) {
  const OnGpu<float> x(numbers(100)), out(zeros(100));
  const auto& machine = *Library::instance().machine(first_gpu);
  std::string other;
  for (const auto* arch : {"cuda:sm_120a", "cuda:sm_100a"})
    if (!machine.arch(arch)) other = arch;
  ASSERT_FALSE(other.empty());
  const Config config{"", other, {}};
  const auto status = call("shift", {{"x", x.view()}, {"out", out.view()}}, {}, {}, &config);
  ASSERT_FALSE(status);
  EXPECT_NE(message_of(status).find("arch '" + other + "' does not run here"), std::string::npos) << message_of(status);
}

// As from a store that was filled for another machine under a wrong name.
TEST_F(Refusals, ABinaryOfAnotherArchIsNotLoaded) {
  const auto& machine = *Library::instance().machine(first_gpu);
  auto& backend = *machine.backend;
  const auto& catalogue = Library::instance().parts().catalogue;
  const spec::Arch* other = nullptr;
  for (const auto& [name, arch] : catalogue.archs())
    if (arch.platform == "cuda" && !machine.arch(name)) other = &arch;
  ASSERT_NE(other, nullptr);
  spec::Image image;
  image.kernel = "nothing";
  image.id = "nothing.gpu";
  image.arch = other->full_name();
  image.source = "extern \"C\" __global__ void nothing() {}\n";
  std::string why_not;
  if (!backend.can_compile(*other, why_not)) GTEST_SKIP() << why_not;
  const auto compiled = backend.compile(image, *other);
  ASSERT_TRUE(compiled.ok) << compiled.log;
  for (const auto& claimed : {other->full_name(), machine.archs.front().full_name()}) {
    image.arch = claimed;
    try {
      backend.load_bytes(compiled.binary, image);
      ADD_FAILURE() << "a binary for " << other->full_name() << " was loaded as " << claimed;
    } catch (const std::runtime_error& e) {
      EXPECT_NE(std::string(e.what()).find("nothing.gpu"), std::string::npos) << e.what();
    }
  }
}

TEST_F(Refusals, TensorsOnTwoDevices) {
  const OnGpu<float> x(numbers(3)), out(zeros(3));
  float host[3];
  EXPECT_EQ(message_of(shift(x.view(), TensorView(host, DType::f32, {3}), 1)),
            "shift: out is on cpu, but x is on cuda:0; all tensors of a call must be on one device");
  auto elsewhere = out.view();
  elsewhere.device.index = 1;
  EXPECT_EQ(message_of(shift(x.view(), elsewhere, 1)),
            "shift: out is on cuda:1, but x is on cuda:0; all tensors of a call must be on one device");
}

TEST_F(Refusals, ADeviceThatIsNotThere) {
  const OnGpu<float> x(numbers(3)), out(zeros(3));
  auto a = x.view(), b = out.view();
  a.device.index = b.device.index = Driver::instance().devices();
  const auto message = message_of(shift(a, b, 1));
  EXPECT_TRUE(message.starts_with("shift: its tensors are on cuda:" + std::to_string(Driver::instance().devices()) + ",")) << message;
}

TEST_F(Refusals, NullAndOddPointers) {
  const OnGpu<float> x(numbers(100)), out(zeros(100));
  auto nothing = x.view();
  nothing.data = nullptr;
  EXPECT_EQ(message_of(shift(nothing, out.view(), 1)), "shift: x has no memory: its data pointer is null, but it has 100 elements");
  auto odd = x.view();
  odd.data = static_cast<char*>(odd.data) + 2;
  odd.shape[0] = 99;
  auto shorter = out.view();
  shorter.shape[0] = 99;
  const auto message = message_of(shift(odd, shorter, 1));
  EXPECT_TRUE(message.starts_with("shift: x lies at an address that is no multiple of its element size, 4 bytes;")) << message;
}

TEST_F(Refusals, AnAbsentOutputIsTheCallersToGive) {
  const OnGpu<float> x(numbers(3));
  const TensorView view = x.view(), none;
  const TensorView* tensors[] = {&view, &none, &none, &none};
  const AttributeValue attributes[3] = {};
  EXPECT_EQ(message_of(call_allocating(find_kernel("shift"), tensors, 0, attributes)),
            "shift: the tensors are on cuda:0, where ejk allocates no outputs: give out, expected one of shape [3]");
}

TEST_F(Refusals, TheCInterfaceTakesDeviceTensors) {
  const OnGpu<float> x(numbers(3)), out(zeros(3));
  std::int64_t shape[] = {3};
  ejk_tensor a{};
  a.data = x.view().data;
  a.device = {2, 0};
  a.rank = 1;
  a.dtype = {2, 32, 1};
  a.shape = shape;
  auto b = a;
  b.data = out.view().data;
  const ejk_argument arguments[] = {{"x", &a}, {"out", &b}};
  ASSERT_EQ(ejk_call("shift", arguments, 2, R"({"by": 2.5})", nullptr, nullptr), EJK_OK) << ejk_last_error();
  Driver::instance().wait();
  EXPECT_EQ(out.values(), plus(numbers(3), 2.5f));
}

}  // namespace
}  // namespace ejk
