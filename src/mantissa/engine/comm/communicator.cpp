#include "mantissa/engine/comm/communicator.h"

#include <algorithm>
#include <utility>

#include "mantissa/core/base/error_text.h"

namespace mantissa::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// Waits a little, and longer the longer nothing arrived: other ranks may need this core.
void pause(Clock::duration since) {
  if (since < std::chrono::microseconds(200)) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(since < std::chrono::milliseconds(20) ? std::chrono::microseconds(50)
                                                                      : std::chrono::microseconds(500));
  }
}

/// A binomial tree: in each round, the ranks that have the bytes send them to as many others.
void broadcast_in(Messages& m, std::span<std::byte> bytes, int root) {
  const int size = m.size(), own = (m.rank() - root + size) % size;
  for (int reach = 1; reach < size; reach *= 2) {
    if (own < reach && own + reach < size) {
      m.send((own + reach + root) % size, bytes);
    } else if (own >= reach && own < 2 * reach) {
      m.receive((own - reach + root) % size, bytes);
      m.complete();
    }
  }
  m.complete();
}

/// Few bytes go from each rank to each other at once: who waits then waits for the rank that is late, not for
/// one that waits itself. More go round a ring: each rank passes on the block that it received last.
void all_gather_in(Messages& m, std::span<const std::span<std::byte>> blocks) {
  constexpr int kFewRanks = 64;
  constexpr std::size_t kFewBytes = 4096;
  const int size = m.size(), own = m.rank();
  const bool few = std::ranges::all_of(blocks, [](const auto& b) { return b.size() <= kFewBytes; });
  if (few && size <= kFewRanks) {
    for (int rank = 0; rank < size; ++rank) {
      if (rank == own) continue;
      m.send(rank, blocks[static_cast<std::size_t>(own)]);
      m.receive(rank, blocks[static_cast<std::size_t>(rank)]);
    }
    return m.complete();
  }
  const auto block = [&](int back) { return blocks[static_cast<std::size_t>((own - back + size) % size)]; };
  for (int round = 0; round + 1 < size; ++round) {
    m.send((own + 1) % size, block(round));
    m.receive((own + size - 1) % size, block(round + 1));
    m.complete();
  }
}

std::string places_of(const Transport& transport, std::span<const int> ranks) {
  std::string places;
  for (const int rank : ranks) places += (places.empty() ? "" : ", ") + transport.place(rank);
  return places;
}

}  // namespace

NoAnswer::NoAnswer(const std::string& places, std::chrono::milliseconds timeout)
    : RankLost(
          "{}: no answer for {} s (distributed.timeout), so the command ends; the last state of a run is "
          "complete. Fix: look for a process that hangs or a machine out of reach, and continue a run with "
          "--resume",
          places, static_cast<double>(timeout.count()) / 1000) {}

std::vector<std::byte> bytes_of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Goodbyes::Goodbyes(Transport& transport)
    : transport_(transport), others_(static_cast<std::size_t>(transport.size())) {
  for (int rank = 0; rank < transport_.size(); ++rank) {
    Other& other = others_[static_cast<std::size_t>(rank)];
    if (rank != transport_.rank())
      other.heard =
          transport_.receive(rank, std::as_writable_bytes(std::span(&other.ending, 1)), Channel::end);
  }
}

void Goodbyes::say(Ending own) {
  own_ = own;
  for (int rank = 0; rank < transport_.size(); ++rank) {
    if (rank != transport_.rank())
      others_[static_cast<std::size_t>(rank)].told =
          transport_.send(rank, std::as_bytes(std::span(&own_, 1)), Channel::end);
  }
}

std::optional<Ending> Goodbyes::of(int rank) {
  if (rank == transport_.rank()) return std::nullopt;
  Other& other = others_[static_cast<std::size_t>(rank)];
  if (other.heard && transport_.done(*other.heard)) other.heard.reset();
  return other.heard ? std::nullopt : std::optional(other.ending);
}

bool Goodbyes::complete() {
  bool all = true;
  for (int rank = 0; rank < transport_.size(); ++rank) {
    if (rank == transport_.rank()) continue;
    Other& other = others_[static_cast<std::size_t>(rank)];
    if (other.told && transport_.done(*other.told)) other.told.reset();
    all = of(rank).has_value() && !other.told && all;
  }
  return all;
}

void Messages::send(int to, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  pending_.push_back({transport_.send(to, bytes), to});
  sent_ += bytes.size();
}

void Messages::receive(int from, std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  pending_.push_back({transport_.receive(from, bytes), from});
}

void Messages::complete() {
  constexpr auto kPatience = std::chrono::milliseconds(2);
  Clock::time_point last = Clock::now();
  while (!pending_.empty()) {
    if (std::erase_if(pending_, [&](const Pending& p) { return transport_.done(p.request); }) > 0) {
      last = Clock::now();
      continue;
    }
    const Clock::duration since = Clock::now() - last;
    if (ended_) throw RankLost("this rank ends");
    if (since > timeout_) throw_silent();
    if (since > kPatience) check_others(since);
    pause(since);
  }
}

void Messages::check_others(std::chrono::nanoseconds waited) {
  constexpr auto kUnderWay = std::chrono::seconds(5);  // messages of a rank that has ended
  // The rank to name: one with an error of its own, or else one that missed another. Of a rank that followed
  // another, the other's word is under way.
  std::optional<int> named;
  Ending how = Ending::done;
  for (int rank = 0; rank < size(); ++rank) {
    const std::optional<Ending> ending = goodbyes_.of(rank);
    if (!ending) continue;
    if (*ending == Ending::done && waited > kUnderWay &&
        std::ranges::find(pending_, rank, &Pending::other) != pending_.end())
      throw RankLost("{} has ended its work, but a message of it is missing (this is a bug in the program)",
                     transport_.place(rank));
    if (*ending == Ending::done || (*ending == Ending::followed && waited <= kUnderWay)) continue;
    if (!named || (*ending == Ending::failed && how != Ending::failed)) {
      named = rank;
      how = *ending;
    }
  }
  if (named)
    throw RankLost("{} has ended with an error, so the command ends; the last state of a run is complete",
                   transport_.place(*named));
}

void Messages::throw_silent() const {
  std::vector<int> silent;
  for (const Pending& p : pending_) {
    if (std::ranges::find(silent, p.other) == silent.end()) silent.push_back(p.other);
  }
  throw NoAnswer(places_of(transport_, silent), timeout_);
}

Communicator::Communicator(std::unique_ptr<Transport> transport, std::chrono::milliseconds timeout)
    : transport_(std::move(transport)), timeout_(timeout) {
  if (size() == 1) return;
  goodbyes_.emplace(*transport_);
  thread_ = std::thread([this] { work(); });
}

Communicator::~Communicator() {
  end_thread();
}

void Communicator::end_thread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Communicator::Farewell Communicator::leave(Ending own, std::chrono::milliseconds grace) {
  left_ = true;
  if (alone()) return {};
  if (std::this_thread::get_id() != thread_.get_id()) end_thread();
  Farewell farewell;
  try {
    // The rank that ended first knows the reason.
    bool told_before = false;
    for (int other = 0; other < size(); ++other)
      told_before = goodbyes_->of(other).value_or(Ending::done) != Ending::done || told_before;
    if (own == Ending::lost && told_before) own = Ending::followed;
    goodbyes_->say(own);
    farewell.tells = own != Ending::followed;
    const Clock::time_point start = Clock::now();
    while (!goodbyes_->complete()) {
      const Clock::duration since = Clock::now() - start;
      if (since > (own == Ending::done ? timeout_.load() : grace)) {
        farewell.together = false;
        break;
      }
      pause(since);
    }
    std::vector<int> hanging;
    for (int other = 0; other < size(); ++other) {
      const std::optional<Ending> ending = goodbyes_->of(other);
      if (!ending && other != rank()) hanging.push_back(other);
      if (!ending || *ending == Ending::done) continue;
      // The lowest rank with an error of its own tells, or without such a rank the lowest of those that
      // missed one.
      if (*ending == own ? other < rank() : *ending == Ending::failed) farewell.tells = false;
    }
    if (own == Ending::lost && no_answer_ && !hanging.empty())
      farewell.hanging = NoAnswer(places_of(*transport_, hanging), timeout_).what();
  } catch (const RankLost&) {
    farewell.together = false;
  }
  return farewell;
}

void Communicator::end_all(int code) {
  if (transport_) transport_->end_all(code);
}

void Communicator::work() {
  while (true) {
    std::packaged_task<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    task();
  }
}

std::future<void> Communicator::start(Operation operation) {
  std::packaged_task<void()> task([this, operation = std::move(operation)] {
    if (failure_) std::rethrow_exception(failure_);
    if (alone()) return;
    try {
      Messages messages(*transport_, *goodbyes_, timeout_, ended_, sent_);
      operation(messages);
      messages.complete();
    } catch (const RankLost& e) {
      no_answer_ = dynamic_cast<const NoAnswer*>(&e) != nullptr;
      if (on_lost_ && !ended_ && !expects_losses_) on_lost_(e);
      failed_ = operation;
      failure_ = std::current_exception();
      throw;
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  });
  std::future<void> result = task.get_future();
  if (!thread_.joinable()) {
    task();
    return result;
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(task));
  }
  changed_.notify_all();
  return result;
}

void Communicator::broadcast(std::span<std::byte> bytes, int root) {
  run([=](Messages& m) { broadcast_in(m, bytes, root); });
}

std::vector<std::byte> Communicator::broadcast(std::vector<std::byte> bytes, int root) {
  std::uint64_t size = bytes.size();
  broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
  bytes.resize(size);
  broadcast(std::span(bytes), root);
  return bytes;
}

std::future<void> Communicator::all_gather(std::vector<std::span<std::byte>> blocks) {
  return start([blocks = std::move(blocks)](Messages& m) { all_gather_in(m, blocks); });
}

std::vector<std::vector<std::byte>> Communicator::all_gather(std::span<const std::byte> own) {
  const auto ranks = static_cast<std::size_t>(size()), self = static_cast<std::size_t>(rank());
  std::vector<std::uint64_t> sizes(ranks, own.size());
  std::vector<std::span<std::byte>> blocks;
  for (std::uint64_t& s : sizes) blocks.push_back(std::as_writable_bytes(std::span(&s, 1)));
  all_gather(std::move(blocks)).get();
  std::vector<std::vector<std::byte>> all(ranks);
  blocks.clear();
  for (std::size_t r = 0; r < ranks; ++r) blocks.emplace_back(all[r] = std::vector<std::byte>(sizes[r]));
  std::ranges::copy(own, all[self].begin());
  all_gather(std::move(blocks)).get();
  return all;
}

bool Communicator::any(bool own) {
  const auto flags =
      std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(size()), std::byte{own});
  run([flags](Messages& m) {
    std::vector<std::span<std::byte>> blocks;
    for (std::byte& flag : *flags) blocks.emplace_back(&flag, 1);
    all_gather_in(m, blocks);
  });
  return std::ranges::any_of(*flags, [](std::byte flag) { return flag != std::byte{0}; });
}

}  // namespace mantissa::comm
