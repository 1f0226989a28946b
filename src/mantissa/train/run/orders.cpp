#include "mantissa/train/run/orders.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "mantissa/core/base/error.h"

namespace mantissa::run {

Orders::~Orders() {
  if (ranks_ == nullptr || !started_ || ended_) return;
  try {
    tell(Order::end);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the others know
  }
}

void Orders::tell_start(const std::optional<io::FoundState>& state) {
  if (ranks_ == nullptr) return;
  std::vector<std::byte> text;
  if (state) {
    const std::string line = fmt::format("{} {}", state->step, state->path.string());
    const auto bytes = std::as_bytes(std::span(line));
    text.assign(bytes.begin(), bytes.end());
  }
  ranks_->broadcast(std::move(text));
  started_ = true;
}

void Orders::tell(Order order) {
  if (ranks_ == nullptr || ended_) return;
  ended_ = order == Order::end;
  ranks_->broadcast(std::as_writable_bytes(std::span(&order, 1)));
}

std::optional<io::FoundState> receive_start(comm::Communicator& ranks) {
  const std::vector<std::byte> bytes = ranks.broadcast(std::vector<std::byte>{});
  if (bytes.empty()) return std::nullopt;
  const std::string line(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t space = line.find(' ');
  io::FoundState state;
  state.step = std::stoll(line.substr(0, space));
  state.path = line.substr(space + 1);
  return state;
}

Order receive_order(comm::Communicator& ranks) {
  Order order{};
  ranks.broadcast(std::as_writable_bytes(std::span(&order, 1)));
  return order;
}

void follow(train::Trainer& trainer, comm::Communicator& ranks) {
  for (Order order = receive_order(ranks); order != Order::end; order = receive_order(ranks)) {
    try {
      if (order == Order::advance) {
        trainer.advance();
      } else {
        trainer.validate();
      }
    } catch (const RunStopped&) {  // NOLINT(bugprone-empty-catch): the leading rank stops too, and says why
    }
  }
}

}  // namespace mantissa::run
