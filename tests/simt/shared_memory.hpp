// A block's shared memory: the image's __shared__ variables and the launch's dynamic bytes, undefined when a block starts.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "simt/block.hpp"

namespace ejk::simt {

class SharedMemory {
 public:
  SharedMemory(const SimtImage& image, std::size_t dynamic_bytes);
  char* dynamic() const { return dynamic_.get(); }
  void make_undefined();
  bool holds(const void* at, std::size_t bytes) const;
  bool overrun() const;  // something was written behind the dynamic bytes; the address sanitizer sees that by itself

 private:
  struct Free {
    void operator()(char* memory) const;
  };
  SimtImage image_;
  std::size_t dynamic_bytes_;
  std::unique_ptr<char[], Free> dynamic_;
};

}  // namespace ejk::simt
