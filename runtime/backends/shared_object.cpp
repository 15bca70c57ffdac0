// dlopen from a path, or from memory through an anonymous file.
#include "backends/shared_object.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "backends/elf_sections.hpp"

namespace ejk {
namespace {

class SharedObject final : public Module {
 public:
  SharedObject(void* handle, int fd) : handle_(handle), fd_(fd) {}
  ~SharedObject() override {
    dlclose(handle_);
    if (fd_ >= 0) close(fd_);
  }
  void* entry(const std::string& name) override { return dlsym(handle_, ("ejk_" + name).c_str()); }

 private:
  void* handle_;
  int fd_;  // kept open: the loader knows the object by the name /proc/self/fd/<fd>, which must not come to mean another one
};

int anonymous_file(const std::string& name) {
  const auto short_name = name.substr(0, 200);  // the system's limit is 249
#ifdef MFD_EXEC
  const int fd = memfd_create(short_name.c_str(), MFD_CLOEXEC | MFD_EXEC);
  if (fd >= 0 || errno != EINVAL) return fd;  // EINVAL: a kernel older than the flag
#endif
  return memfd_create(short_name.c_str(), MFD_CLOEXEC);
}

bool write_all(int fd, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const auto count = write(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

std::string loader_words() {
  const char* words = dlerror();
  return words ? words : "the loader gives no reason";
}

}  // namespace

std::unique_ptr<Module> load_shared_object(const std::filesystem::path& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw std::runtime_error("cannot load " + path.string() + ": " + loader_words());
  return std::make_unique<SharedObject>(handle, -1);
}

std::unique_ptr<Module> load_shared_object_bytes(const std::string& binary, const std::string& name) {
  const int fd = anonymous_file(name);
  if (fd < 0) throw std::runtime_error(fmt::format("cannot load {} from memory: memfd_create: {}", name, std::strerror(errno)));
  if (!write_all(fd, binary)) {
    const auto reason = fmt::format("cannot load {} from memory: {} bytes do not fit: {}", name, binary.size(), std::strerror(errno));
    close(fd);
    throw std::runtime_error(reason);
  }
  void* handle = dlopen(fmt::format("/proc/self/fd/{}", fd).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const auto words = loader_words();
    close(fd);
    throw std::runtime_error(fmt::format("cannot load {} from memory: {}", name, words));
  }
  return std::make_unique<SharedObject>(handle, fd);
}

std::int64_t elf_code_bytes(const std::string& binary) {
  Elf64_Ehdr header;
  if (!read_at(binary, 0, header) || !is_elf64(header)) return 0;
  std::int64_t total = 0;
  return read_sections(binary, header, total, [](const Elf64_Shdr&) {}).empty() ? total : 0;
}

}  // namespace ejk
