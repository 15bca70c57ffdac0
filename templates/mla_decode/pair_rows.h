// Which rows of queries and outputs a block of Hopper's mla_decode of whole features has. A part of decode_pair.sm90.cu, whose constants it uses.
#pragma once

// The heads of a query token.
struct QueryRows {
  const Element* rope;
  int64_t rope_stride;
  int first, heads;

  int head(int row) const { return first + row < heads ? first + row : heads - 1; }  // rows past the last one are never stored
  const Element* rope_row(int row) const { return rope + head(row) * rope_stride; }
};

// Where outputs go.
struct Results {
  const View &out, &lse;
  float* partial;
  Softmax* softmaxes;
  int sequence, i, token, first_head, heads, part, parts;

  int64_t piece(int head) const { return (int64_t{token} * heads + head) * parts + part; }
  Element* row(int head) const { return static_cast<Element*>(out.data) + sequence * out.strides[0] + i * out.strides[1] + head * out.strides[2]; }
  void store_lse(int head, float reference, float sum) const {
    if (is_given(lse))
      static_cast<float*>(lse.data)[sequence * lse.strides[0] + head * lse.strides[1] + i * lse.strides[2]] =
          sum == 0 ? -INFINITE : reference * LN_2 + log_of(sum);
  }
};

// Scores of keys that are not there become -inf. seen: where the tile's bits are, one a key.
static inline void hide_unseen(float (&s)[KEYS / 2], uint32_t seen, int lane) {
  uint32_t bits[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) bits[h] = load_shared_4(seen + 4 * h);
  if ((bits[0] & bits[1]) == ~0u) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) bits[h] >>= lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < KEYS / 2; ++j)
    if (!(bits[j / 16] >> (j / 4 % 4 * 8 + j % 2) & 1)) s[j] = -INFINITE;
}

// What each warpgroup that multiplies does with rows, whatever keys are made of.
template <int GROUP> struct PairRows {
  static constexpr Places at{};
  static constexpr int OTHER = 1 - GROUP;
  enum Barrier { WEIGHED = 1, ALL = 3, OWN = 4 };  // + group, of WEIGHED and OWN
  LaneRows rows{{LOWEST, LOWEST}, {0, 0}};         // as of the last tile that was looked at; sums: of the own tiles

  // Lane and warp are asked for where they are used: what is made of them would else stay in registers, which are few.
  static int me() { return static_cast<int>(keep_here(thread_x())) % WARPGROUP; }
  static int own_lane() { return me() % WARP; }
  static int first_row() { return me() / WARP * 16 + own_lane() / 4; }

  // The other warpgroup's last references, and what outputs are to be multiplied by.
  void take_references(float (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float next = __uint_as_float(load_shared_4(at.row(OTHER, first_row() + 8 * h)));
      factor[h] = exp2_of(rows.reference[h] - next);
      rows.reference[h] = next, rows.sum[h] *= factor[h];
    }
  }
  void store_references(int lane) const {
    if (lane % 4 == 0)
#pragma unroll
      for (int h = 0; h < 2; ++h) store_shared_4(at.row(GROUP, first_row() + 8 * h), __float_as_uint(rows.reference[h]));
  }

  // Sums of both warpgroups' tiles come together. Outputs(f) calls f for each block of them, and the feature that it begins with.
  template <class Outputs> void finish(const Results& results, Outputs outputs) {
    add_groups();
    store(results, outputs, at.base() + GROUP * STAGED_BYTES, GROUP == 0);
  }

  void add_groups() {
    rows.add_up();
    sync_some(ALL, GROUPS * WARPGROUP);  // references have been read
    if (own_lane() % 4 == 0)
#pragma unroll
      for (int h = 0; h < 2; ++h) store_shared_4(at.row(GROUP, first_row() + 8 * h), __float_as_uint(rows.sum[h]));
    sync_some(ALL, GROUPS * WARPGROUP);
#pragma unroll
    for (int h = 0; h < 2; ++h) rows.sum[h] += __uint_as_float(load_shared_4(at.row(OTHER, first_row() + 8 * h)));
  }

  // Outputs; of a part by rows, through shared memory from `stage` on: scattered words would keep memory busy for longer. leads: stores softmaxes, too.
  template <class Outputs> void store(const Results& results, Outputs outputs, uint32_t stage, bool leads) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int head = results.first_head + first_row() + 8 * h;
      const bool wanted = head < results.heads, counts = wanted && leads && own_lane() % 4 == 0;
      if (results.parts == 1) {
        outputs([&](const auto& o, int feature) {
          store_row(o, h, rows.sum[h] == 0 ? 0 : reciprocal(rows.sum[h]), results.row(wanted ? head : 0) + feature, wanted);
        });
        if (counts) results.store_lse(head, rows.reference[h], rows.sum[h]);
      } else {
        outputs([&](const auto& o, int feature) { stage_row(o, h, stage, feature); });
        if (counts) results.softmaxes[results.piece(head)] = {rows.reference[h], rows.sum[h]};
      }
    }
    if (results.parts == 1) return;
    fence_async();
    sync_warp();
    const int row = me() / WARP * 16 + own_lane(), head = results.first_head + row;
    if (own_lane() < 16 && head < results.heads) {
      store_bytes(results.partial + results.piece(head) * R + GROUP * HALF, stage + row * STAGED_ROW, HALF * 4);
      store_commit();
      store_wait<0>();
    }
  }

  // The warpgroup's half of rows in shared memory, so far apart that lanes do not meet in banks.
  static constexpr uint32_t STAGED_ROW = HALF * 4 + 32, STAGED_BYTES = ROWS * STAGED_ROW;
  static_assert(GROUPS * STAGED_BYTES <= Places::Q_AT, "they take the place of keys");
  static uint32_t staged_at(uint32_t stage, int h, int feature) { return stage + (first_row() + 8 * h) * STAGED_ROW + (feature - GROUP * HALF + own_lane() % 4 * 2) * 4; }
  template <int N> static void stage_row(const float (&o)[N], int h, uint32_t stage, int feature) {
    const uint32_t to = staged_at(stage, h, feature);
#pragma unroll
    for (int j = 0; j < N / 4; ++j) store_shared_two(to + j * 32, {{o[4 * j + 2 * h], o[4 * j + 2 * h + 1]}});
  }
};
