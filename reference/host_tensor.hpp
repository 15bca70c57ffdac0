// A named tensor that owns its memory, contiguous or as a strided view into a larger block whose gaps and margins are poisoned.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ejk/tensor.hpp"
#include "reference/random.hpp"
#include "spec/call/binding.hpp"

namespace ejk::reference {

// How a tensor lies in memory. Values never depend on it.
struct Layout {
  bool padded = false;     // gaps between rows, at every level
  bool permuted = false;   // outer dims in another order (heads before tokens); the innermost keeps stride 1
  bool broadcast = false;  // one outer dim has stride 0 (inputs only)
  bool unaligned = false;  // the address is a multiple of the element size and of nothing more
  bool outputs = false;    // apply it to outputs too
  int alignment = 64;      // of the address: a multiple of this power of two and, below 64, of no larger one; not with `unaligned`
  bool contiguous() const { return !padded && !permuted && !broadcast; }
  std::string text() const;  // "padded, unaligned", or "contiguous"
};

Layout random_layout(Rng& rng);

class HostTensor {
 public:
  HostTensor() = default;
  // All memory starts poisoned. rng chooses gaps, order and the broadcast dim; it may be null for a contiguous layout.
  HostTensor(std::string name, DType type, std::vector<std::int64_t> shape, const Layout& layout = {}, Rng* rng = nullptr);
  // With these strides, in elements, 0 or more each.
  HostTensor(std::string name, DType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides);
  // A contiguous tensor with these values, in row-major order.
  HostTensor(std::string name, DType type, std::vector<std::int64_t> shape, std::span<const double> values);

  HostTensor copy(std::string name) const;  // of all its memory, gaps and margins included; all of its elements count as written

  const std::string& name() const { return name_; }
  DType type() const { return type_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  const std::vector<std::int64_t>& strides() const { return strides_; }
  std::int64_t elements() const { return elements_; }
  bool broadcast() const;  // a dim longer than 1 has stride 0
  bool contiguous() const;

  void* data() { return bytes() + start_; }
  const void* data() const { return bytes() + start_; }
  TensorView view() const;          // the caller keeps this tensor alive; inputs are not written through it
  spec::TensorFacts facts() const;  // host_data is the data for contiguous integer tensors

  // Elements by row-major index. Writing through a broadcast dim writes every copy.
  double at(std::int64_t index) const;
  void set(std::int64_t index, double value);
  std::vector<double> values() const;
  void assign(std::span<const double> values);  // throws std::invalid_argument on another count

  std::vector<std::byte> row_major_bytes() const;       // the elements' bytes without gaps
  void assign_bytes(std::span<const std::byte> bytes);  // inverse; throws std::invalid_argument on another count

  void poison();                         // everything: elements, gaps, margins
  std::int64_t first_unwritten() const;  // row-major index of the first element still poisoned, -1 if none
  std::int64_t unwritten() const;        // how many
  bool surroundings_intact() const;      // no byte of the gaps and margins was changed

  // All of its memory, gaps and margins included, aligned to 64 bytes: what a copy on a device must have, too.
  std::span<std::byte> block() { return {bytes(), memory_.size() * sizeof(Block)}; }
  std::span<const std::byte> block() const { return {bytes(), memory_.size() * sizeof(Block)}; }

 private:
  struct alignas(64) Block {
    std::byte bytes[64];
  };
  std::byte* bytes() { return reinterpret_cast<std::byte*>(memory_.data()); }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(memory_.data()); }
  std::int64_t offset_of(std::int64_t index) const;  // bytes from bytes()
  void check_shape() const;
  void place(const Layout& layout, Rng* rng);
  void reserve(std::int64_t start);  // memory for the strides, element 0 so many bytes after its begin
  template <class Visit>
  void each(Visit visit) const;  // visit(row-major index, byte offset)
  bool poisoned(std::int64_t offset) const;

  std::string name_;
  DType type_ = DType::f32;
  std::vector<std::int64_t> shape_, strides_;
  std::int64_t elements_ = 0;
  std::int64_t start_ = 0;  // byte offset of element 0
  bool packed_ = true;      // row-major without gaps
  std::vector<Block> memory_;
  bool filled_ = false;  // with numbers of another tensor, which may happen to look poisoned
};

}  // namespace ejk::reference
