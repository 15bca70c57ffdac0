// Vocabulary of every backend: what mla_attention_bwd keeps of a query row between its launches, in f32.
#pragma once

// The heads of a turn: as many as a bounded workspace holds, each in a slot.
struct TurnHeads {
  int64_t first, count;
  TurnHeads(int64_t step, int64_t slots, int64_t all) : first(step * slots), count(all - step * slots < slots ? all - step * slots : slots) {}
};

struct SavedRow {
  float *query, *dout, *out, *dquery;  // in latent features; the query's are followed by those of rope
  float* softmax;                      // the largest score (0 where there is none), 1 / the sum of weights, dout . out

  SavedRow(float* rows, float* softmaxes, int64_t row, int64_t latent, int64_t rope) {
    query = rows + row * (4 * latent + rope);
    dout = query + latent + rope, out = dout + latent, dquery = out + latent;
    softmax = softmaxes + row * 3;
  }
};
