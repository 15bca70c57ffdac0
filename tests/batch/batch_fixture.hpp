// Tensors with numbers in them, and a mapped call held against the loop it stands for.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "execute/store_fixture.hpp"

namespace ejk {

class BatchTest : public StoreTest {
 protected:
  // A block of memory with a view of any strides; `span` elements long.
  struct Block {
    std::shared_ptr<std::vector<std::byte>> memory;
    TensorView view;
  };

  Block block(DType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {}) {
    TensorView view(nullptr, type, shape);
    if (!strides.empty()) std::copy(strides.begin(), strides.end(), view.strides);
    std::int64_t last = 0;
    for (int i = 0; i < view.rank; ++i) last += std::max<std::int64_t>(view.shape[i] - 1, 0) * view.strides[i];
    Block result{std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>((last + 1) * size_of(type)) + 64), view};
    const auto address = reinterpret_cast<std::uintptr_t>(result.memory->data());
    result.view.data = result.memory->data() + (64 - address % 64) % 64;
    fill(result.view, last + 1);
    blocks_.push_back(result.memory);
    return result;
  }
  TensorView tensor(DType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {}) {
    return block(type, std::move(shape), std::move(strides)).view;
  }

  void fill(const TensorView& view, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (view.type == DType::f32) static_cast<float*>(view.data)[i] = std::uniform_real_distribution<float>(-1, 1)(random_);
      if (view.type == DType::bf16)
        static_cast<std::uint16_t*>(view.data)[i] = static_cast<std::uint16_t>(0x3f00 + random_() % 256 + (random_() & 1) * 0x8000);
      if (view.type == DType::boolean) static_cast<bool*>(view.data)[i] = random_() % 4 != 0;
      if (view.type == DType::i32) static_cast<std::int32_t*>(view.data)[i] = static_cast<std::int32_t>(i / 3);
    }
  }

  // The exit status of work in another process, with this one's cache.
  template <class Work>
  static int fork_and_wait(Work work) {
    const auto child = fork();
    if (child == 0) _exit(work() ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }

  static TensorView part(const TensorView& view, int axis, std::int64_t index) {
    auto result = view;
    result.data = static_cast<char*>(view.data) + index * view.strides[axis] * size_of(view.type);
    for (int i = axis; i + 1 < view.rank; ++i) result.shape[i] = view.shape[i + 1], result.strides[i] = view.strides[i + 1];
    --result.rank;
    return result;
  }

  static std::size_t bytes_of(const TensorView& view) {
    std::int64_t last = 0;
    for (int i = 0; i < view.rank; ++i) last += std::max<std::int64_t>(view.shape[i] - 1, 0) * view.strides[i];
    return static_cast<std::size_t>((last + 1) * size_of(view.type));
  }

  // vmap_with_config, then the loop by hand into other memory: equal bits. outputs: names. Returns the report.
  BatchReport same_as_loop(const std::string& kernel, std::map<std::string, TensorView> tensors, const std::vector<std::string>& outputs,
                           const Values& attributes = {}, const Axes& axes = {}, const Config* config = nullptr) {
    auto report = vmap_with_config(kernel, tensors, attributes, axes, {}, config);
    EXPECT_TRUE(report) << message_of(report);
    if (!report) return {};
    auto by_loop = tensors;
    std::vector<std::shared_ptr<std::vector<std::byte>>> kept;
    for (const auto& name : outputs) {
      auto& view = by_loop.at(name);
      auto other = block(view.type, {view.shape, view.shape + view.rank}, {view.strides, view.strides + view.rank});
      std::memset(other.view.data, 0x7b, bytes_of(view));
      view.data = other.view.data;
    }
    for (std::int64_t i = 0; i < report->calls; ++i) {
      std::map<std::string, TensorView> one;
      for (const auto& [name, view] : by_loop) {
        const auto axis = axes.contains(name) ? axes.at(name) : std::optional<int>(0);
        one.emplace(name, axis ? part(view, *axis < 0 ? *axis + view.rank : *axis, i) : view);
      }
      const auto status = call(kernel, one, attributes, {}, &report->config);
      EXPECT_TRUE(status) << message_of(status);
    }
    for (const auto& name : outputs) expect_equal(tensors.at(name), by_loop.at(name), name);
    return *report;
  }

  static void expect_equal(const TensorView& a, const TensorView& b, const std::string& name) {
    std::int64_t index[max_rank] = {}, differing = 0;
    for (std::int64_t n = 0; n < a.elements(); ++n) {
      std::int64_t offset = 0;
      for (int i = 0; i < a.rank; ++i) offset += index[i] * a.strides[i];
      const auto bytes = size_of(a.type);
      differing += std::memcmp(static_cast<char*>(a.data) + offset * bytes, static_cast<char*>(b.data) + offset * bytes,
                               static_cast<std::size_t>(bytes)) != 0;
      for (int i = a.rank; i-- > 0 && ++index[i] == a.shape[i];) index[i] = 0;
    }
    EXPECT_EQ(differing, 0) << name;
  }

 private:
  std::mt19937 random_{7};
  std::vector<std::shared_ptr<std::vector<std::byte>>> blocks_;
};

}  // namespace ejk
