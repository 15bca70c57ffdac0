// A warp's register file, all zeros.
#pragma once
#include <cstring>
#include <new>

#include "emulator/ptx/machine.hpp"

namespace ejk::ptx {

inline std::unique_ptr<char, FileDeleter> zeroed_file(Slot units) {
  const auto bytes = std::size_t{units} * 128;
  std::unique_ptr<char, FileDeleter> file(static_cast<char*>(::operator new (bytes, std::align_val_t{128})));
  std::memset(file.get(), 0, bytes);
  return file;
}

}  // namespace ejk::ptx
