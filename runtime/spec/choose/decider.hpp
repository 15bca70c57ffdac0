// The one decision about a bound call on a device: which configs can serve it, which of them it gets if nothing else is asked for, and
// which it gets if no binary of that can be had. Calls, explain, warm, pack, the tuner and the generator all ask a Decider.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/read/catalogue.hpp"
#include "spec/render/image.hpp"

namespace ejk::spec {

// A variant on an arch.
struct Candidate {
  const Variant* variant = nullptr;
  const Arch* arch = nullptr;
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// A candidate with a config of its space: what an image is made of.
struct Completed {
  Candidate candidate;
  Config config;
  friend bool operator==(const Completed&, const Completed&) = default;
};

struct Refusal {
  std::string variant;
  std::string reason;  // the clause that refused, or that no arch of the variant runs here
};

// A config as a user or a record gives it: any part may be missing.
struct Request {
  std::string_view variant, arch;  // arch: its name, "avx512", or its full name
  const std::map<std::string, Value>& values;
};

// The heuristic's config; where the arch does not take it (a GPU with less shared memory than the spec's author had in mind), the valid one
// that differs in the fewest parameters. nullopt: there is none.
std::optional<Config> valid_heuristic(const Candidate& candidate, const Binding& binding);

// Works out each thing when it is first asked for, and once. One thread at a time; what it was made of must outlive it.
class Decider {
 public:
  // archs: those that the device runs, with the properties that it has there. One that is for tests only (property tests_only) serves a
  // call only if a request names it in full.
  Decider(const Catalogue& catalogue, const Binding& binding, std::vector<const Arch*> archs);

  // By priority, then the most specific arch first. named_arch: of the request.
  const std::vector<Candidate>& eligible(std::string_view named_arch = {});
  // Of every variant that is not eligible, by priority: it reads those that were left unread.
  const std::vector<Refusal>& refusals(std::string_view named_arch = {});
  // The first candidate that the heuristic has a valid config for; nullopt: refusals() say why, or no heuristic holds. among: those that
  // count; empty: all.
  std::optional<Completed> heuristic(const std::function<bool(const Candidate&)>& among = {});
  // A request, completed: variant and arch chosen if not named, missing parameters as the heuristic has them, or, where that is not valid,
  // as the valid config that differs in the fewest. nullopt: `reason` says why no candidate takes it.
  std::optional<Completed> complete(const Request& request, std::string& reason);
  std::vector<Completed> space();  // every valid config of every candidate

  // What a call tries if the binary of `chosen` cannot be had: nearest(chosen), which must be built already, then of each of others(chosen)
  // itself, which may be compiled, and its nearest.
  std::vector<Config> nearest(
      const Completed& chosen) const;                      // of the same variant and arch, those that differ in the fewest parameters first
  std::vector<Completed> others(const Completed& chosen);  // the heuristic's config of each other candidate
  // All of them in that order. configs_of: of a candidate those that count beside the heuristic's, in the order of its space; empty: all.
  using ConfigsOf = std::function<std::vector<Config>(const Candidate&)>;
  std::vector<Completed> fallbacks(const Completed& chosen, const ConfigsOf& configs_of = {});

 private:
  // Candidates found so far: variants are judged one after the other, as far as somebody asks.
  struct Listing {
    std::size_t judged = 0;  // of variants_
    std::vector<Candidate> eligible;
    std::optional<std::vector<Refusal>> refusals;
  };
  Listing& listing(std::string_view named_arch);
  const Candidate* at(Listing& listing, std::size_t index, std::string_view named_arch);  // nullptr: there are fewer
  // The archs here that run it, into eligible; if there are none, why.
  std::optional<Refusal> judge(const Variant& variant, std::string_view named_arch, std::vector<Candidate>& eligible) const;
  std::string why_none(const Request& request);
  const std::optional<Config>& wanted(const Candidate& candidate);
  std::optional<Config> filled(const Candidate& candidate, const Request& request);

  const Catalogue& catalogue_;
  const Binding& binding_;
  const std::vector<const Arch*> archs_;
  std::vector<const Variant*> variants_;                                 // by priority; all that could run on those archs
  std::map<std::string, Listing, std::less<>> listings_;                 // by the arch for tests that is named; "": none
  std::vector<std::pair<Candidate, std::optional<Config>>> heuristics_;  // as the spec says them, valid or not
};

}  // namespace ejk::spec
