// Random calls and what is set while they are made, drawn from a seed: the same on every machine.
#pragma once
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ejk/tuning.hpp"
#include "execute/bound_call.hpp"
#include "tests/decision/posing_backend.hpp"

namespace ejk::test {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(engine_() % count); }
  bool one_in(std::size_t count) { return below(count) == 0; }
  template <class Range>
  auto& of(Range& range) {
    return *std::next(std::begin(range), static_cast<std::ptrdiff_t>(below(std::size(range))));
  }

 private:
  std::mt19937_64 engine_;
};

// One process: environment variables and devices.
struct World {
  std::string platform;
  std::vector<PosingDevice> devices;
  std::vector<std::pair<std::string, std::string>> environment;
};
World draw_world(Dice& dice, const spec::Catalogue& catalogue, std::size_t number);

struct DrawnCall {
  std::string kernel;
  std::map<std::string, TensorView> tensors;  // at addresses where nothing is
  std::map<std::string, Value> attributes;
  bool aligned = true;  // every address
};
// A case with other dims, types, attributes, optional tensors, strides and alignments; a legal call, which some variant need not take.
DrawnCall draw_call(Dice& dice, const std::vector<std::shared_ptr<const spec::Spec>>& specs, const World& world);

// What is in force while one call is made.
struct Circumstances {
  std::optional<AutotunePolicy> policy;
  std::optional<std::pair<std::string, Config>> overlay;     // kernel, config
  std::optional<TuningRecord> record;                        // appended to the user's records before
  std::optional<std::pair<std::string, Config>> remembered;  // key, config
};
Circumstances draw_circumstances(Dice& dice, const BoundCall& call);

}  // namespace ejk::test
