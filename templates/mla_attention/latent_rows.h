// CPU vocabulary of mla_attention: latent rows as f32 in a worker's scratch.
#pragma once

// Numbers seen so far: are they all finite?
struct Finite {
  Integers largest = {};
  void see(Floats part) {
    const Integers magnitude = reinterpret_cast<Integers>(part) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  bool all() const { return !any(largest >= splat_integer(0x7f800000)); }
};

// `count` features.
static inline void load_row(const Element* from, int64_t count, float* to, Finite& finite) {
  int64_t d = 0;
  for (; d + LANES <= count; d += LANES) {
    const Floats part = load_floats(from + d);
    finite.see(part);
    store_floats(to + d, part);
  }
  if (d == count) return;
  const Floats part = load_some(from + d, count - d);
  finite.see(part);
  store_some(to + d, part, count - d);
}
