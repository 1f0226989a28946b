#include "mantissa/train/run/orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/train/run/shared_state.h"

namespace mantissa::run {
namespace {

constexpr std::string_view kNoRun = "none", kNew = "new";

}  // namespace

Orders::~Orders() {
  if (ranks_ == nullptr || ended_) return;
  if (std::uncaught_exceptions() > 0) ranks_->expect_losses();  // all may have the same error
  try {
    if (started_) {
      tell(Order::end);
    } else {
      ranks_->broadcast(comm::bytes_of_text(kNoRun));
    }
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the others have ended
  }
}

void check_same_config(comm::Communicator* ranks, config::RunConfig config) {
  if (ranks == nullptr || ranks->alone()) return;
  config.run.name = config.run.out = "";
  config.run.threads = 0;
  const std::string text = config.to_toml();
  const std::vector<std::vector<std::byte>> all = ranks->all_gather(std::as_bytes(std::span(text)));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto [own, other] = std::ranges::mismatch(all[0], all[rank]);
    const std::string first = comm::text_of(all[0]);
    const auto at = static_cast<std::size_t>(own - all[0].begin());
    const std::size_t line = at == 0 ? 0 : first.rfind('\n', at - 1) + 1;
    throw ConfigError(
        "{} has another config than {}, which has \"{}\". Fix: the same config and options on all ranks",
        ranks->place(static_cast<int>(rank)), ranks->place(0),
        first.substr(line, first.find('\n', line) - line));
  }
}

void Orders::tell_start(const std::optional<io::FoundState>& state) {
  started_ = true;
  if (ranks_ == nullptr) return;
  ranks_->broadcast(comm::bytes_of_text(state ? fmt::format("{} {}", state->step, state->path.string())
                                              : std::string(kNew)));
}

void Orders::tell(Order order) {
  if (ranks_ == nullptr || ended_) return;
  ended_ = order == Order::end;
  if (ranks_->any(stop_.stop_requested())) stop_.request_stop();
  ranks_->broadcast(std::as_writable_bytes(std::span(&order, 1)));
}

Beginning receive_start(comm::Communicator& ranks) {
  const std::string text = comm::text_of(ranks.broadcast(std::vector<std::byte>{}));
  if (text == kNoRun) return {};
  if (text == kNew) return {true, std::nullopt};
  const std::size_t space = text.find(' ');
  return {true, io::FoundState{std::stoll(text.substr(0, space)), text.substr(space + 1)}};
}

Order receive_order(comm::Communicator& ranks, bool stop_requested) {
  ranks.any(stop_requested);
  Order order{};
  ranks.broadcast(std::as_writable_bytes(std::span(&order, 1)));
  return order;
}

RemoteReads::RemoteReads(Orders& orders, train::Trainer& trainer)
    : trainer_(trainer.shares_weights() ? &trainer : nullptr) {
  if (trainer_ != nullptr) orders.tell(Order::serve);
  averages_ = trainer.evaluation_weights();
}

RemoteReads::~RemoteReads() {
  if (trainer_ == nullptr) return;
  try {
    trainer_->end_reading();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the others have ended
  }
}

void follow(train::Trainer& trainer, comm::Communicator& ranks, const std::function<void()>& on_start,
            const std::stop_token& stop) {
  while (true) {
    const Order order = receive_order(ranks, stop.stop_requested());
    if (order == Order::end) return;
    if (order == Order::start) on_start();
    if (order == Order::serve) {
      const std::unique_ptr<train::EvaluationWeights> averages = trainer.evaluation_weights();
      trainer.serve_reads();
    }
    if (order == Order::save) write_part(trainer, ranks);
    try {
      if (order == Order::advance) {
        trainer.advance(stop);
      } else if (order == Order::validate) {
        trainer.validate(stop);
      }
    } catch (const RunStopped&) {  // NOLINT(bugprone-empty-catch): the leading rank stops too, and says why
    }
  }
}

}  // namespace mantissa::run
