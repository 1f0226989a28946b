#include "mantissa/engine/comm/launch.h"

#include <charconv>

#include "mantissa/core/base/error_text.h"

namespace mantissa::comm {

std::string_view name(Mpi mpi) {
  return mpi == Mpi::openmpi ? "openmpi" : "mpich";
}

std::optional<Mpi> launcher(Environment environment) {
  if (const std::optional<std::string> asked = environment("MANTISSA_MPI"); asked && !asked->empty()) {
    for (const Mpi mpi : {Mpi::openmpi, Mpi::mpich}) {
      if (*asked == name(mpi)) return mpi;
    }
    if (*asked == "none") return std::nullopt;
    throw ConfigError("MANTISSA_MPI is \"{}\". Fix: set it to openmpi, mpich or none, or unset it", *asked);
  }
  if (environment("OMPI_COMM_WORLD_SIZE")) return Mpi::openmpi;
  if (environment("PMI_RANK") || environment("PMI_FD")) return Mpi::mpich;
  if (environment("PMIX_RANK")) return Mpi::openmpi;  // srun --mpi=pmix
  const std::string tasks = environment("SLURM_STEP_NUM_TASKS").value_or("1");
  int count = 1;
  std::from_chars(tasks.data(), tasks.data() + tasks.size(), count);
  if (count > 1) {
    throw ConfigError(
        "srun started {} processes without the support of MPI, so each would train the whole run. Fix: srun "
        "--mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH)",
        count);
  }
  return std::nullopt;
}

bool is_first(Environment environment) {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const std::optional<std::string> rank = environment(variable)) return *rank == "0";
  }
  return true;
}

}  // namespace mantissa::comm
