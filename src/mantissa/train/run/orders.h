// A run that several ranks share: the one that leads it says what comes next, and the others follow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/files/io/state.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/train/steps/evaluation_weights.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::run {

/// `start`: the run's first weights are on the disk. `serve`: the leading rank reads what others have of the
/// weights and moments. `save`: each rank writes a part of a state.
enum class Order : std::uint8_t { start, advance, validate, serve, save, end };

/// The orders of the leading rank. Without other ranks it tells nobody.
class Orders {
 public:
  /// `ranks` may be null: alone. `stop` is the run's; it is requested if another rank was asked to stop.
  Orders(comm::Communicator* ranks, std::stop_source& stop)
      : ranks_(ranks != nullptr && !ranks->alone() ? ranks : nullptr), stop_(stop) {}
  /// Tells the others that the run ends, if it has not told them before: after a failure they would wait.
  ~Orders();
  Orders(const Orders&) = delete;
  Orders& operator=(const Orders&) = delete;

  /// Tells the state from which the run continues, or null. It must come first.
  void tell_start(const std::optional<io::FoundState>& state);
  void tell(Order order);
  /// Takes a stop that ended a step or a validation, perhaps of another rank, for one of the run.
  void hear(bool stopped) {
    if (stopped) stop_.request_stop();
  }
  /// Returns the ranks that follow, or null without any.
  comm::Communicator* ranks() const { return ranks_; }

 private:
  comm::Communicator* ranks_;
  std::stop_source& stop_;
  bool started_ = false, ended_ = false;
};

/// Throws ConfigError on every rank if one has another config, other than its output and threads. `ranks` may
/// be null.
void check_same_config(comm::Communicator* ranks, config::RunConfig config);

/// What the leading rank tells first.
struct Beginning {
  bool begins = false;                  // false: the leading rank cannot begin the run
  std::optional<io::FoundState> state;  // from which it continues, or null
};
/// Return what the leading rank tells. Throw RankLost if it has ended.
Beginning receive_start(comm::Communicator& ranks);
Order receive_order(comm::Communicator& ranks, bool stop_requested);

/// Does what the leading rank orders, until the run ends. `on_start` is called for Order::start.
void follow(train::Trainer& trainer, comm::Communicator& ranks, const std::function<void()>& on_start,
            const std::stop_token& stop);

/// Replaces the weights by those for evaluation, and lets other ranks answer what this one reads of theirs,
/// while it exists.
class RemoteReads {
 public:
  RemoteReads(Orders& orders, train::Trainer& trainer);
  ~RemoteReads();
  RemoteReads(const RemoteReads&) = delete;
  RemoteReads& operator=(const RemoteReads&) = delete;

 private:
  train::Trainer* trainer_;  // null: every rank has all of them
  std::unique_ptr<train::EvaluationWeights> averages_;
};

}  // namespace mantissa::run
