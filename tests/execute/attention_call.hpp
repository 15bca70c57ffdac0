// A legal call of a kernel by name, to be spoiled or rearranged by a test; outputs hold 7 until a kernel writes them.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ejk/ejk.hpp"

namespace ejk {

// Row-major strides of a shape.
inline std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  return strides;
}

class NamedCall {
 public:
  static constexpr float untouched = 7;

  explicit NamedCall(std::string kernel_name) : kernel(std::move(kernel_name)) {}

  // Zeros for inputs, `untouched` for outputs; replaces one of the same name.
  NamedCall& add(const std::string& name, DType type, const std::vector<std::int64_t>& shape) {
    Tensor tensor(type, shape);
    std::fill_n(tensor.data<char>(), tensor.view().elements() * size_of(type), '\0');
    if (type == DType::f32 && (name == "out" || name == "lse")) std::fill_n(tensor.data<float>(), tensor.view().elements(), untouched);
    views[name] = tensor.view();
    memory[name] = std::move(tensor);
    return *this;
  }
  NamedCall& add(const std::string& name, const std::vector<std::int32_t>& values) {
    add(name, DType::i32, {static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), memory.at(name).data<std::int32_t>());
    return *this;
  }
  NamedCall& strides(const std::string& name, const std::vector<std::int64_t>& strides) {
    std::copy(strides.begin(), strides.end(), views.at(name).strides);
    return *this;
  }
  NamedCall& set(const std::string& attribute, Value value) {
    attributes[attribute] = std::move(value);
    return *this;
  }
  NamedCall& remove(const std::string& name) {
    views.erase(name);
    return *this;
  }

  Status run(const Config* config = nullptr) const { return call(kernel, views, attributes, {}, config); }

  // The message without "kernel: " in front; "" if the call succeeds.
  std::string message(const Config* config = nullptr) const {
    const auto status = run(config);
    if (status) return "";
    const auto& text = status.error().message;
    return text.starts_with(kernel + ": ") ? text.substr(kernel.size() + 2) : "without the kernel's name: " + text;
  }

  bool outputs_untouched() const {
    for (const auto* name : {"out", "lse"}) {
      const auto tensor = memory.find(name);
      if (tensor == memory.end() || tensor->second.view().type != DType::f32) continue;
      const auto* values = tensor->second.data<float>();
      if (!std::all_of(values, values + tensor->second.view().elements(), [](float v) { return v == untouched; })) return false;
    }
    return true;
  }

  std::string kernel;
  std::map<std::string, TensorView> views;
  std::map<std::string, Value> attributes;
  std::map<std::string, Tensor> memory;
};

// q [2, 3, 4, 8], k [2, 5, 2, 8], v [2, 5, 2, 16].
inline NamedCall batched_attention() {
  NamedCall call("flash_attention");
  call.add("q", DType::f32, {2, 3, 4, 8}).add("k", DType::f32, {2, 5, 2, 8}).add("v", DType::f32, {2, 5, 2, 16});
  call.add("out", DType::f32, {2, 3, 4, 16}).add("lse", DType::f32, {2, 4, 3});
  return call;
}

// Two sequences of 2 and 1 queries, 3 and 2 keys.
inline NamedCall packed_attention() {
  NamedCall call("flash_attention");
  call.add("q", DType::f32, {3, 4, 8}).add("k", DType::f32, {5, 2, 8}).add("v", DType::f32, {5, 2, 16});
  call.add("cum_seqlens_q", {0, 2, 3}).add("cum_seqlens_k", {0, 3, 5});
  call.add("out", DType::f32, {3, 4, 16}).add("lse", DType::f32, {4, 3});
  return call;
}

// x [2, 5, 6].
inline NamedCall batched_pooling() {
  NamedCall call("mean_pooling");
  call.add("x", DType::f32, {2, 5, 6}).add("out", DType::f32, {2, 6});
  return call;
}

// x [7, 6], sequences of 3 and 4 tokens.
inline NamedCall packed_pooling() {
  NamedCall call("mean_pooling");
  call.add("x", DType::f32, {7, 6}).add("cum_seqlens", {0, 3, 7}).add("out", DType::f32, {2, 6});
  return call;
}

// Two sequences of at most 3 pages of 4 tokens, 2 kv heads of 8; page 6 is the last of the cache.
inline NamedCall paged_attention() {
  NamedCall call("page_attention");
  call.add("query", DType::f32, {2, 4, 8}).add("key_cache", DType::f32, {7, 2, 4, 8}).add("value_cache", DType::f32, {7, 2, 4, 8});
  call.add("context_lens", {5, 12})
      .add("block_tables", DType::i32, {2, 3})
      .add("out", DType::f32, {2, 4, 8})
      .add("lse", DType::f32, {2, 4});
  return call;
}

// lhs [7, 6], groups of 3, 0 and 4 rows, rhs [3, 6, 5].
inline NamedCall ragged_matmul() {
  NamedCall call("grouped_matmul");
  call.add("lhs", DType::f32, {7, 6}).add("rhs", DType::f32, {3, 6, 5}).add("group_sizes", {3, 0, 4}).add("out", DType::f32, {7, 5});
  return call;
}

// Its weight gradient.
inline NamedCall ragged_gradient() {
  NamedCall call("tgmm");
  call.add("lhs", DType::f32, {7, 6}).add("dout", DType::f32, {7, 5}).add("group_sizes", {3, 0, 4}).add("out", DType::f32, {3, 6, 5});
  return call;
}

}  // namespace ejk
