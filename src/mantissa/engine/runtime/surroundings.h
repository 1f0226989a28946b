// The machine apart from its processor, as reported by the system: memory, accelerators, launchers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mantissa::runtime {

/// Returns the memory in bytes that a new program can use without swapping, within the control group's limit,
/// or 0 if unknown.
std::size_t available_memory_bytes();

/// Returns the accelerators that the system's drivers report, such as "NVIDIA H100 80GB HBM3".
std::vector<std::string> seen_accelerators();

/// Returns the paths of MPI's and Slurm's launchers in the usual system folders, such as "/usr/bin/mpirun".
std::vector<std::string> seen_launchers();

}  // namespace mantissa::runtime
