// The processes that a launcher of MPI started together, and which share a run.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "mantissa/core/base/error.h"

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

  /// How the work of a rank ended: without an error, by one of its own, or because another rank had ended
  /// (RankLost).
  enum class Ending { done, failed, lost };
  /// What a rank knows at its end.
  struct Farewell {
    bool together = true;  // every rank has ended; otherwise only end_all() ends them
    bool tells = true;     // of all ranks with an error, this one has the message that says why
    std::string hanging;   // replaces the error's message unless empty: names the ranks that hang, not those
                           // that waited for them
  };
  /// Says how the work of this rank ended; nothing can be shared after it. Waits for the others, after an
  /// error for some seconds.
  Farewell leave(Ending ending) const;
  /// Sets what is called, on a thread of its own, when another rank is lost, in place of throwing RankLost.
  /// It must end the process.
  void on_lost(std::function<void(const RankLost&)> handler) const;
  /// Leaves MPI, after leave() has returned that all have ended.
  void disconnect() const;
  /// Ends all ranks at once, this one too, with an exit code.
  void end_all(int code) const;

  comm::Communicator& communicator() const { return *communicator_; }

 private:
  std::shared_ptr<comm::Communicator> communicator_;
};

/// Returns a variable of the environment; null if it is not set.
using Environment = std::optional<std::string> (*)(const char* variable);

/// Joins the processes that a launcher of MPI (mpirun, srun) started with this one; without a launcher this
/// process is alone. Throws ResourceError if the library for that MPI cannot be loaded, and ConfigError for
/// several processes that nothing connects.
Ranks open_ranks(Environment environment);
/// Returns false if the launcher's variables say that another process has number 0.
bool is_first_started(Environment environment);

}  // namespace mantissa::api
