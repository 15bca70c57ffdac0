// What the reference of mla_decode, its cases and its laws share: which keys a query sees, and how the class is made.
#pragma once
#include "reference/kernels/decode_reference.hpp"

namespace ejk::reference::mla_decode {

constexpr std::int64_t block = 128;  // values of an 8-bit row that share a scale

inline bool is_bytes(const Call& call) { return call.given("cache") && call.input("cache").type() == DType::u8; }
inline std::int64_t width_of(const Call& call) { return call.input("cache").shape().back(); }  // elements of a slot

// Which rows of the cache, or of kv_latent and k_rope, each query sees.
class Sight {
 public:
  explicit Sight(const Call& call)
      : form_(call.binding.form),
        queries_(call.dim("Sq")),
        tokens_(form_ == "contiguous" ? call.dim("Sk") : 0),
        columns_(call.given("block_tables") ? call.dim("max_pages") : 0),
        page_(form_ == "contiguous" ? 1 : call.dim("ps")) {
    if (call.given("context_lens")) lengths_ = call.input("context_lens").values();
    if (call.given("block_tables")) table_ = call.input("block_tables").values();
    if (form_ == "sparse") indices_ = call.input("indices").values(), listed_ = call.dim("M");
  }

  // By its lengths.
  std::int64_t length(std::int64_t n) const { return lengths_.empty() ? tokens_ : static_cast<std::int64_t>(lengths_[at(n)]); }
  std::int64_t visible(std::int64_t n, std::int64_t i) const { return std::max<std::int64_t>(0, length(n) - queries_ + 1 + i); }
  std::int64_t row(std::int64_t n, std::int64_t key) const {
    if (form_ == "contiguous") return n * tokens_ + key;
    return static_cast<std::int64_t>(table_[at(n * columns_ + key / page_)]) * page_ + key % page_;
  }
  // What query i of sequence n sees, in the order of keys or of the list.
  std::vector<std::int64_t> rows(std::int64_t n, std::int64_t i) const {
    std::vector<std::int64_t> seen;
    if (form_ == "sparse") {
      for (std::int64_t m = 0; m < listed_; ++m)
        if (const double slot = indices_[at((n * queries_ + i) * listed_ + m)]; slot >= 0) seen.push_back(static_cast<std::int64_t>(slot));
      return seen;
    }
    for (std::int64_t key = 0; key < visible(n, i); ++key) seen.push_back(row(n, key));
    return seen;
  }

 private:
  std::string form_;
  std::int64_t queries_, tokens_, columns_, page_, listed_ = 0;
  std::vector<double> lengths_, table_, indices_;
};

class MlaDecode : public KernelReference {
 public:
  std::string kernel() const override { return "mla_decode"; }
  Values compute(const Call& call) const override;
  Samples sample(const Call& call, Rng& rng) const override;
  void complete(Call& call) const override;
  spec::Case vary(const spec::Case& c, Rng& rng) const override;
  spec::Case random_case(Rng& rng) const override;
  std::vector<OptionCase> option_cases() const override;
  std::vector<Property> properties() const override;
};

// An 8-bit row: numbers of deviation 1, by scales that differ.
void fill_bytes(HostTensor& cache, std::int64_t row, std::int64_t width, std::int64_t latent, std::int64_t rope, Rng& rng);

// What no query sees becomes NaN: of 8 bits each byte 255, which is NaN in all three parts.
void spoil_unseen(Call& call);

}  // namespace ejk::reference::mla_decode
