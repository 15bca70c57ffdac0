// A recorded call on the machine it was made on, which need not be here: which config and which image it gets.
#pragma once
#include "ejk/record.hpp"
#include "execute/bound_call.hpp"

namespace ejk {

// Must not outlive the library.
class PlacedCall : public BoundCall {
 public:
  // machine: where the call is placed; null: where it was recorded. Throws CallError or CodedError: no such kernel, a call that breaks its
  // contract, a machine of which too little is known.
  explicit PlacedCall(const RecordedInvocation& recorded, const Machine* machine = nullptr);

  Status run(const Invocation& invocation, const Config& config) const override;  // an error: there is no data
  // By the process's chain, but never by tuning. Throws CodedError.
  Selection select() const;
  // What the call would try, in this order, if the binary of `chosen` could not be had. Throws as image() does.
  struct Fallback {
    Config config;
    std::string image_id;
  };
  std::vector<Fallback> fallbacks(const Config& chosen) const;

 private:
  PlacedCall(const RecordedInvocation& recorded, std::shared_ptr<const Machine> machine);
};

// In the form of keys and records, if it is a call of a spec's kernel; else as it is.
Invocation canonical(const Invocation& invocation);

// Equal fingerprint; nullptr: not here.
const Machine* machine_here(const std::string& fingerprint);

}  // namespace ejk
