// A source of its own: CMake gives it what python/ejk/tested.json says, and no other source is compiled apart for that.
#include "execute/tested_versions.hpp"

namespace ejk {

std::string_view tested_jax() { return EJK_TESTED_JAX; }
std::string_view tested_torch() { return EJK_TESTED_TORCH; }

}  // namespace ejk
