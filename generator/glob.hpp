// Shell patterns over image ids: * any text, ? any character. Also piece by piece, for ids that are products of pieces.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ejk::generator {

inline bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {  // let the last * take one more
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// How much of a pattern a text may have used up: a flag for each place in the pattern, the last for its end.
using GlobPlaces = std::vector<char>;

inline GlobPlaces behind_stars(std::string_view pattern, GlobPlaces places) {
  for (std::size_t i = 0; i < pattern.size(); ++i)
    if (places[i] && pattern[i] == '*') places[i + 1] = 1;
  return places;
}

// Of an empty text.
inline GlobPlaces glob_begin(std::string_view pattern) {
  GlobPlaces places(pattern.size() + 1);
  places[0] = 1;
  return behind_stars(pattern, std::move(places));
}

// Of the text with more behind it.
inline GlobPlaces glob_after(std::string_view pattern, GlobPlaces places, std::string_view more) {
  for (const char c : more) {
    GlobPlaces next(pattern.size() + 1);
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      if (!places[i]) continue;
      if (pattern[i] == '*')
        next[i] = 1;
      else if (pattern[i] == '?' || pattern[i] == c)
        next[i + 1] = 1;
    }
    places = behind_stars(pattern, std::move(next));
  }
  return places;
}

// Before a text of which one of the pieces comes first and `then` holds the places that lead to a match behind it: the places that lead to
// one.
inline GlobPlaces glob_before(std::string_view pattern, const std::vector<std::string>& pieces, const GlobPlaces& then) {
  GlobPlaces places(pattern.size() + 1);
  for (std::size_t i = 0; i <= pattern.size(); ++i) {
    GlobPlaces from(pattern.size() + 1);
    from[i] = 1;
    from = behind_stars(pattern, std::move(from));
    for (const auto& piece : pieces) {
      const auto reached = glob_after(pattern, from, piece);
      for (std::size_t k = 0; k < reached.size() && !places[i]; ++k) places[i] = reached[k] && then[k];
      if (places[i]) break;
    }
  }
  return places;
}

inline bool common(const GlobPlaces& a, const GlobPlaces& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] && b[i]) return true;
  return false;
}

}  // namespace ejk::generator
