// A run that several ranks share: the one that leads it says what comes next, and the others follow.
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/files/io/state.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::run {

enum class Order : std::uint8_t { advance, validate, end };

/// The orders of the leading rank. Without other ranks it tells nobody.
class Orders {
 public:
  /// `ranks` may be null: alone.
  explicit Orders(comm::Communicator* ranks)
      : ranks_(ranks != nullptr && !ranks->alone() ? ranks : nullptr) {}
  /// Tells the others that the run ends, if it has not: after a failure they would wait.
  ~Orders();
  Orders(const Orders&) = delete;
  Orders& operator=(const Orders&) = delete;

  /// Tells the state from which the run continues, or null. It must be the first order.
  void tell_start(const std::optional<io::FoundState>& state);
  void tell(Order order);

 private:
  comm::Communicator* ranks_;
  bool started_ = false, ended_ = false;
};

/// Return what the leading rank tells. Throw RankLost if it has ended.
std::optional<io::FoundState> receive_start(comm::Communicator& ranks);
Order receive_order(comm::Communicator& ranks);

/// Does what the leading rank orders, until the run ends.
void follow(train::Trainer& trainer, comm::Communicator& ranks);

}  // namespace mantissa::run
