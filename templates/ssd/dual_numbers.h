// GPU vocabulary of ssd, a chunk of tokens at a time: a head's steps.
#pragma once
#include "recurrent/chunk_gates.h"
#include "ssd/dual_step.h"

// A head's steps, in place of its log gates and betas.
struct DualNumbers {
  TokenNumbers dt;
  float bias, rate;
  bool softplus;

  void load_raw(int token, int count, uint32_t (&raw)[2]) const { dt.load_raw(token, count, raw); }
  // As TokenNumbers::read and load. Steps take the place of betas; past the last token they are 0.
  void read(const uint32_t (&raw)[2], int token, int count, float (&gates)[2], float (&steps)[2]) const {
    dt.read(raw, token, count, bias, steps);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (softplus) steps[i] = token + 2 * lane() + i < count ? softplus_of(steps[i]) : 0;
      gates[i] = steps[i] * rate;
    }
  }
  void load(int token, int count, float (&gates)[2], float (&steps)[2]) const {
    uint32_t raw[2];
    load_raw(token, count, raw);
    read(raw, token, count, gates, steps);
  }
};

static inline DualNumbers dual_numbers(const View& dt, int64_t dt_type, const View& rates, int64_t rate_type, const View& biases, int64_t bias_type,
                                       const Tokens& tokens, int64_t head, bool softplus) {
  return {{dt, dt_type, tokens, head, false}, number_of_head(biases, bias_type, head), number_at(rates.data, rate_type, head), softplus};
}
