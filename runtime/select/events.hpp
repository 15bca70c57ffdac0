// Telling events: to the scopes of this thread, the process's callback, and the log.
#pragma once
#include "ejk/events.hpp"

namespace ejk {

// Whether anybody listens; an event need not be made otherwise.
bool events_wanted() noexcept;

// Also the log line of EJKERNEL_LOG_AUTOTUNE. Holds no lock while callbacks run; drops what they throw.
void tell(const Event& event) noexcept;

}  // namespace ejk
