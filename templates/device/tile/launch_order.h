// GPU vocabulary: launches that overlap ("overlaps" in a launch of the spec). Where the device cannot do so, launches do not overlap and
// the words do nothing.
//
//   wait_for_previous_launch()   until the launch before this one has ended and its writes are seen; every thread that reads them calls it
//   let_next_launch_go()         the next launch may start once every block of this one has called it or ended; it will wait by itself
#pragma once
#include "device/gpu.h"

$if arch.platform == 'cuda'
#if __CUDA_ARCH__ >= 900
static inline void wait_for_previous_launch() { asm volatile("griddepcontrol.wait;" : : : "memory"); }
static inline void let_next_launch_go() { asm volatile("griddepcontrol.launch_dependents;" : : : "memory"); }
#else
static inline void wait_for_previous_launch() {}
static inline void let_next_launch_go() {}
#endif
$else
static inline void wait_for_previous_launch() {}
static inline void let_next_launch_go() {}
$end
