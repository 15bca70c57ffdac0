// The folders of paths.hpp, as CMake tells them.
#include "tests/paths.hpp"

namespace ejk::test {

std::string source_dir() { return EJK_SOURCE_DIR; }
std::string binary_dir() { return EJK_BINARY_DIR; }

}  // namespace ejk::test
