// The identity of a binary's machine code: what a device runs of it, and nothing of how and where it was compiled.
//
// One line for each thing that a run depends on; the lines sorted, the hash is theirs.
//   section NAME SIZE SHA256      code, and the data it reads. Of a shared object or an AMD code object (which has its kernel descriptors
//                                 in .rodata) what is in memory; of a cubin .text.*, .nv.constant*, .nv.global*, .nv.shared*
//   relocation PLACE TYPE TARGET  what the loader puts into them: the imported function behind a call, the address of a constant
//   entry NAME PLACE              what a launch finds by name (a cubin's are the names of its sections)
//   registers SECTION COUNT       of a cubin: what a thread holds decides how many run, and is not always seen in the code
// A place is a section and an offset within it, so that the layout of the file does not count. Notes, build ids, debug information, unwind
// tables, names of local symbols, the order of tables and what lies between sections do not count either.
// What does: another compiler's code; in a cubin also the names of constants at file scope that NVRTC keeps as data, since it lays them out
// by name.
#pragma once
#include <string>

namespace ejk {

// 16 hexadecimal digits. Empty: why_not says what is wrong ("it has no code"); the binary may be of any bytes.
std::string machine_code_hash(const std::string& binary, std::string& why_not);

// The lines that are hashed, for tests and the curious. Throws std::runtime_error.
std::string machine_code_lines(const std::string& binary);

}  // namespace ejk
