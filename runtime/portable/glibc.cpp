// What libstdc++ and libgcc of a newer glibc ask of it and 2.28 does not have. Linked into the wheel's library and program alone; each name
// stays inside. See tools/glibc_stubs.
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#define INSIDE extern "C" __attribute__((visibility("hidden")))

// 2.33: before it they were inline calls of __xstat. The kernel's struct is glibc's on x86-64.
INSIDE int portable_stat(const char* path, struct stat* out) asm("stat");
int portable_stat(const char* path, struct stat* out) { return static_cast<int>(syscall(SYS_stat, path, out)); }
INSIDE int portable_lstat(const char* path, struct stat* out) asm("lstat");
int portable_lstat(const char* path, struct stat* out) { return static_cast<int>(syscall(SYS_lstat, path, out)); }
INSIDE int portable_fstat(int file, struct stat* out) asm("fstat");
int portable_fstat(int file, struct stat* out) { return static_cast<int>(syscall(SYS_fstat, file, out)); }
INSIDE int portable_fstat64(int file, struct stat* out) asm("fstat64");
int portable_fstat64(int file, struct stat* out) { return static_cast<int>(syscall(SYS_fstat, file, out)); }

INSIDE int portable_fstatat(int folder, const char* path, struct stat* out, int flags) asm("fstatat");
int portable_fstatat(int folder, const char* path, struct stat* out, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, folder, path, out, flags));
}

// 2.36, for std::random_device.
INSIDE std::uint32_t portable_random() asm("arc4random");
std::uint32_t portable_random() {
  std::uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

// 2.32: whether reference counts need no atomic instructions. They always get them.
INSIDE char portable_single_threaded asm("__libc_single_threaded");
char portable_single_threaded = 0;

// 2.35: where an object's table of exception frames is. dl_iterate_phdr tells the same, slower.
namespace {

struct Search {
  std::uintptr_t address;
  struct dl_find_object* found;
};

int look(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  std::uintptr_t low = UINTPTR_MAX, high = 0, frames = 0;
  bool inside = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    const auto start = info->dlpi_addr + header.p_vaddr, end = start + header.p_memsz;
    if (header.p_type == PT_GNU_EH_FRAME) frames = start;
    if (header.p_type != PT_LOAD) continue;
    low = start < low ? start : low;
    high = end > high ? end : high;
    inside |= search.address >= start && search.address < end;
  }
  if (!inside || !frames) return 0;
  search.found->dlfo_flags = 0;
  search.found->dlfo_map_start = reinterpret_cast<void*>(low);
  search.found->dlfo_map_end = reinterpret_cast<void*>(high);
  search.found->dlfo_link_map = nullptr;
  search.found->dlfo_eh_frame = reinterpret_cast<void*>(frames);
  return 1;
}

}  // namespace

INSIDE int portable_find_object(void* address, struct dl_find_object* found) asm("_dl_find_object");
int portable_find_object(void* address, struct dl_find_object* found) {
  Search search{reinterpret_cast<std::uintptr_t>(address), found};
  return dl_iterate_phdr(look, &search) ? 0 : -1;
}
