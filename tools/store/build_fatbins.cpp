// Grouping images by id without arch, and writing their fatbins.
#include "store/build_fatbins.hpp"

#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "backends/cuda/fatbin.hpp"
#include "backends/process/owner.hpp"
#include "store/files.hpp"

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;
using Groups = std::map<fs::path, std::map<int, cuda::FatbinMember>>;  // by file, by SM number

// "k.gpu.cuda_sm_90a.f32" → "k.gpu.cuda.f32"
std::string id_without_arch(const spec::Image& image, const spec::Arch& arch) {
  const auto word = arch.platform + "_" + arch.name;
  auto id = image.id;
  if (const auto at = id.find(word); at != std::string::npos) id.replace(at, word.size(), arch.platform);
  return id;
}

// Whether the store holds the image; its cubin is then in the groups.
bool add(Groups& groups, const store::Store& store, const store::BuildItem& item) {
  const auto sm = cuda::parse_sm(item.arch->name);
  auto found = store.find(item.image, "cu", "cubin");
  if (!sm || found.verdict != store::Verdict::hit) return false;
  groups[fs::path(item.image.kernel) / (id_without_arch(item.image, *item.arch) + ".fatbin")][sm->number()] = {*sm, std::move(found.bytes)};
  return true;
}

void write(const fs::path& path, const std::string& bytes) {
  store::make_folders(path.parent_path());
  const auto temporary = path.parent_path() / owned_name(".tmp-");
  store::write_synced(temporary, bytes);
  fs::rename(temporary, path);
}

}  // namespace

FatbinReport write_fatbins(const store::Store& store, std::span<const store::BuildItem> items) {
  FatbinReport report;
  auto root = store.root().lexically_normal();
  if (!root.has_filename()) root = root.parent_path();  // "store/"
  report.folder = root.string() + ".fatbin";
  Groups groups;
  for (const auto& item : items)
    if (item.arch->platform == "cuda") report.without += !add(groups, store, item);
  for (auto& [file, members] : groups) {
    std::vector<cuda::FatbinMember> list;
    for (auto& [sm, member] : members) list.push_back(std::move(member));
    write(report.folder / file, cuda::make_fatbin(list));
    ++report.written;
  }
  return report;
}

}  // namespace ejk::tools
