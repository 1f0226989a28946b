// What the system says of this process and machine.
#pragma once

#include <cstddef>

namespace mantissa::runtime {

/// Resident bytes now, and the most there were.
std::size_t resident_bytes();
std::size_t peak_resident_bytes();

/// Resident bytes of the program and its libraries with threads started, before a run allocates:
/// resident_bytes() when the first forecast is made, and the program's code that has not run yet.
std::size_t baseline_bytes();

/// Memory of the machine that a run may use, in bytes: what is there, or the control group's limit.
std::size_t machine_memory_bytes();

}  // namespace mantissa::runtime
