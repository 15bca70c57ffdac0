// A kernel without a spec that has one parameter, for searches on made-up times.
#pragma once
#include "ejk/kernel.hpp"

namespace ejk {

// `tile` from 1 to a number; a made-up lab says how long each takes.
class Tiles : public Kernel {
 public:
  explicit Tiles(std::int64_t count) : count_(count) {}
  std::string name() const override { return "tiles"; }
  std::vector<Config> config_space(const Invocation&) const override {
    std::vector<Config> space;
    for (std::int64_t tile = 1; tile <= count_; ++tile) space.push_back(with(tile));
    return space;
  }
  Result<Config> heuristic_cfg(const Invocation&) const override { return with(1); }
  Status run(const Invocation&, const Config&) const override { return {}; }
  static Config with(std::int64_t tile) { return {"", "", {{"tile", tile}}}; }

 private:
  std::int64_t count_;
};

inline std::int64_t tile_of(const Config& config) { return std::get<std::int64_t>(config.values.at("tile")); }

}  // namespace ejk
