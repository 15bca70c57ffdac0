// What the address sanitizer must know of fibers; nothing where this build has none.
#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define EJK_SIMT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EJK_SIMT_SANITIZED 1
#endif
#endif

#ifdef EJK_SIMT_SANITIZED
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace ejk::simt {

#ifdef EJK_SIMT_SANITIZED
inline constexpr bool sanitized = true;
// fake_stack null: the stack that is left is not entered again.
inline void start_switch(void** fake_stack, const void* low, std::size_t bytes) { __sanitizer_start_switch_fiber(fake_stack, low, bytes); }
inline void finish_switch(void* fake_stack, const void** low, std::size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake_stack, low, bytes);
}
inline void forget_stack(const void* low, std::size_t bytes) { __asan_unpoison_memory_region(low, bytes); }
#else
inline constexpr bool sanitized = false;
inline void start_switch(void**, const void*, std::size_t) {}
inline void finish_switch(void*, const void**, std::size_t*) {}
inline void forget_stack(const void*, std::size_t) {}
#endif

}  // namespace ejk::simt
