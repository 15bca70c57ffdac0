// The invocation key: what tuning records and the memory tier are found by.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "ejk/kernel.hpp"

namespace ejk {
namespace {

using nlohmann::json;

bool is_contiguous(const TensorView& view) {
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    if (view.shape[i] != 1 && view.strides[i] != stride) return false;
    if (__builtin_mul_overflow(stride, std::max<std::int64_t>(view.shape[i], 1), &stride))
      stride = std::numeric_limits<std::int64_t>::max();  // as TensorView has it: a recorded shape may be any
  }
  return true;
}

json tensor_json(const TensorView& view) {
  json node = json::array({std::string(name_of(view.type))});
  node.push_back(std::vector<std::int64_t>(view.shape, view.shape + view.rank));
  if (!is_contiguous(view)) node.push_back(std::vector<std::int64_t>(view.strides, view.strides + view.rank));
  return node;
}

}  // namespace

std::string Invocation::key() const {
  json object = {{"kernel", kernel}, {"device", device}, {"tensors", json::object()}, {"attributes", json::object()}};
  for (const auto& [name, view] : tensors) object["tensors"][name] = tensor_json(view);
  for (const auto& [name, value] : attributes)
    if (std::find(varying.begin(), varying.end(), name) == varying.end())
      object["attributes"][name] = std::visit([](const auto& v) { return json(v); }, value);
  return object.dump();
}

}  // namespace ejk
