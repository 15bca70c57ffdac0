// libFuzzer: whatever lies in an entry's folder, it is found only if it is the image that was asked for and its binary is whole.
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "fuzz/scratch.hpp"
#include "store/files.hpp"
#include "store/store.hpp"

namespace {

using namespace ejk;
namespace fs = std::filesystem;

spec::Image asked_for() {
  spec::Image image;
  image.kernel = "toy";
  image.id = "toy.plain.cpu_generic.one";
  image.arch = "cpu:generic";
  image.hash = "0123456789abcdef";
  image.source = "int f();\n";
  return image;
}

// What stands in place of a file of the entry.
void put(const fs::path& path, char kind, const std::string& bytes) {
  if (kind == 'd') fs::create_directory(path);
  if (kind == 'p') (void)mkfifo(path.c_str(), 0600);
  if (kind == 'l') fs::create_symlink("/dev/zero", path);
  if (kind == 'n') fs::create_symlink("nowhere", path);
  if (kind == 'd' || kind == 'p' || kind == 'l' || kind == 'n' || kind == '-') return;
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

// Two letters say what image.json and the binary are; then the text of the one, a zero byte, the bytes of the other.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Scratch scratch;
  if (size < 2) return 0;
  const std::string all(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto end = std::min(all.find('\0'), all.size());
  const auto text = all.substr(0, end), binary = all.substr(std::min(end + 1, all.size()));
  const auto image = asked_for();
  const store::Store store(scratch.path(), true);
  const auto entry = store.entry_path(image);
  fs::create_directories(entry);
  put(entry / "image.json", static_cast<char>(data[0]), text);
  put(entry / "binary.so", static_cast<char>(data[1]), binary);
  const auto found = store.find(image, "cpp", "so");
  if (found.verdict == store::Verdict::hit) {
    const bool whole = store::sha256_hex(binary) == found.info.binary_sha256;
    if (!whole || found.info.id != image.id || found.info.arch != image.arch || found.info.source_hash != image.hash) std::abort();
  } else if (found.why.empty()) {
    std::abort();
  }
  (void)store.failed_log(image, text);
  (void)store::failure_compiler(text);
  store.set_aside(image);
  if (store.find(image, "cpp", "so").verdict != store::Verdict::miss) std::abort();
  fs::remove_all(scratch.path() / "toy");
  return 0;
}
