// Counts the values of whole tensors in parts that stay in the cache, on all threads of a context. The counts
// do not depend on the number of threads.
#pragma once

#include "mantissa/core/numeric/distribution.h"
#include "mantissa/core/numeric/error_stats.h"
#include "mantissa/core/numeric/value_counts.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::runtime {

/// A result to count, with tensors of as many elements.
struct CountedResult {
  const graph::Argument* stored = nullptr;
  Scalar rounded = Scalar::f32;             // the format whose errors are measured
  const graph::Argument* wide = nullptr;    // the result before rounding; null: no errors are measured
  const graph::Argument* addend = nullptr;  // the result is a sum with it; null: cancellation is not counted
};

/// Adds the values of a result to `to`.
void count_result(const kernels::Context& ctx, const CountedResult& result, ValueCounts& to);

/// Elements of a value that an update continues.
struct StuckCounts {
  std::uint64_t moving = 0;  // whose result before rounding differs from what they were
  std::uint64_t stuck = 0;   // those of them that are stored as they were
  void merge(const StuckCounts& other) {
    moving += other.moving;
    stuck += other.stuck;
  }
};

/// Compares elements as `stored` and as they were `before`, in the same format, with the result before
/// rounding.
StuckCounts count_stuck(const kernels::Context& ctx, const graph::Argument& stored,
                        const graph::Argument& before, const graph::Argument& wide);

/// Adds the values of a factor of a product, after its rounding to `format`, and the errors of that.
void count_factor(const kernels::Context& ctx, const graph::Argument& factor, Scalar format, ValueCounts& to);

/// Adds the values of a copy of a weight, as stored, and the errors of rounding `master`, under the copy's
/// scale if it has one.
void count_weight(const kernels::Context& ctx, Matrix master, const graph::Argument& copy, ValueCounts& to);

/// A term of a sum: a product that its kernel rounds before it adds it.
struct CountedTerm {
  const graph::Argument* wide = nullptr;  // before rounding
  Scalar rounded = Scalar::f32;
  const graph::Argument* addend = nullptr;  // the other term
};

/// Adds the values of a term as it is added, the errors of its rounding, and the cancellation of the sum.
void count_term(const kernels::Context& ctx, const CountedTerm& term, ValueCounts& to);

/// Adds the values of the sum, which is `stored`, and the errors of its own rounding.
void count_sum(const kernels::Context& ctx, const CountedTerm& term, const graph::Argument& stored,
               ValueCounts& to);

/// Returns the errors of `values` against `exact`.
ErrorStats count_difference(const kernels::Context& ctx, const graph::Argument& exact,
                            const graph::Argument& values);

/// Returns the distribution of `count` elements times `factor`, dense.
Distribution count_distribution(const kernels::Context& ctx, std::int64_t count, ConstMatrix values,
                                double factor);

}  // namespace mantissa::runtime
