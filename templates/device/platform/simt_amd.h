// Emulator vocabulary: what device/platform/amd.h makes AMD's words of, by the emulator. Needs the rest of device/platform/simt.h before it.
#pragma once
constexpr int WAVE = ${arch.wave};
static inline uint32_t permute_wave(uint32_t x, int from) { return simt_host->permute_wave(x, from); }
static inline uint64_t ballot_wave(bool x) { return simt_host->ballot_wave(x); }
template <class T> static inline T* shared_at(SharedPointer at) { return static_cast<T*>(simt_host->shared_at(at, alignof(T))); }
#include "device/platform/amd.h"
