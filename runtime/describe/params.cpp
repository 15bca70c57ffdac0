// ejk/params.hpp: one table of fields a struct.
#include "ejk/params.hpp"

#include "describe/values.hpp"

namespace ejk {
namespace {

template <class Params>
struct Field {
  const char* name;
  std::optional<std::int64_t> Params::*member;
};

constexpr Field<FwdParams> forward_fields[] = {
    {"blocksize_m", &FwdParams::blocksize_m},       {"blocksize_n", &FwdParams::blocksize_n},
    {"blocksize_k", &FwdParams::blocksize_k},       {"q_blocksize", &FwdParams::q_blocksize},
    {"kv_blocksize", &FwdParams::kv_blocksize},     {"blocksize_heads", &FwdParams::blocksize_heads},
    {"blocksize_keys", &FwdParams::blocksize_keys}, {"num_key_splits", &FwdParams::num_key_splits},
    {"num_warps", &FwdParams::num_warps},           {"num_stages", &FwdParams::num_stages}};
constexpr Field<BwdParams> backward_fields[] = {{"blocksize_m", &BwdParams::blocksize_m},   {"blocksize_n", &BwdParams::blocksize_n},
                                                {"blocksize_k", &BwdParams::blocksize_k},   {"q_blocksize", &BwdParams::q_blocksize},
                                                {"kv_blocksize", &BwdParams::kv_blocksize}, {"num_warps", &BwdParams::num_warps},
                                                {"num_stages", &BwdParams::num_stages}};

template <class Params, std::size_t count>
Config config_of(const Params& params, const Field<Params> (&fields)[count]) {
  Config config;
  for (const auto& field : fields)
    if (const auto& value = params.*field.member) config.values.emplace(field.name, *value);
  return config;
}

template <class Params, std::size_t count>
Result<Params> params_of(const Config& config, const Field<Params> (&fields)[count]) {
  return guarded([&]() -> Result<Params> {
    Params params;
    for (const auto& field : fields) {
      const auto found = config.values.find(field.name);
      if (found == config.values.end()) continue;
      const auto* value = std::get_if<std::int64_t>(&found->second);
      if (!value || *value < 1)
        refuse(
            fmt::format("config: '{}' must be an integer of 1 or more; found {}", field.name, json_of(found->second, field.name).dump()));
      params.*field.member = *value;
    }
    return params;
  });
}

}  // namespace

Config to_config(const FwdParams& params) { return config_of(params, forward_fields); }
Config to_config(const BwdParams& params) { return config_of(params, backward_fields); }
Result<FwdParams> fwd_params(const Config& config) { return params_of(config, forward_fields); }
Result<BwdParams> bwd_params(const Config& config) { return params_of(config, backward_fields); }

}  // namespace ejk
