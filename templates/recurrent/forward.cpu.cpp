// recurrent, forward: a work item carries the state of one sequence and head for WIDTH features of v, in blocks of BLOCK tokens. The state
// lies in panels of TILE vectors of features, so many as registers hold.
//
// In a block that begins with the state S, with e_s the factor of token s's gates over the keys (all factors are products of single tokens'
// exp(gate), so none overflows):
//   reads[t]  = S^T (e_0 .. e_t q_t) + sum over j <= t of (q_t . (e_{j+1} .. e_t k_j)) w_j
//   w_t       = v_t, or with beta: beta_t (v_t - [S^T (e_0 .. e_t k_t) + sum over j < t of (k_t . (e_{j+1} .. e_t k_j)) w_j])
//   S         becomes e_0 .. e_n S + sum over j of (e_{j+1} .. e_n k_j) w_j^T
// gv's factors are over the features of v: they multiply S^T(...) and the w_j from one token to the next. One token a block is the definition.
#include "device/cpu.h"
#include "device/number/math.h"
#include "device/number/narrow.h"
#include "recurrent/recurrent_decay.h"
#include "recurrent/recurrent_rows.h"
$if dual  // ssd
#include "ssd/dual_rows.h"
$end

constexpr int VECTORS = ${vectors};  // vectors of v's features a work item
constexpr int TILE = VECTORS < ${arch.registers / 8} ? VECTORS : ${arch.registers / 8};
constexpr int64_t WIDTH = VECTORS * LANES, PANEL = TILE * LANES, BLOCK = ${block};
constexpr bool DELTA = ${delta}, VALUE_GATES = ${value_gates};

typedef Floats Wide[VECTORS];

// The scratch of a work item, in floats; rows over the keys have `keys` of them, whole vectors.
struct Scratch {
  int64_t keys;
  float* state;                           // [WIDTH / PANEL][K][PANEL]
  float *decay, *decay_rest;              // [keys]: how S decays over the block, in two parts (split_exp)
  float *q, *k, *factor, *q_read, *k_read, *k_kept;  // [BLOCK][keys]; the last three: with the factors since the block's begin, or to its end
  float *w, *reads, *v_reads, *v_factor;  // [BLOCK][WIDTH]
  float *v_decay, *v_decay_rest;          // [WIDTH]
  float *q_on_k, *k_on_k;                 // [BLOCK][BLOCK]: [j][t], what w_j counts for token t
  Scratch(const Group& group, int64_t count) : keys((count + LANES - 1) / LANES * LANES) {
    float* next = static_cast<float*>(group.shared);
    const auto take = [&next](int64_t floats) { return (next += floats) - floats; };
    state = take(count * WIDTH), decay = take(keys), decay_rest = take(keys);
    q = take(BLOCK * keys), k = take(BLOCK * keys), factor = take(BLOCK * keys);
    q_read = take(BLOCK * keys), k_read = take(BLOCK * keys), k_kept = take(BLOCK * keys);
    w = take(BLOCK * WIDTH), reads = take(BLOCK * WIDTH), v_reads = take(BLOCK * WIDTH), v_factor = take(BLOCK * WIDTH);
    v_decay = take(WIDTH), v_decay_rest = take(WIDTH), q_on_k = take(BLOCK * BLOCK), k_on_k = take(BLOCK * BLOCK);
  }
};

// to[p][:] = sum over i of a[p * row + i] * panel[i][:], for p < ROWS.
template <int ROWS>
static inline __attribute__((always_inline)) void read_panel(const float* a, int64_t row, const float* panel, int64_t count, float* to) {
  Floats sum[ROWS][TILE] = {};
#pragma GCC unroll 1
  for (int64_t i = 0; i < count; ++i)
#pragma GCC unroll 8
    for (int x = 0; x < TILE; ++x) {
      const Floats s = load_floats(panel + i * PANEL + x * LANES);
#pragma GCC unroll 8
      for (int p = 0; p < ROWS; ++p) sum[p][x] += a[p * row + i] * s;
    }
#pragma GCC unroll 8
  for (int p = 0; p < ROWS; ++p)
#pragma GCC unroll 8
    for (int x = 0; x < TILE; ++x) store_floats(to + p * WIDTH + x * LANES, sum[p][x]);
}

static void read_state(const float* a, int64_t row, const float* state, int64_t count, float* to, int64_t tokens) {
  for (int64_t x = 0; x < WIDTH; x += PANEL) {
    const float* panel = state + x * count;
    int64_t t = 0;
    for (; t + 4 <= tokens; t += 4) read_panel<4>(a + t * row, row, panel, count, to + t * WIDTH + x);
    for (; t < tokens; ++t) read_panel<1>(a + t * row, row, panel, count, to + t * WIDTH + x);
  }
}

// Rows i up to i + ROWS of the panel of features x.. at the end of the block.
template <int ROWS>
static inline __attribute__((always_inline)) void update_rows(const Scratch& s, float* panel, int64_t first, int64_t i, int64_t tokens) {
  Floats state[ROWS][TILE];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
    for (int x = 0; x < TILE; ++x) {
      const Floats was = load_floats(panel + (i + r) * PANEL + x * LANES);
      Floats kept = was * s.decay[i + r] + was * s.decay_rest[i + r];
      if (VALUE_GATES) kept = kept * load_floats(s.v_decay + first + x * LANES) + kept * load_floats(s.v_decay_rest + first + x * LANES);
      state[r][x] = kept;
    }
#pragma GCC unroll 1
  for (int64_t j = 0; j < tokens; ++j)
#pragma GCC unroll 8
    for (int x = 0; x < TILE; ++x) {
      const Floats w = load_floats(s.w + j * WIDTH + first + x * LANES);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) state[r][x] += s.k_kept[j * s.keys + i + r] * w;
    }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
    for (int x = 0; x < TILE; ++x) store_floats(panel + (i + r) * PANEL + x * LANES, state[r][x]);
}

static void update_state(const Scratch& s, int64_t count, int64_t tokens) {
  for (int64_t x = 0; x < WIDTH; x += PANEL) {
    float* panel = s.state + x * count;
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) update_rows<4>(s, panel, x, i, tokens);
    for (; i < count; ++i) update_rows<1>(s, panel, x, i, tokens);
  }
}

// k_kept and q_on_k, k_on_k: k_j goes from token to token, and meets each one's q and k on its way.
static void meet(const Scratch& s, int64_t tokens) {
  for (int64_t j = 0; j < tokens; ++j)
    for (int64_t t = j; t < tokens; ++t) {
      Floats on_q = {}, on_k = {};
      float* kept = s.k_kept + j * s.keys;
      const float *q = s.q + t * s.keys, *k = s.k + t * s.keys, *factor = s.factor + t * s.keys;
      for (int64_t i = 0; i < s.keys; i += LANES) {
        const Floats x = t == j ? load_floats(k + i) : load_floats(kept + i) * load_floats(factor + i);
        store_floats(kept + i, x);
        on_q += x * load_floats(q + i);
        if (DELTA) on_k += x * load_floats(k + i);
      }
      s.q_on_k[j * BLOCK + t] = sum_of(on_q);
      if (DELTA) s.k_on_k[j * BLOCK + t] = sum_of(on_k);
    }
}

// q_read, k_read: with the factors of all tokens from the block's first one on.
static void read_factors(const Scratch& s, int64_t tokens) {
  for (int64_t i = 0; i < s.keys; i += LANES) {
    Floats product = splat(1.0f);
    for (int64_t t = 0; t < tokens; ++t) {
      product *= load_floats(s.factor + t * s.keys + i);
      store_floats(s.q_read + t * s.keys + i, product * load_floats(s.q + t * s.keys + i));
      if (DELTA) store_floats(s.k_read + t * s.keys + i, product * load_floats(s.k + t * s.keys + i));
    }
  }
}

// Token t's w; `reads` is what S gives its q, `w` holds v.
static void find_w(const Scratch& s, int64_t t, const Wide& from_start, float beta) {
  for (int x = 0; x < VECTORS; ++x) {
    if (!DELTA) continue;
    Floats seen = from_start[x] * load_floats(s.v_reads + t * WIDTH + x * LANES);
    for (int64_t j = 0; j < t; ++j) seen += s.k_on_k[j * BLOCK + t] * load_floats(s.w + j * WIDTH + x * LANES);
    float* w = s.w + t * WIDTH + x * LANES;
    store_floats(w, beta * (load_floats(w) - seen));
  }
}

// The block's outputs, and w_j as they are at its end.
template <class Store>
static void solve(const Scratch& s, const float* betas, int64_t tokens, const Store& store) {
  Wide from_start;
  for (Floats& x : from_start) x = splat(1.0f);
  for (int64_t t = 0; t < tokens; ++t) {
    if (VALUE_GATES)
      for (int x = 0; x < VECTORS; ++x) {
        const Floats factor = load_floats(s.v_factor + t * WIDTH + x * LANES);
        from_start[x] *= factor;
        for (int64_t j = 0; j < t; ++j) {
          float* w = s.w + j * WIDTH + x * LANES;
          store_floats(w, load_floats(w) * factor);
        }
      }
    find_w(s, t, from_start, betas[t]);
    for (int x = 0; x < VECTORS; ++x) {
      Floats out = from_start[x] * load_floats(s.reads + t * WIDTH + x * LANES);
      for (int64_t j = 0; j <= t; ++j) out += s.q_on_k[j * BLOCK + t] * load_floats(s.w + j * WIDTH + x * LANES);
      store(t, x * LANES, out);
    }
  }
}

// One sequence and head.
struct Stream {
  Rows q, k, v, gk, gv;
  Numbers g, beta;
  float gamma, scale;
  int64_t tokens, first, columns;  // of v's features
  bool reverse, l2_norm;
$if dual
  Steps steps;  // in place of g; and factors of k
$end

  int64_t place(int64_t t) const { return reverse ? tokens - 1 - t : t; }

  // q, k and the factors of tokens start.. of the block; how the state decays over it.
  void load_keys(const Scratch& s, int64_t start, int64_t count) const {
    float gates[BLOCK], all_gates = 0;
    Floats factors[BLOCK];
    for (int64_t t = 0; t < count; ++t) {
      const int64_t at = place(start + t);
      load_scaled(q.row(at), s.q + t * s.keys, scale, l2_norm);
$if dual
      const float step = steps.at(at);
      load_scaled(k.row(at), s.k + t * s.keys, step, false);
      gates[t] = step * steps.rate;
$else
      load_scaled(k.row(at), s.k + t * s.keys, 1, l2_norm);
      gates[t] = g.at(at) + gamma;
$end
      all_gates += gates[t];
      factors[t] = exp2_of(splat(gates[t] * LOG2_E));
    }
    SplitExp decay = split_exp(splat(all_gates));
    for (int64_t i = 0; i < s.keys; i += LANES) {
      if (gk.data) {
        Floats sum = {};
        for (int64_t t = 0; t < count; ++t) {
          const Floats gate = gk.row(place(start + t)).load(i) + gates[t];
          sum += gate;
          factors[t] = exp2_of(gate * LOG2_E);
        }
        decay = split_exp(sum);
      }
      for (int64_t t = 0; t < count; ++t) store_floats(s.factor + t * s.keys + i, factors[t]);
      store_floats(s.decay + i, decay.base);
      store_floats(s.decay_rest + i, decay.rest);
    }
  }

  void load_values(const Scratch& s, int64_t start, int64_t count) const {
    for (int64_t x = 0; x < WIDTH; x += LANES) {
      Floats sum = {};
      for (int64_t t = 0; t < count; ++t) {
        store_floats(s.w + t * WIDTH + x, v.row(place(start + t)).load(x));
        if (!VALUE_GATES) continue;
        const Floats gate = gv.row(place(start + t)).load(x);
        sum += gate;
        store_floats(s.v_factor + t * WIDTH + x, exp2_of(gate * LOG2_E));
      }
      if (!VALUE_GATES) continue;
      const SplitExp decay = split_exp(sum);
      store_floats(s.v_decay + x, decay.base);
      store_floats(s.v_decay_rest + x, decay.rest);
    }
  }
};

static void run_stream(const Stream& stream, const Scratch& s, const ${dual ? 'SkipRows' : 'OutRows'}& out) {
  const int64_t keys = stream.k.count;
  for (int64_t start = 0; start < stream.tokens; start += BLOCK) {
    const int64_t tokens = stream.tokens - start < BLOCK ? stream.tokens - start : BLOCK;
    stream.load_keys(s, start, tokens);
    stream.load_values(s, start, tokens);
    meet(s, tokens);
    read_factors(s, tokens);
    read_state(s.q_read, s.keys, s.state, keys, s.reads, tokens);
    if (DELTA) read_state(s.k_read, s.keys, s.state, keys, s.v_reads, tokens);
    float betas[BLOCK] = {};
    for (int64_t t = 0; DELTA && t < tokens; ++t) betas[t] = stream.beta.at(stream.place(start + t));
    solve(s, betas, tokens, [&](int64_t t, int64_t x, Floats y) { out.store(stream.place(start + t), x, y); });
    update_state(s, keys, tokens);
  }
}

// Item (x, y, z): WIDTH features of head y of sequence z. Packed: the item after the last sequence writes zeros after its tokens.
static void recurrent(${parameters('recurrent')}, const Group& group) {
$if dual
  const View &q_view = C_view, &k_view = Bm_view, &v_view = x_view, none{nullptr, -1};
$end
  const int64_t head = group.y, sequence = group.z, first = group.x * WIDTH, heads = group.grid_y, keys = q_view.shape[3];
  const int64_t columns = v_view.shape[3] - first < WIDTH ? v_view.shape[3] - first : WIDTH;
  const Tokens tokens{cum_seqlens, sequences, sequence, q_view.shape[1]};
$if dual
  const SkipRows out{{out_view, data_type, tokens, head, first, columns}, {x_view, data_type, tokens, head, heads, first, columns},
                     is_given(D_view), number_of_head(D_view, d_type, head)};
$else
  const OutRows out(out_view, data_type, tokens, head, first, columns);
$end
  if (sequence == sequences) return out.clear(tokens.count());
$if dual
  Stream stream{{q_view, data_type, tokens, head, heads, 0, keys}, {k_view, data_type, tokens, head, heads, 0, keys},
                {v_view, data_type, tokens, head, heads, first, columns}, {none, 0, tokens, head, heads, 0, keys},
                {none, 0, tokens, head, heads, first, columns}, {none, 0, tokens, head}, {none, 0, tokens, head}, 0, 1,
                tokens.count(), first, columns, false, false,
                {{dt_view, dt_type, tokens, head}, number_of_head(dt_bias_view, bias_type, head), number_at(A_view.data, a_type, head), dt_softplus}};
$else
  Stream stream{{q_view, data_type, tokens, head, heads, 0, keys}, {k_view, data_type, tokens, head, heads, 0, keys},
                {v_view, data_type, tokens, head, heads, first, columns}, {gk_view, gk_type, tokens, head, heads, 0, keys},
                {gv_view, gv_type, tokens, head, heads, first, columns}, {g_view, g_type, tokens, head}, {beta_view, beta_type, tokens, head},
                gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), static_cast<float>(softmax_scale),
                tokens.count(), first, columns, reverse, l2_norm};
$end
  const Scratch scratch(group, keys);
$if in_place
  const ${dual ? 'DualState' : 'State'}<${half_state ? 'bfloat16' : 'float'}> state(state_view, sequence, head, first, columns);
  state.load<WIDTH, PANEL>(scratch.state, keys);
  run_stream(stream, scratch, out);
  state.store<WIDTH, PANEL>(scratch.state, keys);
$else
  ${dual ? 'DualState' : 'State'}<float>(initial_state_view, sequence, head, first, columns).load<WIDTH, PANEL>(scratch.state, keys);
  run_stream(stream, scratch, out);
  ${dual ? 'DualState' : 'State'}<float>(final_state_view, sequence, head, first, columns).store<WIDTH, PANEL>(scratch.state, keys);
$end
}
