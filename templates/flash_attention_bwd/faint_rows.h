// Vocabulary of every backend for attention's gradients: faint rows, whose keys all have a bias far below 0, one bias for all. In f32 their log-sum-exp
// has lost how many keys there are: exp(score - lse) would be 1, or what rounding makes of it. The keys share the row equally, so that their count is
// enough. Its logarithm stands in place of the log-sum-exp, in units of log 2; the last bit of these numbers tells which of the two it is.
#pragma once

constexpr float FAINT = -0x1p25f;         // log-sum-exps below this are of rows that may be faint
constexpr float FAINT_LEEWAY = 0x1p-20f;  // relative: scores of f32 this near to such a log-sum-exp are as good as equal to it

static inline float with_last_bit(float x, uint32_t bit) { return __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, x) & ~1u) | bit); }
static inline float usual_log(float log) { return with_last_bit(log, 0); }
// log_share: -log 2 of each key's weight.
static inline float faint_log(float log_share) { return with_last_bit(log_share, 1); }
static inline bool is_faint(float log) { return __builtin_bit_cast(uint32_t, log) & 1; }
