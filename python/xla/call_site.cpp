// Reading a call's text; the table of all that this process has read.
#include "call_site.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <unordered_map>

#include "element_types.hpp"

namespace ejk::xla {
namespace {

std::string text_of(const nlohmann::json& node) { return node.is_null() ? std::string() : node.dump(); }

std::string shape_text(const std::int64_t* dims, std::int64_t rank) {
  std::string text = "[";
  for (std::int64_t i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

}  // namespace

CallSite::CallSite(std::string_view text) {
  const auto call = nlohmann::json::parse(text);
  kernel_ = call.at("kernel").get<std::string>();
  attributes_ = text_of(call.at("attributes"));
  config_ = text_of(call.at("config"));
  for (const auto& tensor : call.at("tensors"))
    shapes_.push_back({tensor.at(0).get<std::string>(), tensor.at(1).get<std::string>(), tensor.at(2).get<std::vector<std::int64_t>>()});
  for (const auto& pair : call.value("updates", nlohmann::json::array()))
    shapes_.at(pair.at(0).get<std::size_t>()).updates = pair.at(1).get<std::size_t>();
}

ejk_prepared* CallSite::prepare(int device_type, int ordinal) const {
  std::vector<ejk_tensor> views;
  for (const auto& [name, type, dims, updates] : shapes_) {
    const auto& element = element_type(type);
    views.push_back({nullptr,
                     {device_type, ordinal},
                     static_cast<std::int32_t>(dims.size()),
                     {element.code, element.bits, 1},
                     dims.data(),
                     nullptr,
                     0});
  }
  std::vector<ejk_argument> arguments;
  for (std::size_t i = 0; i < views.size(); ++i) arguments.push_back({shapes_[i].name.c_str(), shapes_[i].updates ? nullptr : &views[i]});
  ejk_prepared* prepared = nullptr;
  ejk_prepare(kernel_.c_str(), arguments.data(), arguments.size(), attributes_.c_str(), config_.empty() ? nullptr : config_.c_str(),
              &prepared);
  return prepared;
}

const ejk_prepared* CallSite::prepared(int device_type, int ordinal) {
  if (ordinal < 0 || ordinal >= static_cast<int>(most_devices))
    throw std::runtime_error("device " + std::to_string(ordinal) + ": ejk serves devices 0 to " + std::to_string(most_devices - 1));
  auto& slot = prepared_[static_cast<std::size_t>(ordinal)];
  if (const auto* known = slot.load(std::memory_order_acquire)) return known;
  const std::lock_guard lock(mutex_);
  if (!slot.load(std::memory_order_relaxed)) slot.store(prepare(device_type, ordinal), std::memory_order_release);
  return slot.load(std::memory_order_relaxed);
}

std::string CallSite::mismatch(std::size_t index, const Buffer& buffer) const {
  const auto& shape = shapes_[index];
  const bool same = element_type(shape.type).xla == buffer.dtype && static_cast<std::int64_t>(shape.dims.size()) == buffer.rank &&
                    std::equal(shape.dims.begin(), shape.dims.end(), buffer.dims);
  if (same) return {};
  return kernel_ + ": XLA gives " + shape.name + " as " + element_name(buffer.dtype) + " " + shape_text(buffer.dims, buffer.rank) +
         ", but the call was traced for " + shape.type + " " + shape_text(shape.dims.data(), static_cast<std::int64_t>(shape.dims.size()));
}

CallSite& call_site(std::string_view text) {
  thread_local std::string_view last_text;
  thread_local CallSite* last = nullptr;
  if (last && last_text == text) return *last;
  static auto& mutex = *new std::mutex;  // never destroyed: XLA's threads may outlive main
  static auto& sites = *new std::unordered_map<std::string, std::unique_ptr<CallSite>>;
  const std::lock_guard lock(mutex);
  auto found = sites.find(std::string(text));
  if (found == sites.end()) found = sites.emplace(text, std::make_unique<CallSite>(text)).first;
  last_text = found->first;
  last = found->second.get();
  return *last;
}

}  // namespace ejk::xla
