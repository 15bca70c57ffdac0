// About what a plan takes of memory.
#include "execute/plan.hpp"

namespace ejk {
namespace {

template <class T>
std::size_t bytes_of(const std::vector<T>& vector) {
  return vector.capacity() * sizeof(T);
}

std::size_t bytes_of(const spec::Binding& binding) {
  constexpr std::size_t node = 48;  // of a map, beside its value: links, colour, malloc's own
  std::size_t bytes = sizeof binding;
  for (const auto& [name, facts] : binding.facts.tensors)
    bytes += node + sizeof name + sizeof facts + bytes_of(facts.shape) + bytes_of(facts.strides) + 2 * sizeof(void*);
  const auto values = binding.facts.attributes.size() + binding.attributes.size();
  bytes +=
      values * (node + sizeof(std::string) + sizeof(Value)) + binding.dims.size() * (node + sizeof(std::string) + sizeof(std::int64_t));
  for (const auto& [name, type] : binding.types) bytes += node + sizeof name + sizeof type;
  for (const auto& [name, dims] : binding.rests) bytes += node + sizeof name + sizeof dims + bytes_of(dims);
  return bytes;
}

}  // namespace

std::size_t Plan::memory() const {
  constexpr std::size_t table = 128;  // its row in the process's table, and the blocks' headers
  std::size_t bytes = sizeof *this + table + bytes_of(key) + bytes_of(frame) + bytes_of(patches) + bytes_of(launches) + bytes_of(extents) +
                      bytes_of(live) + label.capacity() + bytes_of(resolved.config) + resolved.image.id.capacity() +
                      resolved.image.kernel.capacity() + resolved.obtained.from.capacity();
  for (const auto& launch : launches) bytes += bytes_of(launch.offsets);
  for (const auto& [name, value] : resolved.config) bytes += name.capacity();
  return binding ? bytes + bytes_of(*binding) : bytes;
}

}  // namespace ejk
