// Whether a tuning record still stands for what a call would run.
#pragma once
#include <string>

#include "ejk/kernel.hpp"
#include "ejk/tuning.hpp"

namespace ejk {

struct RecordJudgement {
  enum class Verdict {
    sound,         // the source is what was measured
    same_code,     // it is another, and compiles to the machine code that was measured
    changed,       // and so is the machine code
    not_compared,  // and no binary of it is here whose machine code could be compared
    unknown,       // and the record does not say which machine code was measured
    invalid        // its config cannot serve the call, or the call cannot be judged
  };
  Verdict verdict = Verdict::sound;
  std::string reason;  // why the record is passed over; empty: it serves
  bool serves() const { return reason.empty(); }
};

// Compiles nothing: of an image that is not here, the source alone is compared.
RecordJudgement judge_record(const Kernel& kernel, const Invocation& invocation, const TuningRecord& record);

}  // namespace ejk
