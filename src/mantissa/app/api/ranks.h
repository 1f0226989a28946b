// The processes that a launcher of MPI started together, and which share a run.
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace mantissa::comm {
class Communicator;
}

namespace mantissa::api {

/// This process among those that share its work. Copies are the same rank.
class Ranks {
 public:
  /// This process alone.
  Ranks();
  explicit Ranks(std::shared_ptr<comm::Communicator> communicator) : communicator_(std::move(communicator)) {}

  int rank() const;
  int size() const;
  /// Returns the number of ranks on this machine.
  int local_size() const;
  bool leads() const { return rank() == 0; }
  /// Returns the rank and its machine, for messages: "rank 3 on node7".
  std::string place() const;

  /// What is known of the others when this rank's work has ended.
  enum class End { together, first_failed, alone };
  /// Says that the work of this rank has ended, with an error or not. After it nothing can be shared.
  /// `alone`: other ranks still work, although they were given some seconds to end like this one. Then only
  /// abort() ends them.
  End leave(bool failed) const;
  /// Ends all ranks at once, this one too, with an exit code.
  void abort(int code) const;

  comm::Communicator& communicator() const { return *communicator_; }

 private:
  std::shared_ptr<comm::Communicator> communicator_;
};

/// Joins the processes that a launcher of MPI (mpirun, srun) started with this one; without a launcher this
/// process is alone. Throws ResourceError if the library for that MPI cannot be loaded, and ConfigError for
/// several processes that nothing connects.
Ranks open_ranks();
/// Returns false if the launcher's variables say that another process has number 0.
bool is_first_started();

}  // namespace mantissa::api
