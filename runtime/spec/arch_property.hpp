// How expressions name an arch's properties: arch.NAME is the machine's own where it was measured, arch.listed.NAME what the arch's file
// lists, the same on every machine.
#pragma once
#include <string>
#include <string_view>

namespace ejk::spec {

inline bool names_arch_property(std::string_view name) { return name.starts_with("arch."); }

struct ArchProperty {
  std::string name;
  bool listed = false;
};

// Of a name for which names_arch_property() holds.
inline ArchProperty arch_property(std::string_view name) {
  constexpr std::string_view own = "arch.", listed = "arch.listed.";
  if (name.starts_with(listed)) return {std::string(name.substr(listed.size())), true};
  return {std::string(name.substr(own.size())), false};
}

}  // namespace ejk::spec
