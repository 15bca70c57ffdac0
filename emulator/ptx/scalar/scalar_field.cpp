// Fields and bytes of words: bfe, bfi, bfind, bmsk, brev, popc, clz, prmt.
#include <algorithm>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

struct CountOnes {
  template <class T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::popcount(a));
  }
};
struct LeadingZeros {
  template <class T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::countl_zero(a));
  }
};
struct ReverseBits {
  template <class T>
  T operator()(T a) const {
    T result = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); ++i) result |= (a >> i & 1) << (8 * sizeof(T) - 1 - i);
    return result;
  }
};

// The highest bit that is not the sign, or how far it is from the left; ones if there is none.
template <bool is_shift>
struct FindHighest {
  template <class T>
  std::uint32_t operator()(T a) const {
    using U = std::make_unsigned_t<T>;
    const U bits = static_cast<U>(a < 0 ? ~a : a);
    const auto zeros = static_cast<std::uint32_t>(std::countl_zero(bits));
    if (bits == 0) return all_lanes;
    return is_shift ? zeros : static_cast<std::uint32_t>(8 * sizeof(T)) - 1 - zeros;
  }
};

struct ExtractField {
  template <class T>
  T operator()(T a, std::uint32_t position, std::uint32_t length) const {
    using U = std::make_unsigned_t<T>;
    constexpr std::uint32_t width = 8 * sizeof(T);
    position &= 0xff;
    length &= 0xff;
    if (length == 0) return 0;
    // The field's sign, or the word's where the field ends beyond it.
    const bool negative = std::is_signed_v<T> && (a >> std::min(position + length - 1, width - 1) & 1);
    const U fill = negative ? ~U{0} : U{0};
    const U shifted = position < width ? static_cast<U>(a) >> position : U{0};
    const std::uint32_t inside = std::min(length, width - std::min(position, width));
    const U mask = inside >= width ? ~U{0} : (U{1} << inside) - 1;
    return static_cast<T>((shifted & mask) | (fill & ~mask));
  }
};
struct InsertField {
  template <class T>
  T operator()(T a, T b, std::uint32_t position, std::uint32_t length) const {
    constexpr std::uint32_t width = 8 * sizeof(T);
    position &= 0xff;
    length &= 0xff;
    if (position >= width || length == 0) return b;
    const T mask = (length >= width ? ~T{0} : (T{1} << length) - 1) << position;
    return (a << position & mask) | (b & ~mask);
  }
};

template <bool wraps>
struct MakeMask {  // bits from `position` on, so many
  std::uint32_t operator()(std::uint32_t position, std::uint32_t length) const {
    if (wraps) position &= 31u, length &= 31u;
    const std::uint64_t ones = length > 31 ? all_lanes : (std::uint32_t{1} << length) - 1;
    return position > 31 ? 0 : static_cast<std::uint32_t>(ones << position);
  }
};

// Nibble i of `selector` says which byte of a (0 to 3) and b (4 to 7) comes to byte i; with its bit 3 eight times that byte's sign.
std::uint32_t permuted(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t nibble = selector >> (4 * i) & 0xf;
    auto byte = static_cast<std::uint32_t>(both >> (8 * (nibble & 7))) & 0xff;
    if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}
struct Permute {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t selector) const { return permuted(a, b, selector); }
};

// Modes with names choose one of four selectors.
struct NamedPermute {
  std::string_view mode;
  std::uint16_t selectors[4];
};
constexpr NamedPermute named_permutes[] = {{"f4e", {0x3210, 0x4321, 0x5432, 0x6543}}, {"b4e", {0x5670, 0x6701, 0x7012, 0x0123}},
                                           {"rc8", {0x0000, 0x1111, 0x2222, 0x3333}}, {"ecl", {0x3210, 0x3211, 0x3222, 0x3333}},
                                           {"ecr", {0x0000, 0x1110, 0x2210, 0x3210}}, {"rc16", {0x1010, 0x3232, 0x1010, 0x3232}}};
struct PermuteByMode {
  const std::uint16_t* selectors;
  explicit PermuteByMode(const Instruction& instruction) : selectors(named_permutes[instruction.number].selectors) {}
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const { return permuted(a, b, selectors[c & 3]); }
};

Shape permute_shape(const Parsed& parsed, Instruction& made) {
  using W = std::uint32_t;
  for (int i = 0; i < 6; ++i)
    if (parsed.has(named_permutes[i].mode)) {
      made.number = i;
      return shape<PermuteByMode, W, W, W, W>();
    }
  allow_words(parsed, {});
  return shape<Permute, W, W, W, W>();
}

}  // namespace

Shape field_shape(const Parsed& parsed, Instruction& made) {
  const auto name = parsed.words.front();
  const Type type = type_of(parsed.type());
  using W = std::uint32_t;
  if (name == "prmt") return permute_shape(parsed, made);
  allow_words(parsed, {"shiftamt", "wrap", "clamp"});
  if (bits_of(type) != 32 && bits_of(type) != 64) return {};
  // clang-format off
  const auto by_word = [&](auto f) { return bits_of(type) == 32 ? f(std::uint32_t{}) : f(std::uint64_t{}); };
  const auto by_number = [&](auto f) { return !is_signed(type) ? by_word(f) : bits_of(type) == 32 ? f(std::int32_t{}) : f(std::int64_t{}); };
  if (name == "popc") return by_word([]<class T>(T) { return shape<CountOnes, W, T>(); });
  if (name == "clz") return by_word([]<class T>(T) { return shape<LeadingZeros, W, T>(); });
  if (name == "brev") return by_word([]<class T>(T) { return shape<ReverseBits, T, T>(); });
  if (name == "bfi") return by_word([]<class T>(T) { return shape<InsertField, T, T, T, W, W>(); });
  if (name == "bfe") return by_number([]<class T>(T) { return shape<ExtractField, T, T, W, W>(); });
  if (name == "bfind" && parsed.has("shiftamt")) return by_number([]<class T>(T) { return shape<FindHighest<true>, W, T>(); });
  if (name == "bfind") return by_number([]<class T>(T) { return shape<FindHighest<false>, W, T>(); });
  // clang-format on
  if (name == "bmsk") return parsed.has("wrap") ? shape<MakeMask<true>, W, W, W>() : shape<MakeMask<false>, W, W, W>();
  return {};
}

}  // namespace ejk::ptx
