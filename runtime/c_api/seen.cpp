// ejk_seen: which calls a binding has seen before, by the shapes, strides, types and devices of its language's objects.
#include <array>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "c_api/border.hpp"

using namespace ejk;
using namespace ejk::c_api;

namespace {

constexpr std::size_t most_objects = 64, words_an_object = 2 + 2 * max_rank;

// What decides whether two calls are alike, as words on the stack; not initialised, since few are used.
struct Signature {
  std::size_t size = 0;
  std::array<std::uint64_t, most_objects * words_an_object> words;
  std::uint64_t hash() const { return XXH3_64bits(words.data(), size * sizeof(std::uint64_t)); }
  bool equals(const std::vector<std::uint64_t>& other) const {
    return other.size() == size && std::memcmp(other.data(), words.data(), size * sizeof(std::uint64_t)) == 0;
  }
  void add(std::uint64_t word) { words[size++] = word; }
};

std::uint64_t word_of(std::int32_t high, std::uint32_t low) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(high)) << 32 | low;
}

// false: no tensor that a kernel takes.
bool add_tensor(const ejk_tensor& tensor, Signature& to) {
  if (tensor.rank < 0 || tensor.rank > max_rank || tensor.dtype.lanes != 1) return false;
  to.add(word_of(tensor.device.type, 1U << 31 | (tensor.strides ? 1U << 30 : 0U) | static_cast<std::uint32_t>(tensor.rank) << 16 |
                                         static_cast<std::uint32_t>(tensor.dtype.code) << 8 | tensor.dtype.bits));
  to.add(word_of(tensor.device.index, 0));
  for (int i = 0; i < tensor.rank; ++i) to.add(static_cast<std::uint64_t>(tensor.shape[i]));
  if (tensor.strides)
    for (int i = 0; i < tensor.rank; ++i) to.add(static_cast<std::uint64_t>(tensor.strides[i]));
  return true;
}

bool has_type(const ejk_objects& host, void* object) {
  void* const type = host.type(object);
  host.release(type);  // the object keeps it
  return type == host.types[0] || type == host.types[1];
}

// Of the list's items; appends the data of those given. false: an item is none that can be read.
bool add_list(const ejk_objects& host, void* list, std::size_t count, Signature& to, void**& data) {
  for (std::size_t i = 0; i < count; ++i) {
    void* const object = host.item(list, static_cast<std::ptrdiff_t>(i));
    if (object == host.absent) {
      to.add(0);
      continue;
    }
    ejk_tensor tensor;
    if (!object || !has_type(host, object) || host.tensor(object, &tensor) != 0 || !add_tensor(tensor, to)) return false;
    *data++ = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  }
  return true;
}

}  // namespace

struct ejk_seen {
  ejk_objects host;
  std::size_t inputs, outputs;
  std::mutex mutex;
  std::vector<std::vector<std::uint64_t>> signatures;  // by number
  std::unordered_multimap<std::uint64_t, std::int64_t> numbers;

  // false: an item cannot be read.
  bool read(void* input_list, void* output_list, Signature& to, void** data) const {
    if (!add_list(host, input_list, inputs, to, data)) return false;
    return !output_list || add_list(host, output_list, outputs, to, data);
  }

  std::int64_t find(const Signature& signature, std::uint64_t hash) const {
    const auto [begin, end] = numbers.equal_range(hash);
    for (auto it = begin; it != end; ++it)
      if (signature.equals(signatures[static_cast<std::size_t>(it->second)])) return it->second;
    return EJK_NOT_SEEN;
  }

  std::int64_t add(const Signature& signature, std::uint64_t hash) noexcept {
    try {
      const auto number = static_cast<std::int64_t>(signatures.size());
      const auto begin = signature.words.begin();
      signatures.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(signature.size));
      numbers.emplace(hash, number);
      return number;
    } catch (const std::bad_alloc&) {
      return EJK_NOT_SEEN;
    }
  }
};

extern "C" {

ejk_status ejk_seen_new(const ejk_objects* objects, size_t inputs, size_t outputs, ejk_seen** seen) {
  return guarded_call([&]() -> Status {
    if (!objects || !objects->item || !objects->type || !objects->release || !objects->tensor) bad("a function that reads objects is NULL");
    if (inputs + outputs > most_objects)
      bad("a call has " + std::to_string(inputs + outputs) + " objects; expected at most " + std::to_string(most_objects));
    required(seen, "the place for the calls seen");
    *seen = new ejk_seen{*objects, inputs, outputs, {}, {}, {}};
    return {};
  });
}

int64_t ejk_seen_find(ejk_seen* seen, void* inputs, void* outputs, void** data) {
  Signature signature;
  if (!seen->read(inputs, outputs, signature, data)) return EJK_NOT_READ;
  const auto hash = signature.hash();
  const std::lock_guard lock(seen->mutex);
  return seen->find(signature, hash);
}

int64_t ejk_seen_add(ejk_seen* seen, void* inputs, void* outputs) {
  Signature signature;
  std::array<void*, most_objects> data;
  if (!seen->read(inputs, outputs, signature, data.data())) return EJK_NOT_READ;
  const auto hash = signature.hash();
  const std::lock_guard lock(seen->mutex);
  const auto known = seen->find(signature, hash);
  return known >= 0 ? known : seen->add(signature, hash);
}

void ejk_seen_release(ejk_seen* seen) { delete seen; }

}  // extern "C"
