// A loaded shared object: entries are found by dlsym("ejk_" + name).
#pragma once
#include <memory>
#include <string>

#include "backends/backend.h"

namespace ejk {

// Throws std::runtime_error with the loader's words. `name` is what debuggers and profilers show.
std::unique_ptr<Module> load_shared_object_bytes(const std::string& binary, const std::string& name);

// Bytes of executable sections of a 64-bit ELF file; 0: not one.
std::int64_t elf_code_bytes(const std::string& binary);

}  // namespace ejk
