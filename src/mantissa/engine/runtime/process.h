// Memory of this process and machine, as reported by the system.
#pragma once

#include <cstddef>

namespace mantissa::runtime {

/// Return the current and the peak resident bytes.
std::size_t resident_bytes();
std::size_t peak_resident_bytes();

/// Returns the resident bytes of the program and its libraries with threads started, before a run allocates:
/// resident_bytes() at the first forecast, plus what running the rest of the program loads.
std::size_t baseline_bytes();
/// Returns memory that was freed to the system, such as that of planning before the steps.
void release_free_memory();

/// Returns the machine's memory available to a run, in bytes: all of it, or the limit of the control group.
std::size_t machine_memory_bytes();

}  // namespace mantissa::runtime
