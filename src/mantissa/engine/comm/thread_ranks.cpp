#include "mantissa/engine/comm/thread_ranks.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "mantissa/core/base/error_text.h"

namespace mantissa::comm {
namespace {

/// The messages between all ranks. A message is copied when it is sent.
class Mail {
 public:
  explicit Mail(int ranks) : ended_(static_cast<std::size_t>(ranks)) {}

  void put(int from, int to, Channel channel, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    letters_[{from, to, channel}].emplace_back(bytes.begin(), bytes.end());
  }

  /// Takes the next message, if there is one. Returns null if there is none and the sender has ended.
  std::optional<bool> take(int from, int to, Channel channel, std::span<std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    std::deque<std::vector<std::byte>>& waiting = letters_[{from, to, channel}];
    if (waiting.empty()) return ended_[static_cast<std::size_t>(from)] ? std::nullopt : std::optional(false);
    if (waiting.front().size() != bytes.size())
      throw InternalError("a message of {} bytes from rank {} to rank {}, which expects {}",
                          waiting.front().size(), from, to, bytes.size());
    std::ranges::copy(waiting.front(), bytes.begin());
    waiting.pop_front();
    return true;
  }

  void end(int rank) {
    const std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(rank)] = true;
  }

  int ranks() const { return static_cast<int>(ended_.size()); }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int, int, Channel>, std::deque<std::vector<std::byte>>> letters_;
  std::vector<bool> ended_;
};

class ThreadRank final : public Transport {
 public:
  ThreadRank(std::shared_ptr<Mail> mail, int rank) : mail_(std::move(mail)), rank_(rank) {}
  ~ThreadRank() override { mail_->end(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return mail_->ranks(); }
  int local_size() const override { return mail_->ranks(); }
  std::string place(int rank) const override { return "rank " + std::to_string(rank); }

  Request send(int to, std::span<const std::byte> bytes, Channel channel) override {
    mail_->put(rank_, to, channel, bytes);
    return kSent;
  }

  Request receive(int from, std::span<std::byte> bytes, Channel channel) override {
    const Request request = ++last_;
    open_.push_back({request, from, channel, bytes});
    return request;
  }

  bool done(Request request) override {
    if (request == kSent) return true;
    const auto it = std::ranges::find(open_, request, &Open::request);
    // Messages of a rank arrive in order, so earlier requests come first.
    for (auto earlier = open_.begin(); earlier != it; ++earlier) {
      if (earlier->from == it->from && earlier->channel == it->channel && !take(*earlier)) return false;
    }
    if (!take(*it)) return false;
    open_.erase(it);
    return true;
  }

  /// The other ranks find that this one has ended.
  void end_all(int /*code*/) override { mail_->end(rank_); }

 private:
  static constexpr Request kSent = 0;
  struct Open {
    Request request;
    int from;
    Channel channel;
    std::span<std::byte> bytes;
    bool taken = false;
  };

  bool take(Open& open) {
    if (open.taken) return true;
    const std::optional<bool> there = mail_->take(open.from, rank_, open.channel, open.bytes);
    if (!there)
      throw RankLost("{} has ended, so the command ends; the last state of a run is complete",
                     place(open.from));
    return open.taken = *there;
  }

  std::shared_ptr<Mail> mail_;
  int rank_;
  Request last_ = 0;
  std::deque<Open> open_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> thread_ranks(int ranks) {
  const auto mail = std::make_shared<Mail>(ranks);
  std::vector<std::unique_ptr<Transport>> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(std::make_unique<ThreadRank>(mail, rank));
  return all;
}

}  // namespace mantissa::comm
