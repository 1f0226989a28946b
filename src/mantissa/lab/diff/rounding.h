// Whether rounding alone explains the differences between two traces.
#pragma once

#include <optional>
#include <string>

#include "mantissa/convert/tensor_sets.h"
#include "mantissa/io/checkpoint.h"

namespace mantissa::lab {

/// The op of a trace whose difference is the largest relative to what rounding explains, or the first that
/// rounding does not explain.
///
/// Differences are relative: the root mean square of b − a over that of a. Rounding explains at most
///   (4 + A) · (the largest difference before) + (1 + A) · 2u + √(2K) · u_sum
/// u: the unit roundoff of the coarsest format of values or operands so far; u_sum: that of sums; K: the
/// largest dimension so far, which bounds the terms of a sum. Each side rounds an operand, an intermediate
/// result and an output: six errors, each at most u and at random, have a root mean square of √6 · u / √3 <
/// 2u. A random walk of K additions adds √K · u_sum on each side. The factor 4 leaves room for ops that
/// enlarge an error, such as products and gates; the largest growth measured is 2.3 (docs/laboratory.md).
///
/// A is 0 except in attention, where an absolute error of a score is a relative error of its probability.
/// Programs round scores to different formats, so their errors, too, are relative errors of up to 2u. With
/// scores of size S they become up to S · 2u. Sharp scores, S > ln n for n rows, give nearly all weight to
/// the largest score of a row. A row then changes only if its two largest scores are within about 1, and of n
/// random scores that is the share ln n / S of the rows. So A = min(S, √(S ln n)), where S is the root mean
/// square of what the log-sum-exp of a row's scores exceeds ln n by, in magnitude. A trace of this program
/// has the log-sum-exps. Without them A is 0.
struct RoundingVerdict {
  bool explains = true;  // all differences
  std::string name;      // the first tensor beyond rounding; otherwise the one closest to its allowance
  std::size_t not_compared = 0;  // values with other shapes, whose elements may have another order
  double difference = 0, allowance = 0;
  std::string unit;        // the format of u
  bool nonfinite = false;  // the tensor has an inf or NaN on one side
};

/// Judges the comparable values of the forward pass, logits and log_probs in the order of `differences`. `a`
/// and `b` give the policies. Returns null if the traces have no common values: without them, the growth of
/// differences is unknown.
std::optional<RoundingVerdict> judge_rounding(const convert::TensorDifferences& differences,
                                              const io::WeightFiles& a, const io::WeightFiles& b);

/// Returns one sentence.
std::string to_text(const RoundingVerdict& verdict);

}  // namespace mantissa::lab
