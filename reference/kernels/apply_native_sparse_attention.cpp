// apply_native_sparse_attention in float64: docs/semantics.md, "native_sparse_attention", the selected branch alone.
#include "reference/kernels/native_sparse.hpp"

namespace ejk::reference::apply_native_sparse_attention {
namespace {

bool has_rows(const Call& call) {
  return writable(call) && call.dim("B") > 0 && call.dim("T") > 0 && call.dim("Hkv") > 0 && call.dim("S") > 0 && call.dim("D") > 0;
}

// The blocks that count, in another order, and the first of them once more where there is room.
std::string other_order(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& named = changed.input("block_indices");
  const std::int64_t count = call.dim("S");
  for (std::int64_t row = 0; row < named.elements() / count; ++row) {
    std::vector<double> blocks;
    for (std::int64_t i = 0; i < (call.given("block_counts") ? static_cast<std::int64_t>(call.input("block_counts").at(row)) : count); ++i)
      if (const double block = named.at(row * count + i); block >= 0) blocks.push_back(block);
    const bool some = !blocks.empty();
    while (static_cast<std::int64_t>(blocks.size()) < count) blocks.push_back(some && rng.chance(0.5) ? blocks.front() : -1.0);
    rng.shuffle(blocks);
    for (std::int64_t i = 0; i < count; ++i) named.set(row * count + i, blocks[static_cast<std::size_t>(i)]);
    if (HostTensor* counts = changed.find("block_counts")) counts->set(row, static_cast<double>(count));
  }
  return disagreement(call, run_copy(changed, execute), run_copy(call, execute));
}

// Keys and values that no query sees become NaN.
std::string unseen(const Call& call, const Execute& execute, Rng&) {
  const NativeSparse p(call);
  std::vector<bool> seen(static_cast<std::size_t>(p.batch * p.tokens * p.kv_heads), false);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t t = 0; t < p.tokens; ++t)
      for (std::int64_t h = 0; h < p.kv_heads; ++h)
        for (const std::int64_t block : p.selection(b, t, h))
          for (std::int64_t first = p.sequence(t).first, j = first + block * p.block_size;
               j < std::min(first + (block + 1) * p.block_size, t + 1); ++j)
            seen[static_cast<std::size_t>((b * p.tokens + j) * p.kv_heads + h)] = true;
  Call changed = call;
  for (const char* name : {"k", "v"}) {
    HostTensor& tensor = changed.input(name);
    for (std::int64_t e = 0; e < tensor.elements(); ++e)
      if (!seen[static_cast<std::size_t>(e / tensor.shape()[3])]) tensor.set(e, nan);
  }
  return disagreement(call, run_copy(changed, execute), run_copy(call, execute));
}

// One key becomes NaN: exactly the queries that see it may know (the reference tells which).
std::string one_nan_key(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& keys = changed.input("k");
  keys.set(rng.between(0, keys.elements() - 1), nan);
  return first_failure(verify_call(*find_reference(call.spec->kernel), changed, execute));
}

class ApplyNativeSparseAttention : public KernelReference {
 public:
  std::string kernel() const override { return "apply_native_sparse_attention"; }
  Values compute(const Call& call) const override { return sparse_outputs(call); }
  Samples sample(const Call& call, Rng& rng) const override { return sparse_samples(call, rng); }
  void complete(Call& call) const override { name_blocks(call); }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_sparse(c, rng); }
  spec::Case random_case(Rng& rng) const override { return random_sparse(rng, false); }

  std::vector<Property> properties() const override {
    return {repeats_bit_for_bit([](const Call&) { return true; }),
            {"the order of the blocks, and naming one twice, do not matter", has_rows, other_order},
            {"keys and values that no query sees do not matter, even NaN", has_rows, unseen},
            {"a NaN in a key reaches the queries that see it and no other", has_rows, one_nan_key},
            other_sequences_do_not_matter()};
  }
};

const Registration registration{std::make_unique<ApplyNativeSparseAttention>()};

}  // namespace
}  // namespace ejk::reference::apply_native_sparse_attention
