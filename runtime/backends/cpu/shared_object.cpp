// dlopen of bytes, through an anonymous file that is sealed before the loader reads it.
#include "backends/cpu/shared_object.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "backends/gpu/elf_sections.hpp"

namespace ejk {
namespace {

class SharedObject final : public Module {
 public:
  explicit SharedObject(void* handle) : handle_(handle) {}
  ~SharedObject() override { dlclose(handle_); }
  void* entry(const std::string& name) override { return dlsym(handle_, ("ejk_" + name).c_str()); }

 private:
  void* handle_;
};

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

int memory_file(const std::string& name) {
  const auto short_name = name.substr(0, 200);  // the system's limit is 249
#ifdef MFD_EXEC
  const int fd = memfd_create(short_name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
  if (fd >= 0 || errno != EINVAL) return fd;  // EINVAL: a kernel older than the flag
#endif
  return memfd_create(short_name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

// Where code may not be run from memory: a file without a name, which nobody else can open.
int nameless_file() {
  const char* chosen = std::getenv("TMPDIR");
  const int fd = chosen && *chosen ? open(chosen, O_TMPFILE | O_RDWR | O_CLOEXEC, 0700) : -1;
  return fd >= 0 ? fd : open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0700);
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

// A name that no other load of this process has: the loader takes a name that it knows for the object that it knows by it, and the
// descriptor's number may be another file's by then. "//" and "/./" lead nowhere else: they write a number.
std::string unique_name(int fd) {
  static std::atomic<std::uint32_t> count{0};
  std::string name = "/proc/self";
  for (auto rest = ++count; rest; rest /= 2) name += rest % 2 ? "/." : "/";
  return fmt::format("{}/fd/{}", name, fd);
}

// nullptr with the reason.
void* open_object(int fd, const std::string& binary, std::string& why_not) {
  const auto say = [&](const std::string& what) {
    why_not = what;
    return nullptr;
  };
  if (!write_all(fd, binary)) return say(fmt::format("{} bytes do not fit: {}", binary.size(), std::strerror(errno)));
  (void)fcntl(fd, F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);  // of memory alone; nothing else has a name for it
  const auto name = unique_name(fd);
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return say(loader_words());
  const link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name == name) return handle;
  dlclose(handle);  // taken for one that is loaded, by the number of its inode
  return say("the loader takes it for another object");
}

}  // namespace

std::unique_ptr<Module> load_shared_object_bytes(const std::string& binary, const std::string& name) {
  std::string from_memory, from_file;
  {
    const Descriptor file{memory_file(name)};
    if (file.value < 0)
      from_memory = fmt::format("memfd_create: {}", std::strerror(errno));
    else if (void* handle = open_object(file.value, binary, from_memory))
      return std::make_unique<SharedObject>(handle);
  }
  const Descriptor file{nameless_file()};
  if (file.value >= 0)
    if (void* handle = open_object(file.value, binary, from_file)) return std::make_unique<SharedObject>(handle);
  throw std::runtime_error(fmt::format("cannot load {} from memory: {}", name, from_memory));
}

std::int64_t elf_code_bytes(const std::string& binary) {
  Elf64_Ehdr header;
  if (!read_at(binary, 0, header) || !is_elf64(header)) return 0;
  std::int64_t total = 0;
  return read_sections(binary, header, total, [](const Elf64_Shdr&) {}).empty() ? total : 0;
}

}  // namespace ejk
