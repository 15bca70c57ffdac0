// A lab in a child process, `ejk worker`: a config that faults, hangs or spoils memory ends the child, and this process lives.
//
// Lines of JSON both ways. The worker greets with {"ejk": version, "protocol": n}, then answers each request with one line:
//   {"do": "open", "call": {...an Invocation's key...}, "platform", "index", "baseline": config, "seed", "peaks": bool}
//       → {"checked_against", "memory", "machine", "flops", "bytes", "once_us", "peak_flops", "peak_bytes"}
//   {"do": "check", "config"}  → {"residual", "once_us"}
//   {"do": "sample", "config"} → {"us"}
// or with {"wrong": reason}: the config is to blame; {"error": text}: it is not, the request is; "lost": true beside either: the device is
// of no more use to this process.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>

#include "execute/library_state.hpp"
#include "tune/child.hpp"
#include "tune/lab.hpp"

namespace ejk {

inline constexpr int worker_protocol = 1;

class WorkerLab : public Lab {
 public:
  struct Call {
    std::string key;  // Invocation::key()
    Device device;
    std::uint64_t seed = 1;
    bool peaks = false;  // measure the machine's
  };
  // program: of find_worker(). One lab, and so one process while all goes well, may serve one call after the other.
  WorkerLab(std::string program, Call call);
  ~WorkerLab() override;
  void set_call(Call call);
  LabCall open(const Config& baseline, double seconds) override;
  Checked check(const Config& config, double seconds) override;
  Sampled sample(const Config& config, double seconds) override;

 private:
  struct Reply;
  void start();
  void reopen();
  Reply ask(const nlohmann::json& request, double seconds);
  Reply step(const char* what, const Config& config, double seconds);
  const std::string program_;
  Call call_;
  std::unique_ptr<Child> child_;
  std::optional<Config> baseline_;
  double open_seconds_ = 60;
  std::size_t others_ = 0;  // configs run in this child
  std::string last_;
};

}  // namespace ejk
