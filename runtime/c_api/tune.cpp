// ejk_tune: measures a call's configs and keeps the winner, as the autotune tier does.
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "c_api/border.hpp"
#include "describe/values.hpp"
#include "ejk/autotune.hpp"
#include "execute/library_state.hpp"

namespace {

using namespace ejk;
using namespace ejk::c_api;

template <class T>
T number_of(const std::string& name, const Value& value) {
  const auto* integer = std::get_if<std::int64_t>(&value);
  if constexpr (std::is_floating_point_v<T>) {
    if (integer) return static_cast<T>(*integer);
    if (const auto* floating = std::get_if<double>(&value)) return *floating;
    bad("the tuning option " + name + " must be a number");
  } else {
    if (integer && std::in_range<T>(*integer)) return static_cast<T>(*integer);
    bad("the tuning option " + name + " must be an integer from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
        std::to_string(std::min<std::uint64_t>(std::numeric_limits<T>::max(), std::numeric_limits<std::int64_t>::max())));
  }
}

AutotuneOptions options_of(const char* text) {
  AutotuneOptions options;
  if (!text) return options;
  for (const auto& [name, value] : values_from(parse_json(text, "the tuning options"), "the tuning options")) {
    if (name == "budget_seconds")
      options.budget_seconds = number_of<double>(name, value);
    else if (name == "step_seconds")
      options.step_seconds = number_of<double>(name, value);
    else if (name == "jobs")
      options.jobs = number_of<int>(name, value);
    else if (name == "seed")
      options.seed = number_of<std::uint64_t>(name, value);
    else if (const auto* path = std::get_if<std::string>(&value); path && name == "worker")
      options.worker = *path;
    else if (const auto* flag = std::get_if<bool>(&value); flag && name == "cost_model")
      options.cost_model = *flag;
    else
      bad("tuning has no option '" + name +
          "' of that type; it has budget_seconds, step_seconds, jobs, seed, worker (text), cost_model (boolean)");
  }
  return options;
}

// "" or why the record is in this process's memory only.
std::string keep(const TuningRecord& record) {
  const auto& chain = *Library::instance().parts().chain;
  chain.memory().put(record.key,
                     ConfigCache::Remembered{record.config, "a measurement of this process", std::make_shared<const TuningRecord>(record)});
  if (chain.persistent().writing().user.empty()) return "there is no user cache: " + Library::instance().parts().places.why_no_user;
  const auto status = chain.persistent().append(record);
  return status ? "" : status.error().message;
}

}  // namespace

extern "C" {

ejk_status ejk_tune(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* options,
                    char** record) {
  return guarded_call([&]() -> Status {
    required(record, "the place for the record");  // before minutes of measuring
    const auto invocation = invocation_of(kernel, tensors, count, attributes);
    const auto measured = autotune(*require_kernel(kernel).kernel_interface(), invocation, options_of(options));
    if (!measured) return measured.error();
    auto text = nlohmann::json::parse(to_json(*measured));
    if (const auto why = keep(*measured); !why.empty()) text["not_kept"] = why;
    return give(text.dump(), record);
  });
}

}  // extern "C"
