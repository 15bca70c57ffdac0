// The wanted image, rendered anew, against the entries of each place.
#include "cache_miss.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "arguments.hpp"
#include "cache_entries.hpp"
#include "command.hpp"
#include "library_options.hpp"
#include "spec/image.hpp"
#include "spec/suggest.hpp"
#include "store/files.hpp"

namespace ejk::tools {
namespace {

struct Wanted {
  spec::Image image;
  Backend* backend = nullptr;
};

// Every arch of the catalogue counts: a miss may be about another machine's image. Devices' own properties come first where it runs here.
const spec::Arch& arch_here(const spec::Arch& listed) {
  for (const auto& machine : Library::instance().parts().machines)
    if (const auto* here = machine.arch(listed.full_name())) return *here;
  return listed;
}

// Searches cases × variants × archs × configs for the id.
Wanted wanted_image(const KernelHandle& kernel, const std::string& id) {
  const auto& spec = *kernel.spec;
  const auto& catalogue = Library::instance().parts().catalogue;
  std::vector<std::string> known;
  for (const auto& c : spec.cases) {
    const auto binding = spec::bind(spec, spec::facts_of(spec, c));
    for (const auto& variant : spec.variants)
      for (const auto* listed : catalogue.archs_of(variant)) {
        const auto& arch = arch_here(*listed);
        if (spec::refusal(variant, arch, binding)) continue;
        for (const auto& config : spec::config_space(variant, arch, binding)) {
          spec::VariantScope scope(variant, arch, binding);
          scope.set_config(config);
          known.push_back(spec::image_id(scope, config));
          if (known.back() == id)
            return {spec::make_image(spec, variant, arch, binding, config, catalogue.templates()), backend_of(arch.platform)};
        }
      }
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  const auto near = spec::suggestion(id, known);
  throw UsageError(fmt::format(
      "no case of {} makes an image '{}'{}", kernel.name, id,
      near.starts_with("; did you mean") ? near : fmt::format("; it makes {} others (ejk-gen SPECS --select all --list)", known.size())));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void print_first_difference(const std::string& stored, const std::string& rendered) {
  const auto a = lines_of(stored), b = lines_of(rendered);
  std::size_t line = 0;
  while (line < a.size() && line < b.size() && a[line] == b[line]) ++line;
  fmt::print("    first differing line: {}\n      stored   {}\n      wanted   {}\n", line + 1, line < a.size() ? a[line] : "(end of file)",
             line < b.size() ? b[line] : "(end of file)");
}

std::vector<std::string> parts_of(const std::string& id) {
  std::vector<std::string> parts;
  std::istringstream stream(id);
  for (std::string part; std::getline(stream, part, '.');) parts.push_back(part);
  return parts;
}

std::size_t differing(const std::string& a, const std::string& b) {
  const auto x = parts_of(a), y = parts_of(b);
  std::size_t count = std::max(x.size(), y.size()) - std::min(x.size(), y.size());
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) count += x[i] != y[i];
  return count;
}

// Entries of the same id: another source. Otherwise the entry whose id differs in the fewest parts.
void print_nearest(const Wanted& wanted, const std::vector<CacheEntry>& entries) {
  const CacheEntry* nearest = nullptr;
  for (const auto& entry : entries) {
    if (entry.kernel != wanted.image.kernel || entry.kind != CacheEntry::Kind::image) continue;
    if (!nearest || differing(entry.id, wanted.image.id) < differing(nearest->id, wanted.image.id)) nearest = &entry;
  }
  if (!nearest) {
    fmt::print("    it has no image of {}\n", wanted.image.kernel);
  } else if (nearest->id != wanted.image.id) {
    fmt::print("    nearest: {}\n", nearest->id);
    const auto x = parts_of(nearest->id), y = parts_of(wanted.image.id);
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (x[i] != y[i]) fmt::print("    differs: {} there, {} wanted\n", x[i], y[i]);
  } else {
    fmt::print("    the same id is there with source hash {}, wanted {}: it was made from another spec, template or version\n",
               nearest->hash, wanted.image.hash);
    std::string why;
    if (const auto stored = store::read_file(nearest->path / ("source." + wanted.backend->source_extension()), store::binary_limit, why))
      print_first_difference(*stored, wanted.image.source);
    else
      fmt::print("    its source cannot be compared: {}\n", why);
  }
}

// True: a hit.
bool ask(const store::Store& place, const char* role, const Wanted& wanted) {
  const auto found = place.find(wanted.image, wanted.backend->source_extension(), wanted.backend->binary_extension());
  fmt::print("  {} {}: ", role, place.root().string());
  if (found.verdict == store::Verdict::hit) {
    fmt::print("hit, compiled by {}\n", found.info.compiler);
    return true;
  }
  fmt::print("{}: {}\n", found.verdict == store::Verdict::bad ? "bad" : "miss", found.why);
  print_nearest(wanted, entries_of(place.root()));
  return false;
}

}  // namespace

int why_miss(const std::string& id) {
  const auto& kernel = kernel_named(id.substr(0, id.find('.')));
  const auto wanted = wanted_image(kernel, id);
  if (!wanted.backend) throw UsageError(fmt::format("this build of ejk has no backend for {}", wanted.image.arch));
  fmt::print("{}, source hash {}\n", id, wanted.image.hash);
  const auto& places = Library::instance().parts().places;
  bool hit = false;
  if (places.user)
    hit = ask(*places.user, "user cache", wanted);
  else
    fmt::print("  user cache: none: {}\n", places.why_no_user);
  for (const auto& pack : places.packs) hit = ask(pack, "pack", wanted) || hit;
  return hit ? exit_done : exit_failed;
}

}  // namespace ejk::tools
