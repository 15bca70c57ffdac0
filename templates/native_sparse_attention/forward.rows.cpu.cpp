// native_sparse_attention, or its branch of blocks alone, forward, rows: all query heads of a kv head meet a block of means, or of keys, while it is in the
// cache, ROWS heads at once.
#include "device/attention/decode_rows.h"
#include "native_sparse_attention/select_blocks_cpu.h"

using Element = ${ctype(E)};
constexpr int64_t D = ${D}, DIM = ${Dv};  // features of a key; of a value, and of a row of out
constexpr int ROWS = ${rows};             // query heads at a time
constexpr int BLOCK = 64;                 // keys at a time
$require D % 8 == 0 and Dv % 8 == 0
#include "native_sparse_attention/gates.h"

using Rows = DecodeRows<Element, D, DIM, ROWS, BLOCK>;
using MeanRows = DecodeRows<float, D, DIM, ROWS, BLOCK>;
constexpr int TOKENS = Rows::TOKENS;

// Keys and values of one kv head.
template <class T> struct Keys {
  const T *keys, *values;
  int64_t key_stride, value_stride;
};

// The keys [run.first, end) that `blocks` leave, a part at a time; all of them where blocks.bits is null.
struct Runs {
  SelectedBlocks blocks;
  KeyRange run;
  int64_t end;

  Runs(const SelectedBlocks& selected, int64_t first, int64_t last)
      : blocks(selected), run(selected.bits ? selected.next(first, last) : KeyRange{first, last}), end(last) {}

  template <class Places, class T> void fill(Places& places, const Keys<T>& from) {
    places.count = 0;
    while (places.count < BLOCK && run.first < run.end) {
      for (; places.count < BLOCK && run.first < run.end; ++run.first, ++places.count) {
        places.key[places.count] = from.keys + run.first * from.key_stride;
        places.value[places.count] = from.values + run.first * from.value_stride;
      }
      if (run.first == run.end && blocks.bits) run = blocks.next(run.end, end);
    }
    places.repeat_last();
  }
};

static inline Floats lane_tokens() {
  Floats t;
  for (int lane = 0; lane < LANES; ++lane) t[lane] = static_cast<float>(lane % TOKENS);
  return t;
}

// The query heads of one kv head.
struct QueryHeads {
  const Element* query;
  int64_t stride, count, passes;
};

template <class R> static void start_rows(R* rows, const QueryHeads& heads, bool load) {
  for (int64_t pass = 0; pass < heads.passes; ++pass)
    for (int r = 0; r < ROWS; ++r) {
      const int64_t head = pass * ROWS + r;
      if (load) rows[pass].load_query(r, head < heads.count ? heads.query + head * heads.stride : nullptr);
      for (int t = 0; t < TOKENS; ++t) rows[pass].maximum[r * TOKENS + t] = -INFINITE, rows[pass].sum[r * TOKENS + t] = 0;
      __builtin_memset(rows[pass].output[r], 0, sizeof rows[pass].output[r]);
    }
}

// VALUES: also the weighted sums of values.
template <bool VALUES, class R, class T> static void attend_keys(R* rows, const QueryHeads& heads, const Keys<T>& keys, Runs runs, float unit) {
  const Floats token = lane_tokens();
  typename R::Places places[2];
  runs.fill(places[0], keys);
  for (int turn = 0; places[turn].count > 0; turn ^= 1) {
    const auto& now = places[turn];
    auto& next = places[turn ^ 1];
    runs.fill(next, keys);
    for (int64_t pass = 0; pass < heads.passes; ++pass) {
      alignas(64) float scores[BLOCK * ROWS];
      const int64_t count = now.count;
      const Floats most = rows[pass].score_block(now, next, scores, [&](Floats products, int64_t i) {
        const Floats s = products * unit;
        return i + TOKENS > count ? (token < splat(static_cast<float>(count - i)) ? s : splat(-INFINITE)) : s;
      });
      rows[pass].weigh_block(most, count, scores);
      if constexpr (VALUES) rows[pass].template add_values<false>(now, next, scores);
    }
  }
}

// The outputs of a branch of one head, times its gate, joins the result.
template <class R> static void add_row(const R& rows, int r, float gate, float* result) {
  const float sum = rows.sum_of(r), factor = sum == 0 ? 0 : gate / sum;
  for (int64_t d = 0; d < R::VALUE_PADDED; d += LANES) store_floats(result + d, load_floats(result + d) + load_floats(rows.output[r] + d) * factor);
}

$if gated
// Of each mean the sum of its softmax weights over the heads, once these are known.
static void find_importance(float* importance, const MeanRows* rows, const QueryHeads& heads, const float* means, int64_t count, float unit) {
  for (int64_t c = 0; c < count; c += TOKENS) {
    const float* keys[TOKENS];
    for (int t = 0; t < TOKENS; ++t) keys[t] = means + (c + t < count ? c + t : count - 1) * D;
    float sums[TOKENS] = {};
    for (int64_t pass = 0; pass < heads.passes; ++pass) {
      const Floats weights = exp2_of(rows[pass].products(keys) * unit - load_floats(rows[pass].maximum));
      for (int r = 0; r < ROWS && pass * ROWS + r < heads.count; ++r) {
        const float sum = rows[pass].sum_of(r);
        for (int t = 0; t < TOKENS; ++t) sums[t] += weights[r * TOKENS + t] / sum;
      }
    }
    for (int t = 0; t < TOKENS && c + t < count; ++t) importance[c + t] = sums[t];
  }
}

#include "native_sparse_attention/find_means_entry.h"
$end

// Item (x, y, z): a token of row z of the batch, the last first, and all query heads of kv head y.
static void attend(${parameters('attend')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const int64_t token = group.grid_x - 1 - group.x, kv_head = group.y, batch = group.z, own = token / block_size;
  const int64_t first_head = kv_head * heads_a_kv_head;
  const QueryHeads heads{q.row(batch, token, first_head), q.head_stride, heads_a_kv_head, (heads_a_kv_head + ROWS - 1) / ROWS};
  const float unit = softmax_scale * LOG2_E;
  Rows* rows = static_cast<Rows*>(group.shared);
  float* results = reinterpret_cast<float*>(rows + heads.passes);
  uint32_t* bits = reinterpret_cast<uint32_t*>(results + heads.passes * ROWS * Rows::VALUE_PADDED);
  for (int64_t i = 0; i < block_words; ++i) bits[i] = 0;
  __builtin_memset(results, 0, heads.passes * ROWS * Rows::VALUE_PADDED * sizeof(float));
  const SelectedBlocks blocks{bits, block_size}, all{nullptr, 1};
  const auto each_head = [&](auto use) {
    for (int64_t i = 0; i < heads.count; ++i) use(i, i / ROWS, static_cast<int>(i % ROWS), results + i * Rows::VALUE_PADDED);
  };
$if gated
  float* importance = reinterpret_cast<float*>(bits + (block_words + 15) / 16 * 16);
  MeanRows* mean_rows = reinterpret_cast<MeanRows*>(importance + (means + 15) / 16 * 16);
  const int64_t past = (token + 1) / block_size, at = (batch * group.grid_y + kv_head) * means;
  const bool chooses = is_given(g_slc_view) && !is_given(block_indices_view) && room_beside(named_blocks, own) < own - 1;
  const auto store_lse = [&](Branch branch, auto* branch_rows) {
    each_head([&](int64_t i, int64_t pass, int r, float*) {
      const float lse = branch_rows ? lse_of(branch_rows[pass].maximum[r * TOKENS], branch_rows[pass].sum_of(r)) : -INFINITE;
      store_branch_lse(branch_lse_view, batch, token, first_head + i, branch, lse);
    });
  };
  const auto finish = [&](Branch branch, const View& gate, const auto* branch_rows) {
    each_head([&](int64_t i, int64_t pass, int r, float* result) {
      add_row(branch_rows[pass], r, gate_of(gate, batch, token, first_head + i), result);
    });
    store_lse(branch, branch_rows);
  };
  const Keys<float> mean_keys{key_means + at * D, value_means + at * DIM, D, DIM};
  if (is_given(g_cmp_view) || chooses) start_rows(mean_rows, heads, true);
  if (is_given(g_cmp_view)) {
    attend_keys<true>(mean_rows, heads, mean_keys, Runs(all, 0, past), unit);
    finish(MEANS, g_cmp_view, mean_rows);
  } else {
    if (chooses) attend_keys<false>(mean_rows, heads, mean_keys, Runs(all, 0, past), unit);
    store_lse(MEANS, static_cast<const MeanRows*>(nullptr));
  }
  if (chooses) find_importance(importance, mean_rows, heads, mean_keys.keys, past, unit);
  if (is_given(block_indices_view))
    name_blocks(bits, block_indices_view, block_counts_view, batch, token, kv_head, named_blocks, own);
  else if (is_given(g_slc_view))
    choose_blocks(bits, importance, own, named_blocks);
  store_selected(selected_view, blocks, batch, token, kv_head, own);
$else
  name_blocks(bits, block_indices_view, block_counts_view, batch, token, kv_head, named_blocks, own);
$end
  const Keys<Element> keys{k.row(batch, 0, kv_head), v.row(batch, 0, kv_head), k.token_stride, v.token_stride};
$if gated
  if (is_given(g_slc_view) || is_given(g_swa_view)) start_rows(rows, heads, true);
  if (is_given(g_slc_view)) {
    attend_keys<true>(rows, heads, keys, Runs(blocks, 0, token + 1), unit);
    finish(BLOCKS, g_slc_view, rows);
    if (is_given(g_swa_view)) start_rows(rows, heads, false);
  } else {
    store_lse(BLOCKS, static_cast<const Rows*>(nullptr));
  }
  if (is_given(g_swa_view)) {
    const KeyRange seen = visible_keys(Visibility{true, window_left, 0}, token, 0, token + 1);
    attend_keys<true>(rows, heads, keys, Runs(all, seen.first, seen.end), unit);
    finish(WINDOW, g_swa_view, rows);
  } else {
    store_lse(WINDOW, static_cast<const Rows*>(nullptr));
  }
$else
  start_rows(rows, heads, true);
  attend_keys<true>(rows, heads, keys, Runs(blocks, 0, token + 1), unit);
  each_head([&](int64_t i, int64_t pass, int r, float* result) {
    add_row(rows[pass], r, 1, result);
    if (is_given(lse_view))
      static_cast<float*>(lse_view.data)[batch * lse_view.strides[0] + (first_head + i) * lse_view.strides[1] + token * lse_view.strides[2]] =
          lse_of(rows[pass].maximum[r * TOKENS], rows[pass].sum_of(r));
  });
$end
  each_head([&](int64_t i, int64_t, int, float* result) { store_row<DIM>(result, 1, out.row(batch, token, first_head + i)); });
}
