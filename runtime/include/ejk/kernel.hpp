// Kernel, Invocation, Config and how a config is chosen: ConfigSelectorChain and its tiers. A user may derive Kernel in plain C++.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ejk/call.hpp"
#include "ejk/value.hpp"

namespace ejk {

// One point of a config space: changes speed, never meaning. Kernels without a spec leave variant and arch empty.
struct Config {
  std::string variant, arch;
  std::map<std::string, Value> values;
  friend bool operator==(const Config&, const Config&) = default;
};
EJK_API std::string to_json(const Config& config);               // stable: sorted keys, one line
EJK_API Result<Config> config_from_json(std::string_view text);  // {"variant":..., "arch":..., any other key: a value}

// One call: what is asked, of which tensors, where. No data enters its key.
struct EJK_API Invocation {
  std::string kernel;
  std::map<std::string, TensorView> tensors;  // those given, by name
  std::map<std::string, Value> attributes;    // those given
  std::string device;                         // fingerprint, as in records: "cpu-avx512-2t"
  Stream stream;
  std::vector<std::string> varying;  // attributes that stay out of the key (seeds, scales)

  std::string key() const;  // stable JSON of kernel, device, element types, shapes, non-contiguous strides, attributes
};

// An operation with a choice of configs. Thread-safe.
class EJK_API Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::string name() const = 0;
  virtual std::vector<Config> config_space(const Invocation& invocation) const = 0;  // the valid ones; may be empty
  virtual Result<Config> heuristic_cfg(const Invocation& invocation) const = 0;      // used when nothing was measured
  virtual Status run(const Invocation& invocation, const Config& config) const = 0;  // Status: the caller's fault or the device's
  // Judges a config that comes from outside (override, overlay, records): "" or the reason it cannot serve. By default: must be in the
  // space.
  virtual std::string invalid_reason(const Invocation& invocation, const Config& config) const;
};

enum class Tier { override_, overlay, memory, persistent, autotune, heuristic };
EJK_API std::string_view name_of(Tier tier);

// What one tier said, for `explain` and for errors.
struct TierAnswer {
  Tier tier;
  std::string detail;            // "no scope is open", "specs/tuned/…: no row for this key", "first rule"
  std::optional<Config> config;  // set if the tier had an answer that is valid for this call
};

struct Selection {
  Config config;
  Tier tier = Tier::heuristic;
  std::string detail;
  std::vector<TierAnswer> trail;  // every tier asked, in order; with explain_all also those after the winner
};

// Memory tier: measured configs by invocation key. Thread-safe.
class EJK_API ConfigCache {
 public:
  std::optional<Config> find(const std::string& key) const;
  void put(const std::string& key, Config config);
  void clear();
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Config> configs_;
};

// Persistent tier: tuning records, one JSON line each, {"key": …, "config": {…}, …evidence…}. Files are <folder>/<device>/<kernel>.jsonl in
// each folder (the user's records first, then those shipped with the packs). Read when first asked for; a bad line is skipped and reported.
class EJK_API PersistentCache {
 public:
  explicit PersistentCache(std::vector<std::string> folders = {});
  // detail: the file and line of the answer, or what was looked for; bad lines are named in it.
  std::optional<Config> find(const Invocation& invocation, const std::string& key, std::string& detail) const;

 private:
  struct File;
  std::shared_ptr<const File> file(const std::string& path) const;
  std::vector<std::string> folders_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const File>> files_;
};

// Configs that hold while the object lives, on this thread only, for one kernel ("" = every kernel); inner scopes win.
class EJK_API overlay_cache {
 public:
  overlay_cache(std::string kernel, Config config);
  overlay_cache(const overlay_cache&) = delete;
  overlay_cache& operator=(const overlay_cache&) = delete;
  ~overlay_cache();
};

// override → overlay → memory → persistent → autotune → heuristic → error. The autotune tier has its place and answers that this version
// has no tuner. Answers of the persistent tier are kept in memory; overrides and heuristics are not, anywhere.
class EJK_API ConfigSelectorChain {
 public:
  ConfigSelectorChain(std::shared_ptr<ConfigCache> memory, std::shared_ptr<PersistentCache> persistent);
  ConfigSelectorChain();
  // override_config: this call's cfg; an invalid one is an error, an invalid answer of another tier is passed over.
  Result<Selection> select(const Kernel& kernel, const Invocation& invocation, const Config* override_config = nullptr,
                           bool explain_all = false) const;
  ConfigCache& memory() { return *memory_; }

 private:
  std::shared_ptr<ConfigCache> memory_;
  std::shared_ptr<PersistentCache> persistent_;
};

// Chooses a config by the chain and runs the kernel with it.
class EJK_API Executor {
 public:
  Executor();  // the process's own caches and records
  explicit Executor(std::shared_ptr<ConfigSelectorChain> chain);
  Status operator()(const Kernel& kernel, const Invocation& invocation, const Config* cfg = nullptr) const;
  Result<Selection> choose(const Kernel& kernel, const Invocation& invocation, const Config* cfg = nullptr) const;

 private:
  std::shared_ptr<ConfigSelectorChain> chain_;
};

// The kernel of a spec, by name, as a Kernel.
EJK_API Result<std::shared_ptr<const Kernel>> spec_kernel(const std::string& name);

}  // namespace ejk
