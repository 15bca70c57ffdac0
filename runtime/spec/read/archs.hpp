// The arch files of a folder, each with what it inherits.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "spec/fault.hpp"
#include "spec/model.hpp"

namespace ejk::spec {

// Reads <folder>/*.json. By full name; features include the parents', properties too where the arch does not set its own, machine if it
// names none; flags are each arch's own. Files that json_files() passes over are told. Throws std::runtime_error if the folder cannot be
// read.
std::map<std::string, Arch> load_archs(const std::filesystem::path& folder, std::vector<Fault>& faults, std::vector<Fault>& passed_over);

// The same from archs read already.
std::map<std::string, Arch> resolve_archs(std::vector<Arch> archs, std::vector<Fault>& faults);

// The archs that a variant's list covers, most specific first: "cpu:avx2" that one, "cpu:avx2+" also all that extend it, "simt" every
// arch of the platform but those with the property by_name.
std::vector<const Arch*> archs_covered(const std::vector<std::string>& patterns, const std::map<std::string, Arch>& archs);
bool covers_some(const std::string& pattern, const std::map<std::string, Arch>& archs);

}  // namespace ejk::spec
