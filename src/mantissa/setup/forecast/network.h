// How fast the ranks of a launch reach each other: messages, and sums of gradients in each format.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/core/numeric/format.h"
#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/runtime/device.h"

namespace mantissa::forecast {

struct NetworkCheck {
  int ranks = 1, here = 1;      // of all machines, and of this one
  double latency = 0;           // seconds of a message of one byte; the largest from rank 0 to another
  double bytes_per_second = 0;  // of large messages; the smallest from rank 0 to another

  /// The sum of `gradients` gradients of every rank.
  struct Sum {
    Scalar format = Scalar::f32;  // `reduce` of a policy
    double seconds = 0;
    std::uint64_t bytes = 0;  // sent by a rank
  };
  std::int64_t gradients = 0;
  std::vector<Sum> sums = {};
};

/// Measures the network. Every rank calls it; takes about a second.
NetworkCheck check_network(const runtime::Device& device, comm::Communicator& ranks);

}  // namespace mantissa::forecast
