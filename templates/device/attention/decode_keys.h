// CPU vocabulary of decoding, one query row a head: all keys of a sequence, block by block, its kv heads in turn. Part of a template, which has defined
// before: Rows, a DecodeRows of ROWS rows and BLOCK keys, and Places, its own.
#pragma once

static inline Floats lane_tokens() {
  Floats t;
  for (int lane = 0; lane < LANES; ++lane) t[lane] = static_cast<float>(lane % Rows::TOKENS);
  return t;
}

// All rows see all keys of the block. `token`: lane_tokens().
static void attend_block(Rows& rows, const Places& places, const Places& next, const Scoring& scoring, Floats token) {
  alignas(64) float scores[BLOCK * ROWS];
  const int64_t count = places.count;
  const Floats most = rows.score_block(places, next, scores, [&](Floats products, int64_t i) {
    const Floats s = scoring(products);
    return i + Rows::TOKENS > count ? (token < splat(static_cast<float>(count - i)) ? s : splat(-INFINITE)) : s;
  });
  rows.weigh_block(most, count, scores);
  rows.template add_values<false>(places, next, scores);
}

// `all`: passes of ROWS query rows a kv head, one kv head after another. Kv heads take turns with blocks of keys: a token's keys lie together in
// memory, and are asked for in that order. `scoring_of(kv head)` is a Scoring.
template <class Cache, class ScoringOf>
static void attend_keys(Rows* all, int64_t kv_heads, int64_t passes, const Cache& cache, const Range& range, ScoringOf scoring_of) {
  const Floats token = lane_tokens();
  Places now, ahead;
  for (int64_t key = range.begin; key < range.end; key += BLOCK) {
    const int64_t next = key + BLOCK < range.end ? key + BLOCK : range.end, end = next + BLOCK < range.end ? next + BLOCK : range.end;
    for (int64_t head = 0; head < kv_heads; ++head) {
      const Scoring scoring = scoring_of(head);
      cache.find(now, head, key, next);
      cache.find_ahead(ahead, kv_heads, head * BLOCK, next, end);
      for (int64_t pass = 0; pass < passes; ++pass) attend_block(all[head * passes + pass], now, ahead, scoring, token);
    }
  }
}
