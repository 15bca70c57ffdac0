// Vocabulary of every backend: what mla_attention_bwd keeps of a query row between its launches, in f32.
#pragma once

// The heads of a turn: as many as a bounded workspace holds, each in a slot.
struct TurnHeads {
  int64_t first, count;
  TurnHeads(int64_t step, int64_t slots, int64_t all) : first(step * slots), count(all - step * slots < slots ? all - step * slots : slots) {}
};

static inline float lse_of_row(const View& lse, int64_t batch, int64_t head, int64_t query) {
  return static_cast<const float*>(lse.data)[batch * lse.strides[0] + head * lse.strides[1] + query * lse.strides[2]];
}

struct SavedRow {
  float *query, *dout, *out, *dquery;  // in latent features; the query's are followed by those of rope
  float* softmax;                      // the log-sum-exp in units of log 2, 1 if there are weights or 0, dout . out

  SavedRow(float* rows, float* softmaxes, int64_t row, int64_t latent, int64_t rope) {
    query = rows + row * (4 * latent + rope);
    dout = query + latent + rope, out = dout + latent, dquery = out + latent;
    softmax = softmaxes + row * 3;
  }
  void set_softmax(float lse, float delta) const {
    const bool weighs = lse != -INFINITE;
    softmax[0] = weighs ? lse * LOG2_E : 0, softmax[1] = weighs ? 1 : 0, softmax[2] = weighs ? delta : 0;
  }
};
