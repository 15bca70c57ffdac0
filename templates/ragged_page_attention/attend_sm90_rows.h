// Rows of ragged_page_attention on Hopper once their keys are done, or where there are none. Part of attend.sm90.cu, whose constants it uses.
#pragma once
#include "device/sm90/sm90_inline_sinks.h"

// Parts of streams that are cut, by units of 16 rows of a warp, laid out as its registers are: [units][D / 8][lanes][4] outputs, [units][lanes][4]: references and
// sums of the lane's two rows.
struct Parts {
  float *outputs, *softmaxes;
  int32_t* arrived;
  float* output(int unit, int i) const { return outputs + (int64_t{unit} * (D / 8) + i) * (4 * WARP) + 4 * lane(); }
  float* softmax(int unit) const { return softmaxes + int64_t{unit} * (4 * WARP) + 4 * lane(); }

  void store(int unit, const float (&o)[D / 2]) const {
#pragma unroll
    for (int i = 0; i < D / 8; ++i) store_pack(output(unit, i), Pack<float, 4>{{o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]}});
  }
  void store_softmax(int unit, const LaneRows& rows) const {
    store_pack(softmax(unit), Pack<float, 4>{{rows.reference[0], rows.reference[1], rows.sum[0], rows.sum[1]}});
  }
  // What another block wrote in this launch.
  static Pack<float, 4> load(const float* from) {
    Pack<float, 4> x;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.at[0]), "=f"(x.at[1]), "=f"(x.at[2]), "=f"(x.at[3]) : "l"(from) : "memory");
    return x;
  }
  // The softmax of `count` parts, `step` units apart from unit `first` on. AT_ONCE are on their way together.
  static constexpr int AT_ONCE = GROUPS == 3 ? 2 : 4;
  LaneRows softmax_of(int first, int step, int count) const {
    LaneRows rows{{LOWEST, LOWEST}, {0, 0}};
#pragma unroll 1
    for (int part = 0, unit = first; part < count; part += AT_ONCE, unit += AT_ONCE * step) {
      Pack<float, 4> one[AT_ONCE];
#pragma unroll
      for (int u = 0; u < AT_ONCE; ++u) one[u] = load(softmax(part + u < count ? unit + u * step : unit));
#pragma unroll
      for (int u = 0; u < AT_ONCE; ++u)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (part + u >= count) continue;
          const float reference = larger_of(rows.reference[h], one[u].at[h]);
          rows.sum[h] = rows.sum[h] * exp2_of(rows.reference[h] - reference) + one[u].at[2 + h] * exp2_of(one[u].at[h] - reference);
          rows.reference[h] = reference;
        }
    }
    return rows;
  }
  // The sum of their outputs of 64 features, relative to that.
  void add_up(float (&x)[32], const LaneRows& rows, int features, int first, int step, int count) const {
#pragma unroll
    for (int i = 0; i < 32; ++i) x[i] = 0;
#pragma unroll 1
    for (int part = 0, unit = first; part < count; part += AT_ONCE, unit += AT_ONCE * step) {
      Pack<float, 4> one[AT_ONCE], o[AT_ONCE][8];
#pragma unroll
      for (int u = 0; u < AT_ONCE; ++u) {
        const int from = part + u < count ? unit + u * step : unit;
        one[u] = load(softmax(from));
#pragma unroll
        for (int i = 0; i < 8; ++i) o[u][i] = load(output(from, features / 8 + i));
      }
#pragma unroll
      for (int u = 0; u < AT_ONCE; ++u) {
        if (part + u >= count) continue;
        const float factor[2] = {exp2_of(one[u].at[0] - rows.reference[0]), exp2_of(one[u].at[1] - rows.reference[1])};
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
          for (int k = 0; k < 4; ++k) x[4 * i + k] += o[u][i].at[k] * factor[k / 2];
      }
    }
  }
};

static inline float lse_of(const Softmax& row) { return row.sum == 0 ? -INFINITE : row.reference * LN_2 + log_of(row.sum); }

// Adds the sinks of a query head to a row.
static inline Softmax with_sinks(const RowEnd& ends, const Softmax& row, int head) {
  if (ends.sinks_type < 0) return row;
  Softmax sinks;
  InlineSinks(ends.softmax_aux, ends.sinks_type, head, ends.heads).start(sinks.reference, sinks.sum);
  const float reference = larger_of(row.reference, sinks.reference);
  return {reference, row.sum * factor_of(row, reference) + sinks.sum * factor_of(sinks, reference)};
}

// Rows by the definition, by a warp: for those whose outputs are not finite since a value behind a weight of 0 is not. Little code, and no calls, which would make wgmma wait.
struct PlainRows {
  const Element* queries;
  int64_t query_token, query_head;
  const Cached* pages;
  int64_t page_stride, slot_stride, row_stride;
  const int32_t* tables;
  int64_t table_stride;
  const RowEnd& ends;
  int heads_a_kv_head, window;

  const Cached* slot(const RaggedItem& item, int key, int row) const {
    return pages + tables[item.sequence * table_stride + key / PAGE] * page_stride + key % PAGE * slot_stride + row * row_stride;
  }
  Element* out_row(int token, int head) const { return static_cast<Element*>(ends.out.data) + ends.out.at(token, head); }
  bool is_broken(int token, int head) const {
    const Element* from = out_row(token, head);
    float zero = 0;
    for (int i = lane(); i < D; i += WARP) zero += to_float(from[i]) * 0;
    return any_in_warp(zero != 0);
  }
  // `row`: of the item's tokens times heads.
  void attend(const KnownItem& known_item, int token, int head) const {
    const RaggedItem& item = known_item.item;
    const int position = item.position + token - item.token, end = smaller_of(position + 1, item.keys);
    const Element* query = queries + token * query_token + head * query_head;
    float output[D / WARP] = {}, reference = LOWEST, sum = 0;
#pragma unroll 1
    for (int first = larger_of(position - window, 0); first < end; first += WARP) {
      const bool seen = first + lane() < end;
      const Cached* key = slot(item, seen ? first + lane() : first, 2 * item.kv_head);
      float score = 0;
#pragma unroll 1
      for (int d = 0; d < D; ++d) score += to_float(query[d]) * to_float(key[d]);
      score = CAPPED ? far_tanh_of(score * known_item.cap_unit) * known_item.unit : (known_item.negative ? -score : score) * known_item.unit;
      if (!seen) score = -INFINITE;
      float largest = larger_of(score, reference);
      for (int mask = WARP / 2; mask > 0; mask /= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
      const float factor = exp2_of(reference - largest), weight = exp2_of(score - largest);
      reference = largest;
      sum = sum * factor + weight;
#pragma unroll
      for (int i = 0; i < D / WARP; ++i) output[i] *= factor;
#pragma unroll 1
      for (int j = 0; j < WARP; ++j) {
        const float w = shuffle(weight, j);
        if (w == 0) continue;
        const Cached* value = slot(item, first + j, 2 * item.kv_head + 1);
#pragma unroll
        for (int i = 0; i < D / WARP; ++i) output[i] += w * to_float(value[lane() + WARP * i]);
      }
    }
    for (int mask = WARP / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    const float factor = scale_of(Softmax{reference, sum}, with_sinks(ends, {reference, sum}, head)) * known_item.v_factor;
    Element* to = out_row(token, head);
#pragma unroll
    for (int i = 0; i < D / WARP; ++i) to[lane() + WARP * i] = from_float<Element>(output[i] * factor);
  }
};

// Tokens that see no key, by the warp that has nothing else to do: those of no sequence, and those of sequences with fewer keys than new tokens.
struct Unseen {
  const int32_t *starts, *contexts;
  int count, tokens;

  static void finish_row(const RowEnd& ends, int token, int head, bool has_sinks) {
    const float zeros[4] = {};
    const Softmax none{LOWEST, 0};
#pragma unroll 1
    for (int feature = lane() * 4; feature < D; feature += WARP * 4) ends.store<Element>(token, head, feature, zeros, 0);
    if (lane() == 0) ends.store_lse(token, head, has_sinks ? with_sinks(ends, none, head) : none);
  }
  void finish(const RowEnd& ends) const {
    const int own = block_x(), warps = grid_x();
#pragma unroll 1
    for (int64_t row = int64_t{starts[count]} * ends.heads + own; row < int64_t{tokens} * ends.heads; row += warps)
      finish_row(ends, static_cast<int>(row / ends.heads), static_cast<int>(row % ends.heads), false);
#pragma unroll 1
    for (int n = own; n < count; n += warps) {
      const int first = starts[n], many = smaller_of(starts[n + 1] - first, starts[n + 1] - first - contexts[n]);
#pragma unroll 1
      for (int64_t row = 0; row < int64_t{many} * ends.heads; ++row)
        finish_row(ends, first + static_cast<int>(row / ends.heads), static_cast<int>(row % ends.heads), true);
    }
  }
};
