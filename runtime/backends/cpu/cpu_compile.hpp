// Kernels by the system's C++ compiler: which one, and one source to one shared object.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/process/compiler_run.hpp"

namespace ejk {

// The first of $CXX (if it names an executable), c++, g++, clang++ on $PATH that builds a small kernel; for another machine
// <machine>-linux-gnu-g++, then clang++ with that target. Asked once for each value of $CXX and $PATH. Thread-safe.
std::shared_ptr<const SystemCompiler> system_compiler(const std::string& machine);

// Same source and compiler, same bytes. Thread-safe.
CompileResult compile_cpu_image(const SystemCompiler& compiler, const spec::Image& image);
// The same for sources that are no CPU images: `flags` come after those of any shared object and before the image's own.
CompileResult compile_shared_object(const SystemCompiler& compiler, const spec::Image& image, const std::vector<std::string>& flags);

}  // namespace ejk
