// Limits of a variant: what its compiled images may need at most, by the names of image.json's resources.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ejk::spec {

using Resources = std::vector<std::pair<std::string, std::int64_t>>;

// registers, spill_bytes, stack_bytes, shared_bytes, code_bytes; of AMD GPUs also vgprs, agprs, sgprs, wave_size: of the most demanding
// entry; of NVIDIA's also performance_losses, of all entries; a backend reports those it knows.
const std::vector<std::string>& names_of_resources();

// "spill_bytes is 1344, the limit is 0; ..." for each that is above its limit; empty: none is. Without a limit of its own
// performance_losses has 0: code that the compiler itself calls slow is never meant. What the compiler does not report (a CPU's registers)
// is not judged.
std::string above_limits(const Resources& limits, const Resources& found);

}  // namespace ejk::spec
