// What the ranks of a run do together. Every rank calls the same operations in the same order. They run one
// after another on a thread of their own, so a rank may compute until it needs a result.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/comm/transport.h"

namespace mantissa::comm {

/// How the work of a rank ended.
enum class Ending : std::uint8_t {
  done,     // without an error
  failed,   // by an error of its own
  lost,     // because another rank ended or did not answer
  followed  // the same, after another rank had said how it ended
};

/// What the ranks say when they end. One thread at a time may use it.
class Goodbyes {
 public:
  /// Listens to all other ranks.
  explicit Goodbyes(Transport& transport);
  /// Says how this rank ended.
  void say(Ending own);
  /// Returns true when every rank has said it, and has heard it from this one.
  bool complete();
  /// Returns how a rank ended, or null if it is not known to have ended.
  std::optional<Ending> of(int rank);

 private:
  struct Other {
    std::optional<Transport::Request> heard, told;  // until they are complete
    Ending ending = Ending::done;
  };
  Transport& transport_;
  std::vector<Other> others_;
  Ending own_ = Ending::done;
};

/// A rank gave no answer in time. The message names every rank that was waited for.
class NoAnswer : public RankLost {
 public:
  NoAnswer(const std::string& places, std::chrono::milliseconds timeout);
};

/// The messages of one operation.
class Messages {
 public:
  Messages(Transport& transport, Goodbyes& goodbyes, std::chrono::milliseconds timeout,
           const std::atomic<bool>& ended, std::atomic<std::uint64_t>& sent)
      : transport_(transport), goodbyes_(goodbyes), timeout_(timeout), ended_(ended), sent_(sent) {}

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }

  /// Start one message each; none for no bytes. Valid until complete() returns, like the memory.
  void send(int to, std::span<const std::byte> bytes);
  void receive(int from, std::span<std::byte> bytes);
  /// Waits until all of them are complete. Throws RankLost if another rank has ended by an error, or if
  /// nothing arrived during the time limit.
  void complete();

 private:
  struct Pending {
    Transport::Request request;
    int other;
  };

  [[noreturn]] void throw_silent() const;
  void check_others(std::chrono::nanoseconds waited);

  Transport& transport_;
  Goodbyes& goodbyes_;
  std::chrono::milliseconds timeout_;
  const std::atomic<bool>& ended_;
  std::atomic<std::uint64_t>& sent_;
  std::vector<Pending> pending_;
};

/// Return text as the bytes of a message, and back.
std::vector<std::byte> bytes_of_text(std::string_view text);
std::string text_of(std::span<const std::byte> bytes);

using Operation = std::function<void(Messages&)>;

class Communicator {
 public:
  static constexpr std::chrono::milliseconds kTimeout = std::chrono::seconds(600);

  /// One rank, alone: every operation is complete at once.
  Communicator() = default;
  /// `timeout` is the longest time that an operation waits for another rank.
  explicit Communicator(std::unique_ptr<Transport> transport, std::chrono::milliseconds timeout = kTimeout);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return transport_ ? transport_->rank() : 0; }
  int size() const { return transport_ ? transport_->size() : 1; }
  int local_size() const { return transport_ ? transport_->local_size() : 1; }
  bool alone() const { return size() == 1; }
  /// Returns true for the rank that prints and writes what is not written in parts: 0.
  bool leads() const { return rank() == 0; }
  std::string place(int rank) const { return transport_ ? transport_->place(rank) : "rank 0"; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  /// Appends an operation. Its result is known, and its exception thrown, by get(). After an exception every
  /// later operation throws it too.
  std::future<void> start(Operation operation);
  /// Runs an operation, after those that were started.
  void run(Operation operation) { start(std::move(operation)).get(); }

  /// Copies the bytes of rank `root` to all others. All have the same number of bytes.
  void broadcast(std::span<std::byte> bytes, int root = 0);
  /// The same for bytes whose number the others do not know.
  std::vector<std::byte> broadcast(std::vector<std::byte> bytes, int root = 0);
  /// Returns the bytes of each rank, in any number.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> own);
  /// Copies block r, which is rank r's, to all others. All have the same sizes.
  std::future<void> all_gather(std::vector<std::span<std::byte>> blocks);
  /// Returns true if any rank gives true.
  bool any(bool own);
  /// Returns when every rank has called it.
  void barrier() { any(false); }

  /// What a rank knows at its end.
  struct Farewell {
    bool together = true;  // every rank has ended; otherwise only end_all() ends them
    bool tells = true;     // of all ranks with an error, this one has the message that says why
    std::string hanging;   // replaces the error's message unless empty: names the ranks that hang, not those
                           // that waited for them
  };
  /// Says how this rank's work ended; no operation may follow. Waits until all have ended, after an error not
  /// longer than `grace`.
  Farewell leave(Ending own, std::chrono::milliseconds grace = std::chrono::seconds(3));
  bool has_left() const { return left_; }
  /// Sets what is called, on the thread of operations, in place of throwing RankLost. It must not return:
  /// messages that are under way still use the memory of their operations, which an exception would free.
  void on_lost(std::function<void(const RankLost&)> handler) { on_lost_ = std::move(handler); }
  /// Says that this rank ends by an error of its own, so that a lost rank is an exception again. Only
  /// operations that own their memory, as any() does, may follow.
  void expect_losses() { expects_losses_ = true; }
  /// Leaves the transport in order, after leave() has returned that all have ended.
  void disconnect() { transport_.reset(); }
  /// Ends all ranks at once, with an exit code.
  void end_all(int code);

  /// Returns the bytes that this rank has sent, without the envelopes of messages.
  std::uint64_t sent_bytes() const { return sent_; }

 private:
  void work();
  void end_thread();

  std::unique_ptr<Transport> transport_;
  std::optional<Goodbyes> goodbyes_;
  std::atomic<std::chrono::milliseconds> timeout_ = kTimeout;
  std::atomic<std::uint64_t> sent_ = 0;
  std::atomic<bool> ended_ = false;  // the thread is to end
  bool left_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> waiting_;
  std::function<void(const RankLost&)> on_lost_;
  std::atomic<bool> expects_losses_ = false;
  Operation failed_;            // keeps its memory for messages that are under way
  std::exception_ptr failure_;  // of the first operation that failed; of the thread
  bool no_answer_ = false;      // it was NoAnswer; of the thread
  std::thread thread_;
};

}  // namespace mantissa::comm
