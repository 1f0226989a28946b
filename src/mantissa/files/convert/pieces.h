// Reads tensors in pieces on all threads. The pieces do not depend on the number of threads, so neither do
// sums over them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

#include "mantissa/files/convert/block_rows.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

/// Calls body(index, thread) for index in [0, count) on all threads. Rethrows one of its exceptions.
template <class Body>
void for_each_on_threads(const kernels::Context& ctx, std::size_t count, const Body& body) {
  std::vector<std::exception_ptr> faults(static_cast<std::size_t>(ctx.threads));
  kernels::parallel_for(ctx, static_cast<std::int64_t>(count), [&](std::int64_t i, int thread) {
    std::exception_ptr& fault = faults[static_cast<std::size_t>(thread)];
    if (fault != nullptr) return;
    try {
      body(static_cast<std::size_t>(i), thread);
    } catch (...) {
      fault = std::current_exception();
    }
  });
  for (const std::exception_ptr& fault : faults) {
    if (fault != nullptr) std::rethrow_exception(fault);
  }
}

/// Returns work(first, n) for each piece [first, first + n) of `count` elements, in order.
template <class Result, class Work>
std::vector<Result> over_pieces(const kernels::Context& ctx, std::uint64_t count, const Work& work) {
  std::vector<Result> results(static_cast<std::size_t>((count + kPiece - 1) / kPiece));
  for_each_on_threads(ctx, results.size(), [&](std::size_t i, int /*thread*/) {
    const std::uint64_t first = i * kPiece;
    results[i] = work(first, static_cast<std::size_t>(std::min(kPiece, count - first)));
  });
  return results;
}

}  // namespace mantissa::convert
