// Kernel, Invocation, Config and how a config is chosen: ConfigSelectorChain and its tiers. A user may derive Kernel in plain C++.
#pragma once
#include <chrono>
#include <cstdint>
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
#include "ejk/policy.hpp"
#include "ejk/value.hpp"

namespace ejk {

struct TuningRecord;  // ejk/tuning.hpp

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

class Kernel;

struct Nearness {
  double distance = 0;   // smaller is nearer
  std::string measured;  // what differs, as it was measured: "Sq=4096 Sk=4096"
};

// A call that computes gradients of a call's inputs.
struct GradientCall {
  std::shared_ptr<const Kernel> kernel;
  Invocation invocation;                       // tensors that only the gradient has are without data
  std::map<std::string, std::string> tensors;  // those: their names there → "dx", the gradient of the differentiated call's x
  std::map<std::string, std::string> names;    // of all its tensors: names there → in the differentiated call, "dx", or a temporary
};

// All that makes up the gradient of a call.
struct Gradient {
  // In order: a call may take temporaries, which calls before it make. A gradient that several calls make is the sum of what they make.
  std::vector<GradientCall> calls;
  std::map<std::string, std::string> equal;  // gradients that no call computes → the tensor each is: "dexisting_out" → "dout"
};

// An operation with a choice of configs. Thread-safe. What it says of one invocation stays so while it lives.
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
  // The same call in the one form that keys and records have; by default as it is. A spec's kernel leaves out attributes that have their
  // default, and fills in the device and the varying attributes' names.
  virtual Invocation canonical(const Invocation& invocation) const;
  // Hash of the source that this config runs; a record measured with another source is passed over. By default "": no source to compare.
  virtual Result<std::string> source_hash(const Invocation& invocation, const Config& config) const;
  // Hash of the machine code that this config runs, if a binary of it is here; nothing is compiled. Asked where the source is another than
  // a record's: the same machine code keeps the record. By default "": there is none to compare.
  virtual Result<std::string> code_hash(const Invocation& invocation, const Config& config) const;
  // How near a measurement under another key is to a call with this key; nullopt: it says nothing about it. By default none does. A spec
  // says it by "tuning": {"nearest": ...}.
  virtual std::optional<Nearness> nearness(const std::string& key, const std::string& measured_key) const;
  // The largest relative root mean square error of that tensor of the call, for a tuner that compares two configs' results; 0: they must be
  // equal. By default what the element type allows; a spec says it by "tolerance".
  virtual double tolerance(const Invocation& invocation, const std::string& tensor, DType type) const;
  // The gradient's calls for this call; by default an error: it has none.
  virtual Result<Gradient> gradient(const Invocation& invocation) const;
};

enum class Tier { override_, overlay, memory, persistent, autotune, heuristic };
EJK_API std::string_view name_of(Tier tier);

// What one tier said, for `explain` and for errors.
struct TierAnswer {
  Tier tier;
  std::string detail;                                    // "no scope is open", "specs/tuned/…: no row for this key", "first rule"
  std::optional<Config> config;                          // set if the tier had an answer that is valid for this call
  std::shared_ptr<const TuningRecord> record = nullptr;  // the measurement behind the answer, if there is one
};

struct Selection {
  Config config;
  Tier tier = Tier::heuristic;
  std::string detail;
  std::vector<TierAnswer> trail;                         // every tier asked, in order; with explain_all also those after the winner
  std::shared_ptr<const TuningRecord> record = nullptr;  // the measurement behind the config, if there is one
};

// Memory tier: measured configs by invocation key. Thread-safe.
class EJK_API ConfigCache {
 public:
  struct Remembered {
    Config config;
    std::string origin;  // "FILE:LINE", "measured in this process"; empty: put by hand
    std::shared_ptr<const TuningRecord> record;
  };
  std::optional<Config> find(const std::string& key) const;
  std::optional<Remembered> recall(const std::string& key) const;
  void put(const std::string& key, Config config);  // plans made before are made anew
  void put(const std::string& key, Remembered remembered);
  // The same for what a plan made now would get anyway: plans stay.
  void keep(const std::string& key, Remembered remembered);
  void clear();
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Remembered> configs_;
};

// Where measurements go, and how the processes of one job agree on them.
struct RecordsWriting {
  std::string user;       // folder of the user's records; empty: none
  std::string agreement;  // folder that all processes of one job share; empty: none. See PersistentCache
  std::chrono::seconds wait{600};
};

// Persistent tier: tuning records, one JSON line each, {"key": …, "config": {…}, …evidence…}. Files are <folder>/<device>/<kernel>.jsonl in
// each folder (the user's records first, then those shipped with the packs). Read when first asked for and again when they have changed; a
// bad line is skipped and reported, of two rows with one key the later counts. Thread-safe.
//
// Agreement: processes that all name one folder choose the same configs. Its rows come before all others; the process that first misses a
// key tunes it under a lock and appends the row there, the others wait for that row (at most `wait`) and take it; if the tuner fails, all
// of them learn so and fall back alike. Give each job a folder of its own, and all its processes one policy.
class EJK_API PersistentCache {
 public:
  explicit PersistentCache(std::vector<std::string> folders = {}, RecordsWriting writing = {});
  ~PersistentCache();
  // A row that can serve this call: its key is the call's, its config is valid for it, and its source is what it was when it was measured,
  // or the machine code is: a binary of today's source, if there is one here, tells that. Else the nearest row that can (Kernel::nearness),
  // up to a distance of 4. detail: the file and line of the answer, or what was looked for; rows and lines that were passed over are named
  // in it.
  std::shared_ptr<const TuningRecord> find(const Kernel& kernel, const Invocation& invocation, const std::string& key,
                                           std::string& detail) const;
  // Measurements near a call (its own first), whether they can serve it or not: at most `count`, the nearest first.
  struct Near {
    std::string where;     // "FILE:LINE"
    std::string measured;  // what differs: "Sq=4096 (here 8192)"; empty: the call itself
    std::shared_ptr<const TuningRecord> record;
    std::string fault;  // why it cannot serve this call; empty: it can
  };
  std::vector<Near> near(const Kernel& kernel, const Invocation& invocation, const std::string& key, std::size_t count) const;
  // How many rows of the call's files have that key, whether they can serve it or not.
  std::size_t rows(const Invocation& invocation, const std::string& key) const;
  // Appends to the user's folder and to the agreement's. Refuses what was not measured.
  Status append(const TuningRecord& record) const;
  const std::vector<std::string>& folders() const { return folders_; }
  const RecordsWriting& writing() const { return writing_; }

 private:
  std::vector<std::string> folders_;  // the agreement's first
  RecordsWriting writing_;
  struct Files;
  std::unique_ptr<Files> files_;
};

// Configs that hold while the object lives, on this thread only, for one kernel ("" = every kernel); inner scopes win.
class EJK_API overlay_cache {
 public:
  overlay_cache(std::string kernel, Config config);
  overlay_cache(const overlay_cache&) = delete;
  overlay_cache& operator=(const overlay_cache&) = delete;
  ~overlay_cache();
};

class TuningFlights;  // keys that are being tuned now

// override → overlay → memory → persistent → autotune → heuristic → error. What was measured (persistent, autotune) is kept in memory, and
// what autotune measured is appended to the user's records; overrides, overlays and heuristics are kept nowhere. Thread-safe.
class EJK_API ConfigSelectorChain {
 public:
  // policy: where no policy_override is open.
  ConfigSelectorChain(std::shared_ptr<ConfigCache> memory, std::shared_ptr<PersistentCache> persistent, AutotunePolicy policy = {});
  ConfigSelectorChain();
  // override_config: this call's cfg; an invalid one is an error, an invalid answer of another tier is passed over. explain_all: asks the
  // tiers after the winner too, and measures nothing.
  Result<Selection> select(const Kernel& kernel, const Invocation& invocation, const Config* override_config = nullptr,
                           bool explain_all = false) const;
  // The same without a copy: an answer that this thread had from memory before costs a hash of the invocation.
  Result<std::shared_ptr<const Selection>> select_shared(const Kernel& kernel, const Invocation& invocation) const;
  ConfigCache& memory() const { return *memory_; }
  const PersistentCache& persistent() const { return *persistent_; }
  AutotunePolicy policy() const;  // the one in force on this thread

 private:
  Result<Selection> ask_tiers(const Kernel& kernel, const Invocation& invocation, const Config* override_config, bool explain_all) const;
  std::shared_ptr<ConfigCache> memory_;
  std::shared_ptr<PersistentCache> persistent_;
  AutotunePolicy policy_;
  std::shared_ptr<TuningFlights> flights_;
  std::uint64_t id_;  // never reused
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
