// Kernels for AMD's GPUs by clang, started as a program: which one, and one rendered source to one code object. No HIP header and no
// device library is needed.
#pragma once
#include <memory>
#include <string>

#include "backends/backend.h"
#include "backends/hip/code_object.hpp"
#include "backends/process/compiler_run.hpp"

namespace ejk::hip {

// The first clang that builds a small kernel for the arch ("gfx90a"): $ROCM_PATH's, those on $PATH (amdclang++, then clang++-<version>,
// the newest first, clang++), then /opt/rocm's. Asked once for each value of $ROCM_PATH and $PATH. Thread-safe.
std::shared_ptr<const SystemCompiler> clang_for(const std::string& arch);

// Same source and compiler, same bytes: one bare code object. Thread-safe.
CompileResult compile_with_clang(const SystemCompiler& clang, const spec::Image& image);

// Judges a compiler's output: its resources, or why it is not what was asked for.
void judge_binary(const spec::Image& image, CompileResult& result);

// registers, spill_bytes, stack_bytes, shared_bytes, code_bytes, vgprs, agprs, sgprs, wave_size.
spec::Resources resources_of(const CodeObjectFacts& facts);

std::string arch_name(const spec::Image& image);  // "gfx90a" of "hip:gfx90a"

}  // namespace ejk::hip
