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

  comm::Communicator& communicator() const { return *communicator_; }

 private:
  std::shared_ptr<comm::Communicator> communicator_;
};

}  // namespace mantissa::api
