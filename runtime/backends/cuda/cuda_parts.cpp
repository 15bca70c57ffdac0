// Splitting a source by entries, and compiling its parts on threads.
#include "backends/cuda/cuda_parts.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>

#include "backends/cuda/cubin_archive.hpp"
#include "backends/cuda/cuda_compile.hpp"

namespace ejk::cuda {
namespace {

constexpr std::string_view entry_word = "\nKERNEL(";

// An entry's head in a source: KERNEL(THREADS, BLOCKS).
struct EntryHead {
  std::size_t first, end;  // of it, without the line's end before
  std::string bounds;      // "THREADS, BLOCKS"
};

std::vector<EntryHead> entry_heads(const std::string& source) {
  std::vector<EntryHead> heads;
  for (auto at = source.find(entry_word); at != std::string::npos; at = source.find(entry_word, at + 1)) {
    const auto open = at + entry_word.size();
    int depth = 1;
    auto end = open;
    for (; end < source.size() && depth > 0; ++end) depth += source[end] == '(' ? 1 : source[end] == ')' ? -1 : 0;
    if (depth > 0) return {};
    heads.push_back({at + 1, end, source.substr(open, end - 1 - open)});
  }
  return heads;
}

// Of a vendor's library that may start threads of its own and writes to none: the host's signals are for its own threads.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

class PartCompiler {
 public:
  PartCompiler(const Nvrtc& nvrtc, const spec::Image& image, std::vector<std::string> sources)
      : nvrtc_(nvrtc), image_(image), sources_(std::move(sources)), results_(sources_.size()), thrown_(sources_.size()) {}

  std::vector<CompileResult> run() {
    {
      std::vector<std::jthread> helpers;
      const auto most = std::min<std::size_t>(sources_.size(), std::max(1u, std::thread::hardware_concurrency()));
      try {
        while (helpers.size() + 1 < most)
          helpers.emplace_back([this] {
            block_signals();
            work();
          });
      } catch (const std::system_error&) {  // no thread can be started: those that were, and this one, do it
      }
      work();
    }
    for (const auto& each : thrown_)
      if (each) std::rethrow_exception(each);
    return std::move(results_);
  }

 private:
  void work() noexcept {
    for (auto i = next_++; i < sources_.size(); i = next_++) {
      try {
        results_[i] = compile_cuda_source(nvrtc_, image_, sources_[i]);
      } catch (...) {
        thrown_[i] = std::current_exception();
      }
    }
  }

  const Nvrtc& nvrtc_;
  const spec::Image& image_;
  const std::vector<std::string> sources_;
  std::vector<CompileResult> results_;
  std::vector<std::exception_ptr> thrown_;
  std::atomic<std::size_t> next_{0};
};

// Of all parts: what is added up, else the largest.
spec::Resources resources_of_all(const std::vector<CompileResult>& parts) {
  auto all = parts.front().resources;
  for (std::size_t part = 1; part < parts.size(); ++part)
    for (auto& [name, value] : all)
      for (const auto& [other, more] : parts[part].resources)
        if (other == name) value = name == "code_bytes" || name == "performance_losses" ? value + more : std::max(value, more);
  return all;
}

CompileResult joined(std::vector<CompileResult> parts) {
  for (auto& part : parts)
    if (!part.ok) return std::move(part);
  CompileResult result = parts.front();
  std::vector<std::string> cubins;
  result.resources = resources_of_all(parts);
  result.log.clear();
  result.assembled.clear();
  for (auto& part : parts) {
    result.log += part.log;
    result.assembled.insert(result.assembled.end(), part.assembled.begin(), part.assembled.end());
    cubins.push_back(std::move(part.binary));
  }
  result.binary = join_cubins(cubins);
  return result;
}

}  // namespace

std::vector<std::string> sources_by_entry(const std::string& source) {
  const auto heads = entry_heads(source);
  std::vector<std::string> sources;
  if (heads.size() < 2) return sources;
  for (const auto& own : heads) {
    std::string text;
    std::size_t at = 0;
    for (const auto& head : heads) {
      text.append(source, at, head.first - at);
      text += &head == &own ? source.substr(head.first, head.end - head.first)
                            : fmt::format("template <int> static __global__ void __launch_bounds__({})", head.bounds);
      at = head.end;
    }
    sources.push_back(text.append(source, at));
  }
  return sources;
}

CompileResult compile_cuda_parts(const Nvrtc& nvrtc, const spec::Image& image) {
  auto sources = sources_by_entry(image.source);
  if (sources.empty() || !nvrtc.found()) return compile_cuda_image(nvrtc, image);
  return joined(PartCompiler(nvrtc, image, std::move(sources)).run());
}

}  // namespace ejk::cuda
