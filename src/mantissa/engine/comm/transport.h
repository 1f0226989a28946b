// Messages between the ranks of a run: the processes, or the threads of one process, that share its work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mantissa/core/base/error.h"

namespace mantissa::comm {

/// Messages of different channels do not meet.
enum class Channel : std::uint8_t { work, end };

/// The end of one rank. One thread at a time may use it.
class Transport {
 public:
  using Request = std::uint64_t;

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns the number of ranks on this machine.
  virtual int local_size() const = 0;
  /// Returns the rank and its machine, for messages: "rank 3 on node7".
  virtual std::string place(int rank) const = 0;

  /// Start to send bytes to another rank, and to receive as many from it. Messages between two ranks arrive
  /// in the order in which they were sent on their channel. The memory must stay as it is until done() has
  /// returned true.
  virtual Request send(int to, std::span<const std::byte> bytes, Channel channel = Channel::work) = 0;
  virtual Request receive(int from, std::span<std::byte> bytes, Channel channel = Channel::work) = 0;
  /// Returns true, once, after the request is complete. Throws RankLost if the other rank has ended.
  virtual bool done(Request request) = 0;

  /// Ends every rank at once, this one too, with an exit code. Without a call, the destructor waits for the
  /// others to leave.
  virtual void end_all(int code) = 0;
};

}  // namespace mantissa::comm
