// Dynamic bytes are the heap's, exactly as many as the launch asks for; without a sanitizer a margin behind them shows overruns.
#include "emulator/shared_memory.hpp"

#include <cstring>
#include <new>

#include "emulator/numbers.hpp"
#include "emulator/sanitizer.hpp"

namespace ejk::simt {
namespace {

constexpr std::size_t margin = sanitized ? 0 : 4096;
constexpr std::align_val_t alignment{1024};

// Also over the sanitizer's red zones between an image's variables.
__attribute__((no_sanitize("address"))) void make_variables_undefined(char* begin, const char* end) {
  for (; end - begin >= 4; begin += 4) __builtin_memcpy(begin, &undefined_word, 4);
  for (std::size_t i = 0; begin < end; ++i) *begin++ = static_cast<char>(undefined_word >> (8 * i));
}

__attribute__((no_sanitize("address"))) void copy_variables(char* to, const char* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) static_cast<volatile char*>(to)[i] = from[i];
}

bool undefined(const char* begin, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    if (begin[i] != static_cast<char>(undefined_word >> (8 * (i % 4)))) return false;
  return true;
}

bool inside(const char* at, std::size_t bytes, const char* begin, const char* end) { return at >= begin && at + bytes <= end; }

}  // namespace

void SharedMemory::Free::operator()(char* memory) const { ::operator delete[](memory, alignment); }

SharedMemory::SharedMemory(const SimtImage& image, std::size_t dynamic_bytes)
    : image_(image), dynamic_bytes_(dynamic_bytes), dynamic_(static_cast<char*>(::operator new[](dynamic_bytes + margin, alignment))) {
  simt::make_undefined(dynamic_.get() + dynamic_bytes_, margin);
}

void SharedMemory::make_undefined() {
  make_variables_undefined(image_.shared_begin, image_.shared_end);
  simt::make_undefined(dynamic_.get(), dynamic_bytes_);
}

void SharedMemory::put_aside() {
  aside_.resize(static_cast<std::size_t>(image_.shared_end - image_.shared_begin));
  copy_variables(aside_.data(), image_.shared_begin, aside_.size());
}

void SharedMemory::put_back() { copy_variables(image_.shared_begin, aside_.data(), aside_.size()); }

bool SharedMemory::holds(const void* at, std::size_t bytes) const {
  const auto* byte = static_cast<const char*>(at);
  return inside(byte, bytes, image_.shared_begin, image_.shared_end) ||
         inside(byte, bytes, dynamic_.get(), dynamic_.get() + dynamic_bytes_);
}

char* SharedMemory::window() const {
  return image_.shared_begin - reinterpret_cast<std::uintptr_t>(image_.shared_begin) % static_cast<std::size_t>(alignment);
}

std::optional<std::uint32_t> SharedMemory::number_of(const void* at) const {
  const auto* byte = static_cast<const char*>(at);
  if (inside(byte, 0, dynamic_.get(), dynamic_.get() + dynamic_bytes_))
    return dynamic_window + static_cast<std::uint32_t>(byte - dynamic_.get());
  if (inside(byte, 0, image_.shared_begin, image_.shared_end)) return static_cast<std::uint32_t>(byte - window());
  return std::nullopt;
}

char* SharedMemory::address_of(std::uint32_t number) const {
  return number >= dynamic_window ? dynamic_.get() + (number - dynamic_window) : window() + number;
}

bool SharedMemory::overrun() const { return !undefined(dynamic_.get() + dynamic_bytes_, margin); }

}  // namespace ejk::simt
