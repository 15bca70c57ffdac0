// The one counter.
#include "common/epoch.hpp"

namespace ejk {

constinit std::atomic<std::uint64_t> decisions_epoch{1};

}  // namespace ejk
