// Why a store does not serve an image: what is there instead, and what differs.
#pragma once
#include <string>

namespace ejk::tools {

// The command `ejk cache why-miss ID`: prints what each place says. Exit code 0: it is a hit somewhere; 1: a miss everywhere.
// Throws UsageError for an id that no case, variant, arch and config of the spec makes.
int why_miss(const std::string& id);

}  // namespace ejk::tools
