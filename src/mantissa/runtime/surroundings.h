// What the system says of the machine beside the processor: memory, accelerators, launchers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mantissa::runtime {

/// Memory that a program that starts now can have without others being pushed out, in bytes, within the
/// control group's limit; 0 where the system does not say.
std::size_t available_memory_bytes();

/// Accelerators that the system's drivers show: "NVIDIA H100 80GB HBM3". Empty where there are none.
std::vector<std::string> seen_accelerators();

/// Paths of MPI's and Slurm's launchers in the system's usual places: "/usr/bin/mpirun".
std::vector<std::string> seen_launchers();

}  // namespace mantissa::runtime
