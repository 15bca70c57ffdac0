// Where the sources and the build folder of the tests are. paths.cpp alone is compiled with them, once a program: all else is the same
// in every clone, so that a compiler cache serves it.
#pragma once
#include <string>

namespace ejk::test {

std::string source_dir();
std::string binary_dir();

}  // namespace ejk::test
