// GPU vocabulary of ssd_bwd on matrix instructions of a wave: what flows between a chunk's tokens. After recurrent/chunk_wave_flows.h.
#pragma once

// Of a block of pairs; weights are those of out's gradients with x, without steps.
inline void Flows::store_pairs(char* memory, int pairs, const Sums& weights, int chunk) const {
  const PairFlows& here = *reinterpret_cast<const PairFlows*>(memory + PAIR_FLOWS);
  const Gates& gates = *reinterpret_cast<const Gates*>(memory + GATES);
  const SharedPointer shared = shared_pointer(memory);
  PairSums& to = *reinterpret_cast<PairSums*>(of_chunk(chunk));
  Sums x = multiply_block(shared + OWN_ROWS, shared + WRITTEN_ROWS, pairs);
  const int t = 16 * block_row(pairs) + matrix_column();
  float read = 0, aged = 0;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int s = 16 * block_column(pairs) + matrix_row(i);
    const float flow = x.at[i] * weights.at[i];
    if (s == t) to.own[t] = flow, to.skip[t] = weights.at[i];
    x.at[i] = s < t ? flow : 0;
    const float stepped = x.at[i] * gates.beta[s];
    read += stepped, aged += s < t ? stepped * here.between(s, t) : 0;
  }
  read = sum_of_column(read), aged = sum_of_column(aged);
  if (wave_lane() < 16) to.read[pairs][wave_lane()] = read, to.aged[pairs][wave_lane()] = aged;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    float given = x.at[i];
    for (int mask = 1; mask < 16; mask *= 2) given += exchange_wave(given, mask);
    if (matrix_column() == 0) to.given[pairs][matrix_row(i)] = given;
  }
}
