// CPU vocabulary: while one lives, its thread takes denormals for 0 and makes none, on x86 (as AMX tiles do). Where factors of gates multiply, denormals
// are many, and some processors take a hundred times as long for each.
#pragma once

struct NoDenormals {
#if defined(__x86_64__)
  unsigned before = __builtin_ia32_stmxcsr();
  NoDenormals() { __builtin_ia32_ldmxcsr(before | 0x8000 | 0x40); }  // makes none | takes them for 0
  ~NoDenormals() { __builtin_ia32_ldmxcsr(before); }
#else
  NoDenormals() {}
#endif
};
