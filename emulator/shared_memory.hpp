// A block's shared memory: the image's __shared__ variables and the launch's dynamic bytes, undefined when a block starts.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "emulator/block.hpp"

namespace ejk::simt {

class SharedMemory {
 public:
  SharedMemory(const SimtImage& image, std::size_t dynamic_bytes);
  char* dynamic() const { return dynamic_.get(); }
  void make_undefined();
  // The variables are the image's, of one block at a time: put aside while another block runs, and put back.
  void put_aside();
  void put_back();
  bool holds(const void* at, std::size_t bytes) const;
  // Addresses as numbers of 32 bits: the image's variables lie below `dynamic_window`, the dynamic bytes from there on. An alignment of
  // 1024 bytes or less is the same in both.
  static constexpr std::uint32_t dynamic_window = 0x80000000;
  std::optional<std::uint32_t> number_of(const void* at) const;  // also of the end; nullopt: not in shared memory
  char* address_of(std::uint32_t number) const;                  // which need not be in shared memory
  bool overrun() const;  // something was written behind the dynamic bytes; the address sanitizer sees that by itself

 private:
  struct Free {
    void operator()(char* memory) const;
  };
  char* window() const;  // where the variables' numbers start

  SimtImage image_;
  std::size_t dynamic_bytes_;
  std::unique_ptr<char[], Free> dynamic_;
  std::vector<char> aside_;
};

}  // namespace ejk::simt
