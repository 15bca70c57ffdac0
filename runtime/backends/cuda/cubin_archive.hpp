// Several cubins as one file: an archive in the format of `ar`, which takes it apart.
#pragma once
#include <string>
#include <vector>

namespace ejk::cuda {

std::string join_cubins(const std::vector<std::string>& cubins);
// Those of a binary: what is in an archive, else the binary itself. Empty: why_not says what is wrong with the archive.
std::vector<std::string> cubins_of(const std::string& binary, std::string& why_not);

}  // namespace ejk::cuda
