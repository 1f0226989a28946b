// How this process was started: alone, or with others by a launcher of MPI.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "mantissa/engine/comm/transport.h"

namespace mantissa::comm {

enum class Mpi : std::uint8_t { openmpi, mpich };

std::string_view name(Mpi mpi);

/// Reads a variable of the environment; null if it is not set.
using Environment = std::optional<std::string> (*)(const char* variable);

/// Returns the implementation whose launcher started this process, or null if none did. Looks at variables
/// alone. Throws ConfigError for several processes of srun without the support of MPI, and for a
/// MANTISSA_MPI that names none.
std::optional<Mpi> launcher(Environment environment);

/// Returns false if the launcher gave this process another number than 0.
bool is_first(Environment environment);

/// Loads the library for `mpi` and joins the other processes. Throws ResourceError if it is not installed or
/// MPI fails.
std::unique_ptr<Transport> join(Mpi mpi);

/// Returns the folders in which the library for MPI is looked for.
std::vector<std::filesystem::path> library_folders();

}  // namespace mantissa::comm
