// Vocabulary of every backend for attention's gradients: faint rows, whose keys all have a bias far below 0, one bias for all. In f32 their log-sum-exp
// has lost how many keys there are: exp(score - lse) would be 1, or what rounding makes of it. The keys share the row equally, so that a count is enough;
// it stands in place of the log-sum-exp in units of log 2, as a number that is lower than any of those.
#pragma once

constexpr float FAINT = -0x1p25f;        // log-sum-exps below this are of rows that may be faint
constexpr float FAINT_LEEWAY = 0x1p-20f;  // relative: scores of f32 this near to such a log-sum-exp are as good as equal to it
constexpr float FAINT_UNIT = 0x1p112f, FAINT_ZERO = 32;

// log_share: -log 2 of each key's weight; -16 ... 31.
static inline float faint_log(float log_share) { return -(FAINT_ZERO + log_share) * FAINT_UNIT; }
static inline bool is_faint(float log) { return log < -8 * FAINT_UNIT; }
// What 2^ is taken of for a weight of such a row.
static inline float faint_exponent(float log) { return log * (1 / FAINT_UNIT) + FAINT_ZERO; }
