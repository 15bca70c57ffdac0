// GPU vocabulary: what piece_walk.h's ChunkStage is, for gradients on matrix instructions of a wave: keys are there twice, as they are and
// transposed.
#pragma once
#include "device/matrix/store_turned.h"
#include "device/tile/later.h"
#include "native_sparse_attention/piece_walk.h"

// CHUNK rows of keys, then of values, then the keys as [feature][key]; what is past a piece becomes zeros.
template <class T, int D, int DV, int THREADS>
struct GradientStage {
  using KeyTile = Tile<T, CHUNK, D>;
  using ValueTile = Tile<T, CHUNK, DV>;
  using TurnedKeyTile = TransposedTile<T, CHUNK, D>;
  static constexpr int TURNED_KEYS = KeyTile::BYTES + ValueTile::BYTES, BYTES = TURNED_KEYS + TurnedKeyTile::BYTES;
  SharedPointer base;

  KeyTile keys() const { return {base}; }
  ValueTile values() const { return {base + KeyTile::BYTES}; }
  TurnedKeyTile turned_keys() const { return {base + TURNED_KEYS}; }

  // Eight features from `feature` on of a row of the chunk.
  static Pack<uint32_t, 4> load(const T* from, int64_t stride, const Piece* pieces, int row, int feature) {
    const Piece piece = pieces[row / PIECE];
    Pack<uint32_t, 4> words = {};
    if (row % PIECE < piece.count)
      words = load_pack<4>(reinterpret_cast<const uint32_t*>(from + (piece.first + row % PIECE) * stride + feature));
    return words;
  }
  // By all threads of a block; transposed keys only where keys are added up. Where features go to several rows, neighbouring threads take
  // neighbouring keys.
  void copy(bool adds_keys, const KeyRows<T>& rows, const Piece* pieces) const {
#pragma unroll 1
    for (int i = later(thread_x()); i < CHUNK * (D / 8); i += THREADS) {
      const int row = i % CHUNK, feature = i / CHUNK * 8;
      const Pack<uint32_t, 4> words = load(rows.keys, rows.key_stride, pieces, row, feature);
      store_pack(shared_at<uint32_t>(keys().at(row, feature)), words);
      if (adds_keys) store_turned(turned_keys().base + feature * TurnedKeyTile::PITCH + row * 2, TurnedKeyTile::PITCH, words);
    }
#pragma unroll 1
    for (int i = later(thread_x()); i < CHUNK * (DV / 8); i += THREADS) {
      const int row = i / (DV / 8), feature = i % (DV / 8) * 8;
      store_pack(shared_at<uint32_t>(values().at(row, feature)), load(rows.values, rows.value_stride, pieces, row, feature));
    }
  }
};
