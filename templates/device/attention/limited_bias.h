// Vocabulary of every backend for the attention kernels: how far a bias goes down (docs/semantics.md, "Scores").
#pragma once

// A finite bias counts as this much at least. Beside it f32 holds no product of a query and a key, so that all keys that have it have one
// score; and it stays in f32 in units of log 2, and over any softmax scale.
constexpr float LEAST_BIAS = -0x1p40f;

// Minus infinity, which hides a key, and NaN stay.
static inline float limited_bias(float bias) { return bias < LEAST_BIAS && bias > -INFINITE ? LEAST_BIAS : bias; }
