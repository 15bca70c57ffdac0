// What `ejk bench` is asked for, and what its CPU and device sides share.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "execute/library_state.hpp"
#include "spec/model.hpp"

namespace ejk::tools {

enum class Memory { automatic, warm, cold };
Memory memory_named(const std::string& text);  // throws UsageError

// A case of a kernel, and the config that is asked for.
struct BenchCase {
  const KernelHandle* kernel = nullptr;
  std::shared_ptr<const spec::Case> values;
  std::string name;    // of the case; of another kernel's, with the kernel before it
  std::string config;  // override as JSON, or empty
};

struct BenchRequest {
  const KernelHandle* kernel = nullptr;
  std::vector<BenchCase> cases;
  std::vector<BenchCase> beside;  // of any kernel: timed in all rounds
  Memory memory = Memory::automatic;
  double seconds = 1;  // a case
  bool check = false;  // compare what the runs left with the reference
  std::uint64_t seed = 1;
};

// Cases that are timed in turn: as many as fit into memory together, each taking bytes_of(case), and what is timed beside them.
using BenchGroup = std::vector<BenchCase>;
std::vector<BenchGroup> groups_of(const BenchRequest& request, double (*bytes_of)(const spec::Spec&, const spec::Case&));

// Of explain's words: the tier that chose the config; who compiled the image.
std::string tier_of(const nlohmann::ordered_json& told);
std::string compiler_of(const nlohmann::ordered_json& told);
// The config's parameters without variant and arch, which the image id shows: "block_m=64 warps=4".
std::string parameters_of(const nlohmann::ordered_json& told);
std::string image_line(const nlohmann::ordered_json& told, const std::string& compiler);

void show_progress(const std::string& text);  // on a terminal, one line that changes

}  // namespace ejk::tools
