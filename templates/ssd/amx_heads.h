// CPU vocabulary of ssd in chunks, on AMX: as cpu_heads.h, by the panels of a recurrence on AMX. Steps are factors of keys there.
#pragma once
#include "recurrent/amx_panel.h"

// `panels`: of all heads' states.
static void begin_heads(const PanelScratch& s, int64_t panels) {
  for (int64_t i = 0; i < panels * s.steps; ++i) pack_state(s.state + i * SIDE * PANEL, s.state_pairs + i * PAIR);
  amx_configure();
}
static inline void end_heads() { amx_release(); }

static void prepare_group(const Stream& stream, PanelScratch& s, int64_t start, int64_t tokens, int64_t rows) {
  prepare_lines(stream, s, start, tokens, rows);
}

static void run_head(const Stream& stream, PanelScratch& s, float* state, int64_t start, int64_t tokens, int64_t rows, const Out& out) {
  const GateSums sums(stream, start, tokens, rows);
  for (int64_t t = 0; t < rows; t += LANES) store_floats(s.key_factor + t, load_floats(sums.steps + t));
  find_token_factors(s, sums, rows);
  weigh_operands(s, sums, nullptr, true, rows);
  Panel panel{state, s.state_pairs + (state - s.state) / s.state_rows / PANEL * s.steps * PAIR, 0};
  for (; panel.first < stream.v.count; panel.first += PANEL) {
    run_panel(stream, s, panel, nullptr, start, tokens, rows, out);
    panel.state += s.state_rows * PANEL, panel.pairs = panel.pairs + s.steps * PAIR;
  }
}
