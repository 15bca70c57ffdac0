// CPU vocabulary of a recurrence in chunks on AMX: a panel of v's features of a chunk, SIDE tokens at a time. States, sums and w are f32,
// and so is the system of a block's own tokens. Part of a template, which has defined before: CHUNK, DELTA, VALUE_GATES.
#pragma once
#include "recurrent/amx_pairs.h"
static_assert(!VALUE_GATES);

// Row of a key's feature in a panel of the state: of SIDE features the even ones come first, so that a pair's rows lie half a tile's height
// apart.
static inline int64_t state_row(int64_t key) { return key / SIDE * SIDE + key % 2 * 16 + key % SIDE / 2; }

// A panel of v's features.
struct Panel {
  float* state;  // [state_rows][PANEL]
  Parts pairs;   // of the state
  int64_t first;
};

// A step of the state as pairs.
static inline void pack_state(const float* state, Parts pairs) {
  for (int64_t p = 0; p < LANES; ++p) {
    Floats even[VECTORS], odd[VECTORS];
    for (int x = 0; x < VECTORS; ++x) {
      even[x] = load_floats(state + p * PANEL + x * LANES);
      odd[x] = load_floats(state + (p + LANES) * PANEL + x * LANES);
    }
    store_pair(pairs, p, even, odd);
  }
}

static void read_state(const PanelScratch& s, Parts pairs, float* lines, float* to, int64_t block) {
  Square::zero();
  multiply_steps(Parts{lines + block * s.steps * PAIR, 1, 0}, pairs, s.steps);
  Square::store_rows(to + block * SIDE * PANEL, PANEL);
}

// w of a block's tokens, which lack what they have from each other.
static __attribute__((noinline)) void solve_own(float* w, const float* weights) {
  for (int64_t first = 0; first < SIDE; first += ROWS) {
    Tile sum;
    float* rows = w + first * PANEL;
#pragma GCC unroll 16
    for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 2
      for (int x = 0; x < VECTORS; ++x) sum[p][x] = load_floats(rows + p * PANEL + x * LANES);
    add_product(sum, weights + first * COLUMNS, COLUMNS, w, PANEL, first);
#pragma GCC unroll 16
    for (int j = 0; j < ROWS; ++j)
#pragma GCC unroll 16
      for (int p = j + 1; p < ROWS; ++p)
#pragma GCC unroll 2
        for (int x = 0; x < VECTORS; ++x) sum[p][x] += weights[(first + p) * COLUMNS + first + j] * sum[j][x];
    store_tile(sum, rows, PANEL);
  }
}

// w of a block's tokens, which hold v: beta (v - what the key reads from the state and from w before).
static void solve_block(const PanelScratch& s, const float* betas, int64_t block) {
  alignas(64) float before[SIDE * PANEL];
  float* w = s.w + block * SIDE * PANEL;
  const float* read = s.read_k + block * SIDE * PANEL;
  Square::zero();
  multiply_steps(s.k_weights + block * BLOCKS * PAIR, s.w_pairs, block);
  Square::store_rows(before, PANEL);
  for (int64_t t = 0; t < SIDE; ++t) {
    const int64_t token = block * SIDE + t;
    for (int64_t at = t * PANEL; at < (t + 1) * PANEL; at += LANES) {
      const Floats seen = s.from_start[token] * load_floats(read + at) + load_floats(before + at);
      store_floats(w + at, betas[token] * (load_floats(w + at) - s.key_factor[token] * seen));
    }
  }
  solve_own(w, s.on_k + block * SIDE * COLUMNS + block * SIDE);
}

static void load_values(const Stream& stream, const PanelScratch& s, const Panel& panel, int64_t start, int64_t tokens, int64_t rows) {
  for (int64_t t = 0; t < rows; ++t) {
    const Row row = t < tokens ? stream.v.row(stream.place(start + t)) : Row{nullptr, 2, 0};  // 2: bf16
    for (int64_t x = 0; x < PANEL; x += LANES)
      store_floats(s.w + t * PANEL + x,
                   row.data ? load_some(static_cast<const bfloat16*>(row.data) + panel.first + x, row.count - panel.first - x) : Floats{});
  }
}

// w of a block's tokens, as it meets weights, and keys at the chunk's end.
static void pack_values(const PanelScratch& s, int64_t block) {
  for (int64_t p = 0; p < LANES; ++p) {
    Floats even[VECTORS], odd[VECTORS], even_kept[VECTORS], odd_kept[VECTORS];
    const int64_t t = block * SIDE + 2 * p;
    for (int x = 0; x < VECTORS; ++x) {
      even[x] = load_floats(s.w + t * PANEL + x * LANES), odd[x] = load_floats(s.w + (t + 1) * PANEL + x * LANES);
      even_kept[x] = even[x] * s.to_end[t], odd_kept[x] = odd[x] * s.to_end[t + 1];
    }
    store_pair(s.w_pairs + block * PAIR, p, even, odd), store_pair(s.kept_pairs + block * PAIR, p, even_kept, odd_kept);
  }
}

static void store_outputs(const Stream& stream, const PanelScratch& s, const Panel& panel, int64_t start, int64_t tokens, int64_t block,
                          const Out& out) {
  alignas(64) float sums[SIDE * PANEL];
  Square::zero();
  multiply_steps(s.q_weights + block * BLOCKS * PAIR, s.w_pairs.first(OUT_PARTS), block + 1);
  Square::store_rows(sums, PANEL);
  for (int64_t t = block * SIDE, at = 0; t < tokens && at < SIDE * PANEL; ++t, at += PANEL)
    for (int64_t x = 0; x < PANEL && panel.first + x < stream.v.count; x += LANES) {
      const Floats read = load_floats(s.read_q + t * PANEL + x) * s.from_start[t];
      out.store(stream.place(start + t), panel.first + x, (read + load_floats(sums + at + x)) * s.query_factor[t]);
    }
}

static void update_state(const PanelScratch& s, const Panel& panel, int64_t blocks) {
  for (int64_t i = 0; i < s.steps; ++i) {
    float* state = panel.state + i * SIDE * PANEL;
    for (int64_t row = 0; row < SIDE; ++row) {
      const int64_t key = i * SIDE + row % 16 * 2 + row / 16;
      for (int x = 0; x < VECTORS; ++x) {
        float* at = state + row * PANEL + x * LANES;
        store_floats(at, load_floats(at) * s.decay[key] + load_floats(at) * s.decay_rest[key]);
      }
    }
    Square::load_rows(state, PANEL);
    multiply_steps(s.kept_lines + i * BLOCKS * PAIR, s.kept_pairs, blocks);
    Square::store_rows(state, PANEL);
    pack_state(state, panel.pairs + i * PAIR);
  }
}

static void run_panel(const Stream& stream, const PanelScratch& s, const Panel& panel, const float* betas, int64_t start, int64_t tokens,
                      int64_t rows, const Out& out) {
  load_values(stream, s, panel, start, tokens, rows);
  const int64_t blocks = rows / SIDE, blocks_before = panel.first / PANEL * blocks, all_blocks = up_to(stream.v.count, PANEL) / PANEL * blocks;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t number = blocks_before + block;
    stream.prefetch(start + CHUNK + CHUNK * number / all_blocks, start + CHUNK + CHUNK * (number + 1) / all_blocks);
    read_state(s, panel.pairs.first(OUT_PARTS), s.q_lines, s.read_q, block);
    if (DELTA) read_state(s, panel.pairs, s.k_lines, s.read_k, block), solve_block(s, betas, block);
    pack_values(s, block);
    store_outputs(stream, s, panel, start, tokens, block, out);
  }
  update_state(s, panel, blocks);
}

$if not dual
static void run_stream(const Stream& stream, PanelScratch& s, const Out& out) {
  const auto panel_of = [&](int64_t first) {
    return Panel{s.state + first * s.state_rows, s.state_pairs + first / PANEL * s.steps * PAIR, first};
  };
  for (int64_t first = 0; first < stream.v.count; first += PANEL) {
    const Panel panel = panel_of(first);
    for (int64_t i = 0; i < s.steps; ++i) pack_state(panel.state + i * SIDE * PANEL, panel.pairs + i * PAIR);
  }
  amx_configure();
  for (int64_t start = 0; start < stream.tokens; start += CHUNK) {
    const int64_t tokens = stream.tokens - start < CHUNK ? stream.tokens - start : CHUNK, rows = up_to(tokens, SIDE);
    float betas[CHUNK] = {};
    for (int64_t t = 0; DELTA && t < tokens; ++t) betas[t] = stream.beta.at(stream.place(start + t));
    prepare_operands(stream, s, betas, start, tokens, rows);
    for (int64_t first = 0; first < stream.v.count; first += PANEL) run_panel(stream, s, panel_of(first), betas, start, tokens, rows, out);
  }
  amx_release();
}
$end
