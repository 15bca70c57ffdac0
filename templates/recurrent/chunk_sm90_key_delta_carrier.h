// Hopper vocabulary of the chunked recurrence with gates of keys and the delta rule: a warpgroup that carries 64 columns of a state through a sequence.
// Part of a template, which has defined the parts of a chunk and their Places before.
#pragma once
#include "device/sm90/sm90_few_registers.h"

struct Carrier {
  const Places at;
  const int part;

  const float* numbers_at(uint32_t place) const { return reinterpret_cast<const float*>(dynamic_shared() + (at.first + place - shared_pointer(dynamic_shared()))); }

  void wait(int of, int chunk) const {
    barrier_wait_all(at.full(of), computed_anew(chunk) % 2);  // no register keeps it
  }
  void release(int of) const {
    sync_warp();
    if (lane() == 0) barrier_arrive(at.empty(of));
  }

  // The part's values by tokens, as a left factor.
  void load_values(uint32_t (&a)[4][4]) const {
    const int token = lane() % 8 + lane() / 16 * 8, pack = warp() % 4 * 2 + lane() / 8 % 2;
    const uint32_t from = at.first + VALUES + part * BOX + token * 128 + (pack ^ token % 8) * 16;
#pragma unroll
    for (int k = 0; k < 4; ++k) load_matrices_transposed(a[k], from + k * 2048);
  }

  // x (+)= what 64 keys read of the state, of whose products with pieces those below the last digits are left out.
  static void read_early(Columns& x, const uint32_t (&seen)[SLICES][4], const uint32_t (&rest)[SLICES][4], uint32_t rows, int box) {
#pragma unroll
    for (int piece = ROW_PIECES - 1; piece >= 0; --piece)
#pragma unroll
      for (int of_state = piece + 1 < ROW_PIECES ? 1 : 0; of_state >= 0; --of_state)
#pragma unroll
        for (int k = 0; k < 4; ++k)
          wgmma<Piece, CHUNK>(x, (of_state ? rest : seen)[4 * box + k], moved(depth_major<128>(rows + piece * BOX), k * 32),
                              !(box == 0 && piece == ROW_PIECES - 1 && k == 0));
  }
  // sums (+)= what 64 keys of queries read of it.
  static void read_queries(Columns& sums, const uint32_t (&seen)[SLICES][4], uint32_t rows, int box) {
    const uint64_t b = depth_major<128>(rows);
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<Piece, CHUNK>(sums, seen[4 * box + k], moved(b, k * 32), box + k > 0);
  }

  // taken = (written + rest) rows, of 64 keys, likewise.
  static void take_in(Columns& taken, const uint32_t (&written)[4][4], const uint32_t (&rest)[4][4], uint32_t rows) {
#pragma unroll
    for (int piece = ROW_PIECES - 1; piece >= 0; --piece) {
      if (piece + 1 < ROW_PIECES) multiply_by_columns<Piece>(taken, rest, rows + piece * BOX, true);
      multiply_by_columns<Piece>(taken, written, rows + piece * BOX, piece + 1 < ROW_PIECES);
    }
    wgmma_commit();
  }

  // The state and what is made of it, moved into the window.
  static void move(ValueScales& scales, Column& state, Columns& sums, Columns& x) {
    float largest[2] = {}, by[2];
    scales.add_largest(largest, state), scales.add_largest(largest, x);
    scales.choose(by, largest);
    scales.multiply(state, by), scales.multiply(sums, by), scales.multiply(x, by);
  }

  // x: beta times what values differ by from what keys read, which is in it.
  void subtract_from_values(Columns& x, const uint32_t (&values)[4][4], const ValueScales& scales) const {
    const float* betas = numbers_at(BETA_ROWS);
#pragma unroll
    for (int j = 0; j < CHUNK / 8; ++j) {
      const Pack<float, 2> beta = load_pack<2>(betas + 8 * j + lane() % 4 * 2), of_key = load_pack<2>(betas + CHUNK + 8 * j + lane() % 4 * 2);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t pair = values[j / 2][j % 2 * 2 + i / 2];
        x[4 * j + i] = beta.at[i % 2] * ((i % 2 ? high_of(pair) : low_of(pair)) * scales.of(i / 2)) - of_key.at[i % 2] * x[4 * j + i];
      }
    }
  }
  // Rows of out of the sums.
  void finish(Columns& sums, const ValueScales& scales) const {
    const float back[2] = {scales.back(0), scales.back(1)};
    scales.multiply(sums, back);
    scale_by_token(sums, numbers_at(OUT_ROW), 1);
  }

  // The state after the chunk, and store(rows of out) while products go on.
  template <class Store> void compute(Column& state, int chunk, Carried& carried, ValueScales& scales, Store store) const {
    static_assert(ROW_PIECES == 2 && INVERSE_PARTS == 2);
    uint32_t pieces[2][4][4];
    Columns x, sums;
    {
      uint32_t seen[SLICES][4], seen_rest[SLICES][4];
      to_factor<Piece>(seen, state);
      if (has_large_rows(sizes_of_rows(seen))) {
        scales.move(state);
        to_factor<Piece>(seen, state);
      }
      keep_in_place(x);
      keep_in_place(sums);
#pragma unroll
      for (int box = 0; box < BOXES; ++box) {
#pragma unroll
        for (int k = 4 * box; k < 4 * box + 4; ++k) to_rounding<Piece>(seen_rest[k], seen[k], state + 8 * k);
        wait(EARLY + box, chunk);
        wgmma_fence();
        read_early(x, seen, seen_rest, at.first + box * GROUP, box);
        read_queries(sums, seen, at.first + box * GROUP + QUERIES_AT, box);
        wgmma_commit();
        if (box > 0) {
          wgmma_wait<1>();
          release(EARLY);
        }
      }
    }
    wait(VALUES_PART, chunk);
    load_values(pieces[1]);
    wgmma_wait<0>();
    release(EARLY + BOXES - 1);
    keep_in_place(x);
    keep_in_place(sums);
    subtract_from_values(x, pieces[1], scales);
    release(VALUES_PART);
    to_factor<Piece>(pieces[0], x);
    const uint32_t sizes = of_whole_rows(sizes_of_rows(pieces[0]));
    if (has_large_rows(sizes) || has_small_rows(sizes)) {
      move(scales, state, sums, x);
      to_factor<Piece>(pieces[0], x);
    }
    to_rounding<Piece>(pieces[1], pieces[0], x);
    wait(INVERSE, chunk);
    keep_in_place(x);
    wgmma_fence();
    multiply_by_rows<Piece>(x, pieces[0], at.first + INVERSE_AT + BOX, false);
    multiply_by_rows<Piece>(x, pieces[1], at.first + INVERSE_AT, true);
    multiply_by_rows<Piece>(x, pieces[0], at.first + INVERSE_AT, true);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(x);
    const float power = *numbers_at(POWER);
    release(INVERSE);
    if (power != 1) {
#pragma unroll
      for (int i = 0; i < CHUNK / 2; ++i) x[i] *= power;
    }
    to_factor<Piece>(pieces[0], x);
    if (has_large_rows(sizes_of_rows(pieces[0]))) {
      move(scales, state, sums, x);
      to_factor<Piece>(pieces[0], x);
    }
    to_rounding<Piece>(pieces[1], pieces[0], x);
    keep_in_place(sums);
    keep_in_place(x);
    wait(PAIRS, chunk);
    wgmma_fence();
    multiply_by_rows<Piece>(sums, pieces[0], at.first + PAIRS_AT, true);
    wgmma_commit();
    wait(LATE, chunk);
    take_in(x, pieces[0], pieces[1], at.first + LATE_AT);
    wgmma_wait<1>();
    keep_in_place(sums);
    finish(sums, scales);
    release(PAIRS);
    store(sums);
    const float* decays = numbers_at(DECAYS);
    if constexpr (BOXES > 1) {
      wait(LATE + 1, chunk);
      keep_in_place(sums);
      wgmma_fence();
      take_in(sums, pieces[0], pieces[1], at.first + GROUP + LATE_AT);
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    keep_in_place(x);
    add_to_decayed(state, 0, x, decays);
    if constexpr (BOXES > 1) {
      release(LATE);
      wgmma_wait<0>();
      keep_in_place(sums);
      add_to_decayed(state, 1, sums, decays);
    }
    if (carried.carries) carried.note(chunk % 2, state, {scales.back(0), scales.back(1)});
    release(LATE + BOXES - 1);
  }
};
