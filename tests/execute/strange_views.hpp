// Views of every kind, and a call on them against the float64 reference.
#pragma once
#include <functional>
#include <memory>

#include "execute/placed_tensor.hpp"
#include "execute/store_fixture.hpp"
#include "references/calls.hpp"

namespace ejk {

using reference::Arrangement;
using reference::HostTensor;
using reference::Layout;
using Dims = std::map<std::string, spec::Value>;
using Strides = std::vector<std::int64_t>;

constexpr std::int64_t far_step = (std::int64_t{1} << 31) + 64;  // elements: 8 GiB of f32

// Chooses the strides of a tensor from its shape.
using Place = std::function<Strides(const HostTensor&)>;

// Runs the call with the config and compares its outputs with the reference.
inline void expect_right(reference::Call call, const Config& config, const Place& place = {}, std::int64_t misalign = 0) {
  const auto execute = [&](reference::Call& each) {
    std::map<std::string, TensorView> views;
    std::vector<std::pair<HostTensor*, std::unique_ptr<PlacedTensor>>> placed;
    for (auto* list : {&each.inputs, &each.outputs})
      for (auto& tensor : *list) {
        views[tensor.name()] = tensor.view();
        if (!place || tensor.name().starts_with("cum_seqlens")) continue;
        placed.emplace_back(&tensor, std::make_unique<PlacedTensor>(tensor, place(tensor), misalign));
        views[tensor.name()] = placed.back().second->view();
      }
    const auto status = ejk::call(each.spec->kernel, views, each.attributes, {}, &config);
    if (!status) throw std::runtime_error(status.error().message);
    for (auto& output : each.outputs)
      for (auto& [tensor, copy] : placed)
        if (tensor == &output) copy->copy_back(output);
  };
  try {
    EXPECT_EQ(reference::first_failure(verify_call(*reference::find_reference(call.spec->kernel), call, execute)), "") << call.label;
  } catch (const std::exception& error) {
    ADD_FAILURE() << call.label << " on " << config.variant << ": " << error.what();
  }
}

// Dimension 0 steps over 8 GiB, the others lie close.
inline Strides far_apart(const HostTensor& tensor) {
  auto strides = tensor.strides();
  if (strides.size() > 1) strides[0] = far_step;
  return strides;
}

// The second dimension from the end steps over 8 GiB, and dimension 0 over more.
inline Strides far_rows(const HostTensor& tensor) {
  Strides strides(tensor.shape().size(), 1);
  for (std::size_t i = strides.size() - 1; i-- > 0;)
    strides[i] = i + 2 == strides.size() ? far_step : strides[i + 1] * tensor.shape()[i + 1] + 8;
  return strides;
}

// Every outer dimension runs backwards in memory.
inline Strides backwards(const HostTensor& tensor) {
  auto strides = tensor.strides();
  for (std::size_t i = 0; i + 1 < strides.size(); ++i) strides[i] = -strides[i];
  return strides;
}

// The outer dimensions in reverse order.
inline Strides transposed(const HostTensor& tensor) {
  Strides strides(tensor.shape().size(), 1);
  std::int64_t step = tensor.shape().empty() ? 1 : tensor.shape().back();
  for (std::size_t i = 0; i + 1 < strides.size(); ++i) {
    strides[i] = step;
    step *= tensor.shape()[i];
  }
  return strides;
}

}  // namespace ejk
