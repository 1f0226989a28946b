// Counts of what the roundings of an optimizer step lose: updates of weights, and gradients stored below f32.
// Nothing here changes a value.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/sweep.h"

namespace mantissa::kernels {

/// The elements of a weight whose stored value an update leaves as it is.
struct UnmovedCount {
  std::int64_t lost = 0;  // although their update is not zero
  std::int64_t idle = 0;  // because their update is zero
};

/// The factor of weight decay among the inputs of a sweep, and its value without decay.
struct DecayInput {
  std::size_t input = 0;
  double undecayed = 1;
};

/// Counts for output `output` of sweep(ctx, s), called before it with the same arguments. The output's memory
/// holds the old values. The update of an element is not zero if the sweep computed in f64, without the
/// program's own roundings and without the weight decay that `decay` gives, yields another value than the old
/// one; f32 arithmetic can also lose it (w + Δ = w), and so can lowered intermediate results. Under an f64
/// sweep no update is lost before it is stored.
UnmovedCount count_unmoved(const Context& ctx, const Sweep& s, std::size_t output,
                           std::optional<DecayInput> decay = {});

/// Values that leave the range of a format when they are rounded to it.
struct RangeCount {
  std::int64_t flushed = 0;    // not zero before, zero after
  std::int64_t saturated = 0;  // finite before, and after it inf or the largest finite value below it
};

/// Sums counts of several threads.
class RangeCounter {
 public:
  void add(RangeCount part) {
    flushed_.fetch_add(part.flushed, std::memory_order_relaxed);
    saturated_.fetch_add(part.saturated, std::memory_order_relaxed);
  }
  RangeCount count() const { return {flushed_.load(), saturated_.load()}; }

 private:
  std::atomic<std::int64_t> flushed_ = 0, saturated_ = 0;
};

/// Counts for the sums that collect_gradient() with the same arguments would round.
RangeCount count_gradient_losses(const Context& ctx, std::int64_t count, const void* contribution,
                                 Scalar contribution_type, const void* gradient, Scalar gradient_type,
                                 bool accumulate);

/// Returns the number of finite elements whose magnitude is greater than `limit`.
std::int64_t count_beyond(const Context& ctx, std::int64_t count, const void* values, Scalar type,
                          double limit);

/// Returns the number of elements that are equal as numbers, in formats of at most f64.
std::int64_t count_equal(const Context& ctx, std::int64_t count, const void* a, Scalar a_type, const void* b,
                         Scalar b_type);

}  // namespace mantissa::kernels
