// Where configs are tried: checked for correct results, then timed. One call's worth of tensors, made or copied for the purpose.
#pragma once
#include <string>

#include "ejk/kernel.hpp"

namespace ejk {

// What the lab says of the call it has made.
struct LabCall {
  std::string checked_against;            // "float64 reference", "the default config's result"
  std::string memory;                     // "cold": inputs come from memory; "warm": from the caches where they fit
  std::string machine;                    // the device in words
  double flops = 0, bytes = 0;            // the spec's cost; 0: unknown
  double baseline_us = 0;                 // of one run, roughly
  double peak_flops = 0, peak_bytes = 0;  // a second, of the machine; 0: not measured
};

struct Checked {
  std::string reason;   // empty: right. Else what is wrong: it faulted, hung, computed other numbers
  double residual = 0;  // worst error in tolerances
  double once_us = 0;   // of one run, roughly
};

struct Sampled {
  std::string reason;  // empty: it was timed
  double us = 0;
};

// Each step has a limit of seconds where the lab can end what it runs. Throws CodedError where no config is to blame.
class Lab {
 public:
  virtual ~Lab() = default;
  virtual LabCall open(const Config& baseline, double seconds) = 0;  // an unusable baseline is a CodedError
  virtual Checked check(const Config& config, double seconds) = 0;
  virtual Sampled sample(const Config& config, double seconds) = 0;
};

}  // namespace ejk
