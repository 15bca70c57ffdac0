// Which releases of other libraries the Python package was tested with, the oldest and the newest: "0.6.0 to 0.11.0".
#pragma once
#include <string_view>

namespace ejk {

std::string_view tested_jax();
std::string_view tested_torch();

}  // namespace ejk
