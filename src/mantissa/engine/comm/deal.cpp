#include "mantissa/engine/comm/deal.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/engine/comm/passed_error.h"

namespace mantissa::comm {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

/// What ranks tell each other while they work.
struct Beat {
  std::uint64_t inputs = 0;     // of all ranks the same
  std::int64_t failed = kNone;  // the first item with an error: later ones need not run
  bool stopped = false, finished = false;
};

/// Exchanges beats on the thread of operations, so that a rank that works for long is known to be there, and
/// a stop or an error of one reaches all.
class Beats {
 public:
  explicit Beats(std::uint64_t inputs) { own_.inputs = inputs; }

  std::stop_token stop() const { return stop_.get_token(); }
  /// Tells the others that this rank was stopped.
  void request_stop() {
    stop_.request_stop();
    change([](Beat& own) { own.stopped = true; });
  }
  void fail(std::int64_t item) {
    change([&](Beat& own) { own.failed = std::min(own.failed, item); });
  }
  void finish() {
    change([](Beat& own) { own.finished = true; });
  }
  /// Ends the exchange by an error that only this rank has.
  void abandon() {
    abandoned_ = true;
    changed_.notify_all();
  }
  /// Returns the first item that is known to have failed.
  std::int64_t failed() {
    const std::lock_guard lock(mutex_);
    return own_.failed;
  }
  /// Returns the first rank with other inputs than rank 0, or −1. Call it after the exchange.
  int other_inputs() const { return other_; }

  /// Returns when all ranks have finished, or have other inputs.
  void exchange(Messages& m) {
    using std::chrono::microseconds;
    constexpr microseconds kShortest(1000), kLongest(100'000);
    std::vector<Beat> all(static_cast<std::size_t>(m.size()));
    microseconds pause(0);
    do {
      Beat& own = all[static_cast<std::size_t>(m.rank())] = next(pause);
      for (int rank = 0; rank < m.size(); ++rank) {
        if (rank == m.rank()) continue;
        m.send(rank, std::as_bytes(std::span(&own, 1)));
        m.receive(rank, std::as_writable_bytes(std::span(&all[static_cast<std::size_t>(rank)], 1)));
      }
      try {
        m.complete();
      } catch (const RankLost&) {
        stop_.request_stop();  // what this rank still does is lost
        throw;
      }
      hear(all);
      pause = std::clamp(pause * 2, kShortest, kLongest);
    } while (other_ < 0 && !std::ranges::all_of(all, &Beat::finished));
  }

 private:
  template <class Change>
  void change(const Change& change) {
    {
      const std::lock_guard lock(mutex_);
      change(own_);
      news_ = true;
    }
    changed_.notify_all();
  }

  /// Waits for news of this rank, not longer than `pause`.
  Beat next(std::chrono::microseconds pause) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, pause, [&] { return news_ || own_.finished || abandoned_; });
    if (abandoned_) throw RankLost("this rank ends");
    news_ = false;
    return own_;
  }

  void hear(std::span<const Beat> all) {
    bool stopped = false;
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (other_ < 0 && all[rank].inputs != all[0].inputs) other_ = static_cast<int>(rank);
        own_.failed = std::min(own_.failed, all[rank].failed);
        stopped = stopped || all[rank].stopped;
      }
    }
    if (stopped || other_ >= 0) stop_.request_stop();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Beat own_;
  bool news_ = false;
  std::atomic<bool> abandoned_ = false;
  std::stop_source stop_;
  int other_ = -1;
};

std::uint64_t hash_of(std::int64_t items, std::initializer_list<std::string_view> inputs) {
  std::vector<std::uint64_t> hashes = {static_cast<std::uint64_t>(items)};
  for (const std::string_view input : inputs) hashes.push_back(hash_name(input));
  return hash_name(memory_of(hashes));
}

/// An item of this rank, and its result or its error.
struct Done {
  std::int64_t item = 0;
  bool failed = false;
  Bytes bytes;
};

/// Runs the items of this rank.
std::vector<Done> run_own(Communicator& ranks, std::int64_t items, Beats& beats, const DealtWork& work) {
  std::vector<Done> own;
  for (std::int64_t item = ranks.rank(); item < std::min(items, beats.failed()); item += ranks.size()) {
    try {
      std::optional<Bytes> result = work(item, beats.stop());
      if (!result) break;
      own.push_back({item, false, std::move(*result)});
    } catch (const Error&) {
      own.push_back({item, true, bytes_of_error(std::current_exception())});
      beats.fail(item);
    }
  }
  return own;
}

/// Throws an error that is of one machine with its place.
void throw_of(Communicator& ranks, int rank, std::span<const std::byte> error) {
  const auto at = [&](const Error& e) {
    return rank == 0 ? e.message() : fmt::format("{}: {}", ranks.place(rank), e.message());
  };
  try {
    throw_error(error);
  } catch (const FileError& e) {
    throw FileError(at(e), e.cures());
  } catch (const ResourceError& e) {
    throw ResourceError(at(e), e.cures());
  }
}

/// Returns the results of all ranks.
std::vector<Bytes> gathered(Communicator& ranks, std::int64_t items, std::span<const Done> own) {
  Bytes packed;
  for (const Done& done : own) {
    append(packed, done.item);
    append(packed, done.failed);
    append(packed, done.bytes);
  }
  std::vector<std::optional<Done>> all(static_cast<std::size_t>(items));
  for (const Bytes& of_rank : ranks.all_gather(packed)) {
    for (std::span<const std::byte> left = of_rank; !left.empty();) {
      const auto item = take<std::int64_t>(left);
      const auto failed = take<bool>(left);
      all[static_cast<std::size_t>(item)] = {item, failed, take<Bytes>(left)};
    }
  }
  std::vector<Bytes> results;
  for (std::optional<Done>& done : all) {
    if (!done) break;
    if (done->failed) throw_of(ranks, static_cast<int>(done->item % ranks.size()), done->bytes);
    results.push_back(std::move(done->bytes));
  }
  return results;
}

}  // namespace

std::vector<Bytes> deal(Communicator* ranks, std::int64_t items,
                        std::initializer_list<std::string_view> inputs, const std::stop_token& stop,
                        const DealtWork& work) {
  if (ranks == nullptr || ranks->alone()) {
    std::vector<Bytes> results;
    for (std::int64_t item = 0; item < items; ++item) {
      std::optional<Bytes> result = work(item, stop);
      if (!result) break;
      results.push_back(std::move(*result));
    }
    return results;
  }
  const auto beats = std::make_shared<Beats>(hash_of(items, inputs));
  std::future<void> exchanged = ranks->start([beats](Messages& m) { beats->exchange(m); });
  std::vector<Done> own;
  try {
    const std::stop_callback stopped(stop, [&] { beats->request_stop(); });
    own = run_own(*ranks, items, *beats, work);
    beats->finish();
    exchanged.get();
  } catch (...) {
    ranks->expect_losses();
    beats->abandon();
    throw;
  }
  if (const int rank = beats->other_inputs(); rank >= 0) {
    throw ConfigError("{} has other inputs than {}. Fix: the same files and options on all machines",
                      ranks->place(rank), ranks->place(0));
  }
  return gathered(*ranks, items, own);
}

}  // namespace mantissa::comm
