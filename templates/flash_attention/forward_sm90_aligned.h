// A launch before Hopper's forward attention: a bias or a mask whose rows tile copies do not take, in rows that they do. A part of forward.sm90.cu,
// whose constants it uses.
#pragma once
#include "device/sm90/sm90_attention_aligned_rows.h"

// Of a row the keys that its query sees, and a tile copy's length on both sides, for words of a mask are made of several keys. What lies elsewhere in
// the aligned row is hidden, whatever it is.
struct SeenKeys {
  static constexpr int BESIDE = 64;
  Sequences sequences;
  KeyWindow window;
  bool all;  // one bias or mask for rows of the batch with lengths of their own

  RowRange operator()(uint32_t batch, int query) const {
    if (all) return {0, static_cast<int>(sequences.keys)};
    const Sequence sequence = sequences[batch];
    if (query >= sequence.seeing()) return {0, 0};
    const RowRange seen = window.at(query + static_cast<int>(sequence.offset), static_cast<int>(sequence.keys));
    return {seen.first < BESIDE ? 0 : seen.first - BESIDE, seen.end + BESIDE};
  }
};

template <class T> static inline void align_seen_rows(const View& to, const View& from, const Sequences& sequences, const KeyWindow& window) {
  align_rows<256, T>(to, from, SeenKeys{sequences, window, BOUNDED && from.shape[0] == 1 && sequences.count > 1});
}

$if biased != 'none'
KERNEL(256, 1) align_bias(${parameters('align_bias')}) {
  void* const rows = sizeof(Bias) == 2 ? static_cast<void*>(bias_rows_16) : static_cast<void*>(bias_rows_32);
  align_seen_rows<Bias>(aligned_rows(bias_view, rows), bias_view,
                        {nullptr, nullptr, sequence_count, bias_view.shape[2], bias_view.shape[3], offset_given, offset,
                         BOUNDED ? query_seq_lengths : nullptr, BOUNDED ? key_value_seq_lengths : nullptr},
                        {causal, window_left, window_right});
}
$end
$if masked
KERNEL(256, 1) align_mask(${parameters('align_mask')}) {
  align_seen_rows<uint8_t>(aligned_rows<16>(attention_mask_view, mask_rows), attention_mask_view,
                           {nullptr, nullptr, sequence_count, attention_mask_view.shape[2], attention_mask_view.shape[3], offset_given, offset,
                            BOUNDED ? query_seq_lengths : nullptr, BOUNDED ? key_value_seq_lengths : nullptr},
                           {causal, window_left, window_right});
}
$end
