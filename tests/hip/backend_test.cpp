// The HIP backend on a fake driver that records every call: probing, loading, launching, and every refusal on the way.
#include <algorithm>

#include "hip/fake_hip.hpp"
#include "hip/hand_made_code_object.hpp"
#include "hip/hip_image.hpp"

namespace ejk::hip {
namespace {

Driver no_driver() { return load_driver({"libno_such_amdhip64.so.6"}); }
std::shared_ptr<const SystemCompiler> no_clang(const std::string& arch) {
  auto none = std::make_shared<SystemCompiler>();
  none->why_not = "no clang that compiles for " + arch;
  return none;
}
const Hiprtc& no_hiprtc() {
  static const Hiprtc none = [] {
    Hiprtc hiprtc;
    hiprtc.why_not = "no hipRTC";
    return hiprtc;
  }();
  return none;
}

Backend& fake_backend() {
  FakeHip::reset();
  return lasting(make_backend({fake_hip, clang_for, no_hiprtc}));
}
Backend& bare_backend() { return lasting(make_backend({no_driver, no_clang, no_hiprtc})); }

template <class Error>
std::string words_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

LaunchRequest request_for(void* entry, int device = 0, std::int64_t grid = 4) {
  LaunchRequest request;
  request.entry = entry;
  request.device = device;
  request.grid[0] = grid;
  request.block[0] = 256;
  return request;
}

TEST(HipProbe, TellsTheDeviceAndTheArchsItRuns) {
  auto& backend = fake_backend();
  const std::vector<spec::Arch> archs = {hip_arch("gfx90a"), hip_arch("gfx942"), hip_arch("gfx1100")};
  std::vector<const spec::Arch*> pointers;
  for (const auto& arch : archs) pointers.push_back(&arch);
  ASSERT_EQ(backend.device_count(), 2);
  const auto first = backend.probe(pointers, 0), second = backend.probe(pointers, 1);
  EXPECT_TRUE(first.available) << first.why_not;
  EXPECT_EQ(first.archs, std::vector<std::string>({"hip:gfx90a"}));
  EXPECT_EQ(second.archs, std::vector<std::string>({"hip:gfx942"}));
  EXPECT_EQ(first.fingerprint, "hip-amd-instinct-mi250x-104cu");
  EXPECT_EQ(first.description, "AMD Instinct MI250X, gfx90a, 104 compute units, 141 GiB, 1700 MHz, HIP 6.3");
  FakeHip::instance().archs[0] = "gfx1036";
  auto& other = lasting(make_backend({fake_hip, clang_for, no_hiprtc}));
  EXPECT_EQ(other.probe(pointers, 0).why_not, "AMD Instinct MI250X is gfx1036, which none of the 3 HIP archs is for");
}

TEST(HipProbe, WithoutALibraryTheRefusalTellsWhatWasLookedFor) {
  auto& backend = bare_backend();
  EXPECT_EQ(backend.device_count(), 0);
  const auto probe = backend.probe({}, 0);
  EXPECT_FALSE(probe.available);
  EXPECT_EQ(probe.why_not, "no HIP run-time library: looked for libno_such_amdhip64.so.6");
  std::string why_not;
  EXPECT_FALSE(backend.can_compile(hip_arch("gfx942"), why_not));
  EXPECT_EQ(why_not, "no clang that compiles for gfx942; no hipRTC");
  const auto image = hip_image(small_source);
  EXPECT_EQ(words_of<DeviceError>([&] { backend.load_bytes(hand_made_code_object(), image); }),
            "cannot load toy.gpu.hip_gfx90a: no HIP run-time library: looked for libno_such_amdhip64.so.6");
  EXPECT_EQ(words_of<DeviceError>([&] { backend.launch(request_for(nullptr), nullptr); }),
            "no HIP run-time library: looked for libno_such_amdhip64.so.6");
}

// The real library, where it is: no device is no fault.
TEST(HipProbe, TheRealLibraryWithoutADeviceSaysSo) {
  const auto driver = load_driver(driver_candidates());
  if (!driver.found()) GTEST_SKIP() << driver.why_not;
  const Platform platform(driver);
  if (platform.count() > 0) GTEST_SKIP() << "there is a device";
  EXPECT_NE(platform.why_not().find(" finds no device: hipError"), std::string::npos) << platform.why_not();
}

TEST(HipLoad, RefusesWhatIsNoCodeObjectForTheImage) {
  auto& backend = fake_backend();
  const auto refused = [&](const std::string& bytes) {
    return words_of<std::runtime_error>([&] { backend.load_bytes(bytes, hip_image(small_source)); });
  };
  EXPECT_TRUE(
      refused("__CLANG_OFFLOAD_BUNDLE__...").starts_with("the binary of toy.gpu.hip_gfx90a cannot be used: it is an offload bundle"));
  EXPECT_EQ(refused(hand_made_code_object("gfx942", 0x4c)), "the binary of toy.gpu.hip_gfx90a is for gfx942, expected hip:gfx90a");
  EXPECT_EQ(
      words_of<DeviceError>([&] { backend.load_bytes(hand_made_code_object("gfx1100", 0x41), hip_image(small_source, "gfx1100")); }),
      "toy.gpu.hip_gfx1100 is for hip:gfx1100, which no device here runs: AMD Instinct MI250X (gfx90a), AMD Instinct MI250X (gfx942)");
  cuda::FakeDriver::instance().next_result["load"] = 209;
  EXPECT_TRUE(refused(hand_made_code_object("gfx90a", 0x3f, "of_a_bad_binary")).starts_with("loading toy.gpu.hip_gfx90a, "))
      << "no binary for the GPU";
}

TEST(HipLaunch, GoesToTheDeviceWithAModuleOfItsOwn) {
  auto& backend = fake_backend();
  FakeHip::instance().archs = {"gfx90a", "gfx90a"};
  const auto module = backend.load_bytes(hand_made_code_object(), hip_image(small_source));
  EXPECT_EQ(module->entry("absent"), nullptr);
  auto* entry = module->entry("fill");
  ASSERT_NE(entry, nullptr);
  for (const int device : {0, 1, 1}) backend.launch(request_for(entry, device), nullptr);
  const auto& launches = cuda::FakeDriver::instance().launches;
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(launches[0].kernel, "fill");
  EXPECT_EQ(launches[0].device, 0);
  EXPECT_EQ(launches[2].device, 1);
  EXPECT_EQ(FakeHip::instance().calls, std::vector<std::string>({"module on 0", "module on 1"}));
  EXPECT_EQ(FakeHip::instance().current, 0) << "the thread's device is as it was";
}

TEST(HipLaunch, RefusesWhatHipCannotStart) {
  auto& backend = fake_backend();
  auto* entry = backend.load_bytes(hand_made_code_object("gfx90a", 0x3f, "scale"), hip_image(small_source))->entry("scale");
  ASSERT_NE(entry, nullptr);
  EXPECT_NE(words_of<DeviceError>([&] {
              backend.launch(request_for(entry, 0, 1 << 24), nullptr);
            }).find("HIP starts at most 4294967295 threads in a dimension of a grid"),
            std::string::npos);
  auto wide = request_for(entry);
  wide.shared_bytes = 65537;
  EXPECT_NE(words_of<DeviceError>([&] { backend.launch(wide, nullptr); }).find("a block of AMD Instinct MI250X has at most 65536 bytes"),
            std::string::npos);
  EXPECT_EQ(words_of<DeviceError>([&] { backend.launch(request_for(entry, 7), nullptr); }),
            "there is no device hip:7; this process sees 2");
}

TEST(HipLaunch, AFaultIsToldAndTheDeviceIsLost) {
  auto& backend = fake_backend();
  auto* entry = backend.load_bytes(hand_made_code_object("gfx90a", 0x3f, "fetch"), hip_image(small_source))->entry("fetch");
  backend.launch(request_for(entry), nullptr);
  cuda::FakeDriver::instance().next_result["launch"] = 700;
  const auto first = words_of<DeviceError>([&] { backend.launch(request_for(entry), nullptr); });
  EXPECT_NE(first.find("hipErrorIllegalAddress: the library's words"), std::string::npos) << first;
  cuda::FakeDriver::instance().next_result.clear();
  const auto later = words_of<DeviceError>([&] { backend.launch(request_for(entry), nullptr); });
  EXPECT_TRUE(later.starts_with("hip:0: the device's context is lost since launching toy.gpu.hip_gfx90a/fetch on hip:0")) << later;
}

TEST(HipMemory, IsTheSharedCode) {
  auto& backend = fake_backend();
  auto* memory = backend.memory();
  void* tensor = memory->allocate(1, 64);
  const int sent = 7;
  int back = 0;
  memory->copy_to_device(1, tensor, &sent, sizeof sent);
  memory->copy_to_host(1, &back, tensor, sizeof back);
  EXPECT_EQ(back, 7);
  memory->free(1, tensor);
  EXPECT_TRUE(cuda::FakeDriver::instance().memory.empty());
  void* stream = tensor;  // any address that is not null
  backend.release_workspace(0, stream, backend.acquire_workspace(0, stream, 128));
  EXPECT_TRUE(cuda::FakeDriver::instance().memory.empty());
  void* scratch = backend.acquire_workspace(0, nullptr, 128);
  backend.release_workspace(0, nullptr, scratch);
  EXPECT_EQ(backend.acquire_workspace(0, nullptr, 128), scratch) << "the default stream's is kept";
}

}  // namespace
}  // namespace ejk::hip
