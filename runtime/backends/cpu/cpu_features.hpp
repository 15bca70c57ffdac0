// What this CPU and its system can run: features in /proc/cpuinfo's names, model, caches, threads.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "spec/model.hpp"

namespace ejk {

std::string cpu_machine();  // "x86_64", "aarch64"
std::string cpu_model();    // "Intel(R) Xeon(R) Processor", or the machine's name
// Only features whose registers the system saves and restores (XGETBV): the others fault or lose data.
std::set<std::string> cpu_features();
// By CPUID alone (x86): what is used where /proc is not mounted.
std::set<std::string> cpuid_features();
// Linux hands out AMX tiles on demand, once a process; false: refused.
bool request_amx();
// Threads this process may run at a time: its affinity mask, cut by its control group's quota.
int available_threads();
// Bytes of the first core's data cache of that level; 0: unknown.
std::int64_t cpu_cache_bytes(int level);
// "16", "48K", "2048K", "32M" as sysfs writes sizes; 0: not a size.
std::int64_t parse_cache_size(const std::string& text);

// Full names of those of `archs` that a machine with these features runs, deepest `extends` first, then by name.
std::vector<std::string> runnable_archs(const std::vector<const spec::Arch*>& archs, const std::string& machine,
                                        const std::set<std::string>& features);

}  // namespace ejk
