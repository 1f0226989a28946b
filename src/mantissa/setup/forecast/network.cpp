#include "mantissa/setup/forecast/network.h"

#include <algorithm>
#include <chrono>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/comm/shard_sum.h"

namespace mantissa::forecast {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Returns the median time of a message of `bytes` bytes from rank 0 to `other`; 0 on other ranks. It is half
/// of that there and back.
double message_seconds(comm::Communicator& ranks, int other, std::size_t bytes, int times) {
  std::vector<std::byte> memory(bytes);
  std::vector<double> seconds(1);
  ranks.run([&](comm::Messages& m) {
    for (int i = 0; i < times; ++i) {
      const Clock::time_point start = Clock::now();
      if (m.rank() == 0) {
        m.send(other, memory);
        m.complete();
        m.receive(other, memory);
        m.complete();
        seconds.push_back(seconds_since(start) / 2);
      } else if (m.rank() == other) {
        m.receive(0, memory);
        m.complete();
        m.send(0, memory);
        m.complete();
      }
    }
  });
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

NetworkCheck::Sum measure_sum(const runtime::Device& device, comm::Communicator& ranks, std::int64_t count,
                              Scalar format) {
  constexpr int kTimes = 3;
  const Storage memory(static_cast<std::size_t>(count) * bytes_of(Scalar::f32));
  const std::vector<comm::Gradient> gradients = {{{memory.data(), Scalar::f32, count}, count}};
  const std::int64_t shards = ranks.size();
  comm::ShardSum sum(gradients, {ranks.rank(), 1}, shards, format);
  NetworkCheck::Sum result{format};
  for (int i = 0; i < kTimes; ++i) {
    sum.add(device.host(), gradients, ranks.rank());
    ranks.barrier();
    const std::uint64_t before = ranks.sent_bytes();
    const Clock::time_point start = Clock::now();
    sum.add_ranks(device.serial(), gradients, ranks);
    const double seconds = seconds_since(start);
    result.seconds = i == 0 ? seconds : std::min(result.seconds, seconds);
    result.bytes = ranks.sent_bytes() - before;
  }
  return result;
}

}  // namespace

NetworkCheck check_network(const runtime::Device& device, comm::Communicator& ranks) {
  constexpr std::size_t kLarge = std::size_t{8} << 20;
  constexpr int kShortTimes = 200, kLargeTimes = 5;
  NetworkCheck check{.ranks = ranks.size(), .here = ranks.local_size(), .gradients = std::int64_t{1} << 22};
  for (int other = 1; other < ranks.size(); ++other) {
    check.latency = std::max(check.latency, message_seconds(ranks, other, 1, kShortTimes));
    const double rate = static_cast<double>(kLarge) / message_seconds(ranks, other, kLarge, kLargeTimes);
    check.bytes_per_second = other == 1 ? rate : std::min(check.bytes_per_second, rate);
  }
  for (const Scalar format : {Scalar::f32, Scalar::bf16, Scalar::f16, Scalar::e5m2})
    check.sums.push_back(measure_sum(device, ranks, check.gradients, format));
  return check;
}

}  // namespace mantissa::forecast
