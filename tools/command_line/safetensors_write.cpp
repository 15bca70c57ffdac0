// Writing safetensors files: in one step, the same bytes for the same tensors.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "command_line/safetensors.hpp"
#include "command_line/safetensors_types.hpp"

namespace ejk::tools {
namespace {

using nlohmann::json;
using reference::HostTensor;

const char* name_in_file(DType type) {
  for (const SafetensorsType& known : safetensors_types)
    if (known.type == type) return known.name;
  return "";
}

// Largest elements first: without holes, every tensor then starts at a multiple of its element size.
std::vector<const HostTensor*> in_file_order(std::span<const HostTensor> tensors) {
  std::vector<const HostTensor*> order;
  for (const HostTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const HostTensor* a, const HostTensor* b) {
    return std::pair(-size_of(a->type()), a->name()) < std::pair(-size_of(b->type()), b->name());
  });
  return order;
}

std::string header_of(const std::filesystem::path& path, const std::vector<const HostTensor*>& order) {
  json header = json::object();
  std::int64_t offset = 0;
  for (const HostTensor* tensor : order) {
    const std::int64_t end = offset + tensor->elements() * size_of(tensor->type());
    if (header.contains(tensor->name())) fail(path, fmt::format("two tensors are named '{}'", tensor->name()));
    header[tensor->name()] = {{"dtype", name_in_file(tensor->type())}, {"shape", tensor->shape()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');  // the data starts at a multiple of 64 bytes of the file
  return text;
}

// A file that vanishes unless it is published.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target) : target_(followed(target)), name_(target_.string() + ".XXXXXX") {
    descriptor_ = ::mkstemp(name_.data());
    if (descriptor_ < 0) fail(target_, fmt::format("cannot create a file beside it: {}", std::strerror(errno)));
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!published_) ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    for (const char* next = static_cast<const char*>(data); bytes > 0;) {
      const ssize_t written = ::write(descriptor_, next, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(target_, fmt::format("cannot write: {}", std::strerror(errno)));
      next += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }
  void publish() {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    const bool flushed = ::fchmod(descriptor_, 0666 & ~mask) == 0 && ::fsync(descriptor_) == 0;
    if (!flushed || ::rename(name_.c_str(), target_.c_str()) != 0) fail(target_, fmt::format("cannot write: {}", std::strerror(errno)));
    published_ = true;
  }

 private:
  // Where a link leads. Not a device or a pipe: the rename would put a file in its place.
  static std::filesystem::path followed(const std::filesystem::path& target) {
    std::error_code error;
    const auto status = std::filesystem::status(target, error);
    if (!std::filesystem::exists(status)) return target;
    if (!std::filesystem::is_regular_file(status)) fail(target, "is there and is not a regular file; name another");
    return std::filesystem::canonical(target);
  }

  std::filesystem::path target_;
  std::string name_;
  int descriptor_ = -1;
  bool published_ = false;
};

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const HostTensor> tensors) {
  const std::vector<const HostTensor*> order = in_file_order(tensors);
  const std::string header = header_of(path, order);
  const std::uint64_t header_bytes = header.size();
  TemporaryFile file(path);
  file.write(&header_bytes, sizeof header_bytes);
  file.write(header.data(), header.size());
  for (const HostTensor* tensor : order) {
    const std::vector<std::byte> bytes = tensor->row_major_bytes();
    file.write(bytes.data(), bytes.size());
  }
  file.publish();
}

}  // namespace ejk::tools
