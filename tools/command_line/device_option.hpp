// --device cpu|cuda|cuda:1|simt|ptx: the device that a call's tensors lie on.
#pragma once
#include <span>
#include <string>

#include "command_line/arguments.hpp"
#include "execute/library_state.hpp"

namespace ejk::tools {

struct DeviceName {
  std::string platform;
  int index = 0;
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};
// "cuda:1" → {cuda, 1}; without a number 0. Throws UsageError.
DeviceName device_named(const std::string& text);

// Whether the words of a command say --device ptx: CUDA's images in the PTX emulator, which the tool adds for that command alone.
bool names_ptx_device(std::span<const std::string> words);

void add_device_option(Arguments& arguments);
// The device of --device (default cpu); call it after apply_library_options(). Throws UsageError if ejk has no such platform, CodedError
// in the backend's words if the device is not here.
const Machine& device_of(const Arguments& arguments);
const Machine& find_device(const DeviceName& name);

bool on_host(const Machine& machine);         // its tensors lie in this process's memory
std::string name_of(const Machine& machine);  // "cpu", "cuda:1"

}  // namespace ejk::tools
