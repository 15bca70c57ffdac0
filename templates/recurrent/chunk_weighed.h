// GPU vocabulary of the chunked recurrence with gates of keys: a state takes in a chunk's rows, which are weighed with what gates leave of
// them and are two elements a number. After chunk_prepare.h.
#pragma once

// state = decay state + (written + written_rest) (keys + keys_rest), with a decay for each key; without the product of both rests, and
// (unless RESTS, where values are exact) without written_rest.
template <bool RESTS>
static inline void take_in_weighed(State& state, const float* decays, const Operands<4>& written, const Operands<4>& written_rest,
                                   const KeyTile& keys, const KeyTile& keys_rest${narrow ? ', float inverse' : ''}) {
  constexpr int AHEAD = 1;
  uint32_t b[2][4][4];  // of a step (a slice of keys, or of the rests), and of the next one
  const auto load = [&](int step) {
#pragma unroll
    for (int c = 0; c < 4; ++c) (step % 2 ? keys_rest : keys).load_b_transposed(b[step % 2][c], 16 * c, 16 * (step / 2));
  };
  float sums[4][4];
  if (AHEAD) load(0);
#pragma unroll
  for (int step = 0; step < 2 * SLICES; ++step) {
    sync_warp();  // keeps the compiler from loading further ahead, for which there are no registers
    if (step + AHEAD < 2 * SLICES) load(step + AHEAD);
    if (step % 2 == 0) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const Pack<float, 2> decay = load_pack<2>(decays + 8 * (step + n) + lane() % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& x = state[step + n][i];
          x = x * base_of(decay.at[i % 2]) + x * decay.at[i % 2];
          sums[n][i] = 0, sums[2 + n][i] = 0;
        }
      }
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      multiply_two(sums[step % 2 * 2], sums[step % 2 * 2 + 1], written[c], b[step % 2][c]);
      if (RESTS && step % 2 == 0) multiply_two(sums[2], sums[3], written_rest[c], b[0][c]);
    }
    if (step % 2 == 0) continue;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) state[step - 1 + n][i] += ${narrow ? '(sums[n][i] + sums[2 + n][i]) * inverse' : 'sums[n][i] + sums[2 + n][i]'};
  }
}
$if delta or keys > 128

// sums += state rows^T, of values by tokens: the state in two operands, rows in ROW_PIECES, without products that are below the last digits.
static inline void add_seen_of_pieces(Sums<4>& sums, const State& state, SharedPointer rows${narrow ? ', float unit' : ''}) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    sync_warp();  // keeps the compiler from loading further ahead, for which there are no registers
    uint32_t a[4], rest[4];
$if narrow
    float first[4], second[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) first[i] = state[2 * k][i] * unit, second[i] = state[2 * k + 1][i] * unit;
    to_operands(a, rest, first, second);
$else
    to_operands(a, rest, state[2 * k], state[2 * k + 1]);
$end
#pragma unroll
    for (int piece = ROW_PIECES - 1; piece >= 0; --piece)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        uint32_t b[4];
        KeyTile{rows + piece * KeyTile::BYTES}.load_b(b, 16 * r, 16 * k);
        if (piece + 1 < ROW_PIECES) multiply_two(sums[2 * r], sums[2 * r + 1], rest, b);
        multiply_two(sums[2 * r], sums[2 * r + 1], a, b);
      }
  }
}

// state = decay state + (written + written_rest) rows, with a decay for each key (null: none); RESTS: as above.
template <int COUNT, bool RESTS>
static inline void take_in_pieces(State& state, const float* decays, const Operands<4>& written, const Operands<4>& written_rest,
                                  SharedPointer rows${narrow ? ', float inverse' : ''}) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    sync_warp();  // likewise
    float sums[2][2][4] = {};  // of the first piece, and of the others
#pragma unroll
    for (int piece = COUNT - 1; piece >= 0; --piece)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        uint32_t b[4];
        float(&to)[2][4] = sums[piece > 0];
        KeyTile{rows + piece * KeyTile::BYTES}.load_b_transposed(b, 16 * c, 16 * k);
        if (RESTS && piece + 1 < COUNT) multiply_two(sums[1][0], sums[1][1], written_rest[c], b);
        multiply_two(to[0], to[1], written[c], b);
      }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      Pack<float, 2> decay = {};
      if (decays) decay = load_pack<2>(decays + 16 * k + 8 * n + lane() % 4 * 2);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = state[2 * k + n][i];
        const float more = ${narrow ? '(sums[0][n][i] + sums[1][n][i]) * inverse' : 'sums[0][n][i] + sums[1][n][i]'};
        x = decays ? x * base_of(decay.at[i % 2]) + (x * decay.at[i % 2] + more) : x + more;
      }
    }
  }
}
$end
