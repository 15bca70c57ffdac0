// safetensors files: round trips, determinism, and an exact message for each way a file can be broken.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>

#include "tests/growth.hpp"
#include "tools/command_line/safetensors.hpp"

namespace ejk::tools {
namespace {

using reference::HostTensor;
using Numbers = std::vector<double>;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "safetensors-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path file() const { return folder_ / "t.safetensors"; }
  void put(const std::string& bytes) const { std::ofstream(file(), std::ios::binary) << bytes; }
  void put(const std::string& header, std::size_t data_bytes) const {
    const std::uint64_t length = header.size();
    put(std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data_bytes, '\2'));
  }
  std::string bytes() const {
    std::ifstream stream(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  // The message without the path.
  std::string error() const {
    try {
      read_safetensors(file());
    } catch (const std::runtime_error& e) {
      const std::string message = e.what(), prefix = file().string() + ": ";
      return message.starts_with(prefix) ? message.substr(prefix.size()) : "without the path: " + message;
    }
    return "";
  }
  std::string error_of(const std::string& header, std::size_t data_bytes) const {
    put(header, data_bytes);
    return error();
  }

  std::filesystem::path folder_;
};

TEST_F(Safetensors, EveryTypeSurvivesTheRoundTrip) {
  std::vector<HostTensor> tensors;
  for (const DType type : all_dtypes())
    tensors.emplace_back(std::string(name_of(type)), type, std::vector<std::int64_t>{2, 3}, Numbers{0, 1, 1, 0, 1, 0});
  tensors.emplace_back("scalar", DType::f32, std::vector<std::int64_t>{}, Numbers{2.5});
  tensors.emplace_back("empty", DType::i32, std::vector<std::int64_t>{4, 0}, Numbers{});
  write_safetensors(file(), tensors);
  const std::vector<HostTensor> back = read_safetensors(file());
  ASSERT_EQ(back.size(), tensors.size());
  for (const HostTensor& tensor : tensors) {
    const auto found = std::find_if(back.begin(), back.end(), [&](const HostTensor& t) { return t.name() == tensor.name(); });
    ASSERT_NE(found, back.end()) << tensor.name();
    EXPECT_EQ(found->type(), tensor.type());
    EXPECT_EQ(found->shape(), tensor.shape());
    EXPECT_EQ(found->row_major_bytes(), tensor.row_major_bytes()) << tensor.name();
  }
}

TEST_F(Safetensors, StridedTensorsAreWrittenRowMajorAndLargeIntegersExactly) {
  reference::Rng rng(1);
  reference::Layout layout;
  layout.padded = layout.permuted = true;
  HostTensor tensor("ids", DType::i64, {2, 3, 2}, layout, &rng);
  const std::vector<std::int64_t> numbers{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, std::numeric_limits<std::int64_t>::max() - 1};
  tensor.assign_bytes(std::as_bytes(std::span(numbers)));
  write_safetensors(file(), std::vector{tensor});
  const HostTensor back = read_safetensors(file()).at(0);
  EXPECT_EQ(std::memcmp(back.data(), numbers.data(), 96), 0);
}

TEST_F(Safetensors, TheSameTensorsGiveTheSameBytesInAnyOrder) {
  const HostTensor a("a", DType::f16, {3}, Numbers{1, 2, 3}), b("b", DType::f32, {1}, Numbers{4});
  write_safetensors(file(), std::vector{a, b});
  const std::string first = bytes();
  write_safetensors(file(), std::vector{b, a});
  EXPECT_EQ(first, bytes());
  EXPECT_EQ((first.size() - 10) % 64, 0u) << "the data starts at a multiple of 64";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "no temporary file stays";
}

TEST_F(Safetensors, MetadataIsLegalAndIgnored) {
  EXPECT_EQ(error_of(R"({"__metadata__":{"format":"pt"},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   )", 1), "");
}

TEST_F(Safetensors, FilesThatAreNotSafetensorsAreRefused) {
  put("abc");
  EXPECT_EQ(error(), "holds 3 bytes, a safetensors file starts with 8 that give the header's length");
  put("GIF89a, and more that is no header");
  EXPECT_EQ(error(), "the header's length is given as 2318334806574123335, at most 100000000 are legal; is this a safetensors file?");
  put(std::string("\x40\0\0\0\0\0\0\0{}", 10));
  EXPECT_EQ(error(), "the header's length is given as 64, but the file holds 2 more bytes");
  EXPECT_EQ(error_of("{\"x\":", 0).substr(0, 22), "the header is not JSON");
  EXPECT_EQ(error_of("[1]", 0), "the header is not a JSON object");
  std::filesystem::remove(file());
  EXPECT_EQ(error(), "cannot open: No such file or directory");
}

// A pipe that nobody writes would be waited for; a device has no end.
TEST_F(Safetensors, OnlyRegularFilesAreRead) {
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_EQ(error(), "is not a regular file");
  std::filesystem::remove(file());
  std::filesystem::create_symlink("/dev/zero", file());
  EXPECT_EQ(error(), "is not a regular file");
}

// More than any call has.
TEST_F(Safetensors, AHeaderOfTwentyThousandTensorsIsReadAtOnce) {
  const auto read = [&](int tensors) {
    std::string header = "{";
    for (int i = 0; i < tensors; ++i)
      header += fmt::format(R"({}"t{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i ? "," : "", i, i, i + 1);
    put(header + "}", static_cast<std::size_t>(tensors));
    EXPECT_EQ(read_safetensors(file()).size(), static_cast<std::size_t>(tensors));
  };
  EXPECT_TRUE(test::grows_in_proportion(2'500, read));
}

TEST_F(Safetensors, BrokenTensorsAreNamed) {
  EXPECT_EQ(error_of(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
            "the name 'x' occurs twice in the header");
  EXPECT_EQ(error_of(R"({"x":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}})", 1),
            "tensor 'x' has dtype 'F8_E5M2', expected one of F64, F32, F16, BF16, I64, I32, I8, U8, BOOL, F8_E4M3");
  EXPECT_EQ(error_of(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
            "tensor 'x': data_offsets [0,8] do not hold the 12 bytes of F32 [3]");
  EXPECT_EQ(error_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
            "tensor 'x': data_offsets [8,0] do not hold the 8 bytes of F32 [2]");
  EXPECT_EQ(error_of(R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
            "tensor 'x': shape holds -2, expected integers from 0 up");
  EXPECT_EQ(error_of(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8),
            "tensor 'x' of shape [4294967296,4294967296] is too large");
  EXPECT_EQ(error_of(R"({"x":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1),
            "tensor 'x' has 9 dimensions, at most 8 are supported");
  EXPECT_EQ(error_of(R"({"x":{"dtype":"U8","shape":[1]}})", 1), "tensor 'x' has no data_offsets");
  EXPECT_EQ(error_of(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})", 1),
            "tensor 'x' has an unknown field 'strides'");
  EXPECT_EQ(error_of(R"({"x":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", 1), "tensor 'x': byte 0 is 2, a BOOL is 0 or 1");
}

TEST_F(Safetensors, TensorsMustFillTheFileWithoutOverlap) {
  const std::string x = R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  EXPECT_EQ(error_of(x + "}", 3), "tensor 'x' ends at byte 4 of the data, but the file holds 3; is it cut short?");
  EXPECT_EQ(error_of(x + "}", 5), "the file holds 5 bytes of data, the header describes 4");
  EXPECT_EQ(error_of(x + R"(,"y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6), "tensor 'y' starts at byte 2, within tensor 'x'");
  EXPECT_EQ(error_of(x + R"(,"y":{"dtype":"U8","shape":[1],"data_offsets":[6,7]}})", 7),
            "bytes 4 to 6 of the data, before tensor 'y', belong to no tensor");
}

TEST_F(Safetensors, WritingErrorsNameTheFile) {
  const HostTensor a("a", DType::f16, {1}, Numbers{1});
  const auto message = [&](const std::filesystem::path& path, const std::vector<HostTensor>& tensors) -> std::string {
    try {
      write_safetensors(path, tensors);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message(file(), {a, a}), file().string() + ": two tensors are named 'a'");
  const std::filesystem::path nowhere = folder_ / "none" / "t";
  EXPECT_EQ(message(nowhere, {a}), nowhere.string() + ": cannot create a file beside it: No such file or directory");
}

}  // namespace
}  // namespace ejk::tools
