// GPU vocabulary: the products of native_sparse_attention/key_sums.h on matrix instructions of a wave (MFMA, WMMA), 16 keys a wave. Part of
// a template, as key_sums.h, which has defined the places and rules of rows, ROWS (a multiple of 16) and KEY_THREADS before.
//
// Products are transposed: weights are [row][key], gradients [feature][key]. So a lane's numbers are all of one key, whose row it keeps.
#pragma once
#include "device/matrix/store_turned.h"
#include "device/matrix/wave_rows.h"

// Shared memory: a step's rows of q and of dout, as they are and turned.
struct KeySumMemory {
  using QueryRows = Tile<Element, ROWS, D>;
  using DoutRows = Tile<Element, ROWS, DV>;
  static constexpr int PITCH = TRANSPOSED_PITCH<ROWS>, DOUTS = QueryRows::BYTES, TURNED_QUERIES = DOUTS + DoutRows::BYTES,
                       TURNED_DOUTS = TURNED_QUERIES + D * PITCH;
};

// dk and dv of key matrix_column() of the wave's.
struct KeyColumns {
  using Memory = KeySumMemory;
  static constexpr bool KEPT = ${arch.wave == 64 or D + Dv <= 128};  // waves of 32 read longer rows again each step: registers are few
  OwnRow<Element, D, KEPT> own_key;
  OwnRow<Element, DV, KEPT> own_value;
  Sums dk[D / 16], dv[DV / 16];

  static int column() { return wave() * 16 + matrix_column(); }  // of the block's keys

  // Of `count` keys; those that are not there are the last one.
  void start(const Element* keys, int64_t key_stride, const Element* values, int64_t value_stride, int count) {
    const int there = column() < count ? column() : count - 1;
    own_key = OwnRow<Element, D, KEPT>(keys + there * key_stride), own_value = OwnRow<Element, DV, KEPT>(values + there * value_stride);
#pragma unroll
    for (int f = 0; f < D / 16; ++f) dk[f] = {};
#pragma unroll
    for (int f = 0; f < DV / 16; ++f) dv[f] = {};
  }

  // A step's rows of one tensor, as they are and turned; those that are not there are zeros. Neighbouring threads take neighbouring rows.
  template <int COLUMNS>
  static void copy_listed(const Tile<Element, ROWS, COLUMNS>& to, SharedPointer turned, const View& from, const BranchInputs& in,
                          const RowPlace* places) {
    const Element* const data =
        static_cast<const Element*>(from.data) + in.batch * from.strides[0] + in.kv_head * in.heads_a_kv_head * from.strides[2];
#pragma unroll 1
    for (int i = later(thread_x()); i < ROWS * (COLUMNS / 8); i += KEY_THREADS) {
      const int row = i % ROWS, feature = i / ROWS * 8;
      const RowPlace place = places[row];
      Pack<uint32_t, 4> words = {};
      if (place.token >= 0)
        words =
            load_pack<4>(reinterpret_cast<const uint32_t*>(data + place.token * from.strides[1] + place.head * from.strides[2] + feature));
      store_pack(shared_at<uint32_t>(to.at(row, feature)), words);
      store_turned(turned + feature * Memory::PITCH + row * 2, Memory::PITCH, words);
    }
  }
  static void copy_rows(SharedPointer memory, const BranchInputs& in, const RowPlace* places) {
    copy_listed(Memory::QueryRows{memory}, memory + Memory::TURNED_QUERIES, in.q, in, places);
    copy_listed(Memory::DoutRows{memory + Memory::DOUTS}, memory + Memory::TURNED_DOUTS, in.dout, in, places);
  }

  // Of 16 rows scores become weights, products their slopes.
  static void weigh(Sums& w, Sums& s, const RowRule* rules, float unit) {
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const RowRule row = rules[matrix_row(i)];
      const float weight = column() >= row.begin && column() < row.end ? exp2_of(w.at[i] * unit - row.lse) * row.gate : 0;
      w.at[i] = weight;
      s.at[i] = weight == 0 ? 0 : weight * (s.at[i] - row.delta);
    }
  }
  void add_step(SharedPointer memory, const RowRule* rules, float unit) {
    const Memory::QueryRows queries{memory};
    const Memory::DoutRows douts{memory + Memory::DOUTS};
#pragma unroll 1
    for (int n = 0; n < ROWS; n += 16) {
      Sums w = multiply_rows<Element>(queries.at(n, 0), Memory::QueryRows::PITCH * 2, own_key);
      part();
      Sums s = multiply_rows<Element>(douts.at(n, 0), Memory::DoutRows::PITCH * 2, own_value);
      hold(s);
      part();
      weigh(w, s, rules + n, unit);
      part();
      add_products<Element, ROWS>(dv, memory + Memory::TURNED_DOUTS + 2 * n, w);
      part();
      add_products<Element, ROWS>(dk, memory + Memory::TURNED_QUERIES + 2 * n, s);
    }
  }

  // [KEYS][D + DV], of which `keys` rows.
  void store(float* to, int keys) const {
    if (column() >= keys) return;
    store_row<D>(to + column() * (D + DV), dk, 1);
    store_row<DV>(to + column() * (D + DV) + D, dv, 1);
  }
};
