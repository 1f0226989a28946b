// Decides if rounding alone explains the differences between two traces.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mantissa/files/convert/tensor_sets.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::lab {

/// The op of a trace whose difference is the largest relative to what rounding explains, or the first that
/// rounding does not explain.
///
/// Differences are relative: the root mean square of b − a over that of a. Rounding explains at most
///   4 · D + 2u + √(2K) · u_sum + exp(A · (D + 2u)) − 1
/// D: the largest difference before;
/// u: the unit roundoff of the coarsest format of values or operands so far; u_sum: that of sums; K: the
/// largest dimension so far, which bounds the terms of a sum. Sums of a card truncate to f bits: their u_sum
/// is 2^(1 - f), since errors in one direction do not cancel. Each side rounds an operand, an intermediate
/// result and an output: six errors, each at most u and at random, have a root mean square of √6 · u / √3 <
/// 2u. A random walk of K additions adds √K · u_sum on each side. The factor 4 leaves room for ops that
/// enlarge an error, such as products and gates; the largest growth measured is 2.3 (docs/laboratory.md).
///
/// If only the formats of sums differ, both sides round the same values until a sum differs. Values that
/// differ by d then round to different numbers of the format, which are up to 2u apart, with probability d /
/// 2u, a root mean square of √(2u · d). Of three roundings on a side that is √(6u · d), where d = 4 · D +
/// √(2K) · u_sum. It takes the place of 2u where it is smaller.
///
/// A is 0 except in attention, where an absolute error d of a score is a relative error exp(d) − 1 of its
/// probability, which exceeds d by 14 % at 2u of e5m2. Programs round scores to different formats, so their
/// errors, too, are relative errors of up to 2u. With scores of size S they become up to S · 2u. Sharp
/// scores, S > ln n for n rows, give nearly all weight to the largest score of a row. A row then changes only
/// if its two largest scores are within about 1, and of n random scores that is the share ln n / S of the
/// rows. So A = min(S, √(S ln n)), where S is the root mean square of what the log-sum-exp of a row's scores
/// exceeds ln n by, in magnitude. A trace of this program has the log-sum-exps. Without them A is 0.
///
/// The gradients of the weights are judged one by one, from the last weight to the first, by the same bound.
/// They depend on every op, so u and u_sum are then those of all formats and both policies.
/// The largest difference before then includes log_probs, whose absolute errors are relative errors of the
/// probabilities, and the gradients that rounding explains; A is the largest one of the forward pass. The
/// largest growth measured is 1.9. Without values of the forward pass, the bound begins with the differences
/// of logits and log_probs, which are not judged, or with 2u + √(2K) · u_sum if there are none.
///
/// The unit roundoff holds for normal numbers only. Below them, an error is absolute: up to η / 2, where η is
/// the smallest number of the format. A gradient dS of a score is a share of the loss of one token, which is
/// often smaller. The bound of the weights that compute the operands of an attention which rounds dS to a
/// format (a rule for op=softmax) therefore has another term, R = min(1, η / (2 s)), where s is the root mean
/// square of dS: an error of a number is at most the number. dq sums up to n terms dS · k at random, and dk
/// terms dS · q, so s is the root mean square of dq or dk, the smaller one, divided by √n and by that of k or
/// q, for which R takes the largest one of the forward values in that scope.
struct GradientVerdict {
  std::string name;      // "grad.model.norm.weight"
  bool explains = true;  // rounding alone explains the difference
  double difference = 0, allowance = 0;
  std::string unit;        // the format of u
  bool nonfinite = false;  // the tensor has an inf or NaN on one side
};

struct RoundingVerdict {
  bool forward = true;   // values of the forward pass were judged
  bool explains = true;  // all differences of these
  std::string name;      // the first tensor beyond rounding; otherwise the one closest to its allowance
  std::size_t not_compared = 0;  // values with other shapes, whose elements may have another order
  double difference = 0, allowance = 0;
  std::string unit;                             // the format of u
  bool nonfinite = false;                       // the tensor has an inf or NaN on one side
  std::string accumulators;                     // "f32 and h100" if only these formats differ, else ""
  std::vector<GradientVerdict> gradients = {};  // of all that differ, in the order of the trace

  /// Returns true if a difference is beyond rounding.
  bool fault() const;
  /// Returns the gradients that are beyond rounding.
  std::vector<const GradientVerdict*> faulty_gradients() const;
};

/// Returns the root mean square of b − a relative to that of a; 1 if only `a` is zero.
double relative_rms(const convert::ElementDifferences& elements);

/// Judges the comparable values of the forward pass, logits and log_probs in the order of `differences`, and
/// the gradients of weights. `a` and `b` give the formats of each op or, if one of them does not record them,
/// the policies, all formats of which then count from the beginning. Returns null if the traces have no
/// common values and no common gradients: without them, the growth of differences is unknown.
std::optional<RoundingVerdict> judge_rounding(const convert::TensorDifferences& differences,
                                              const io::WeightFiles& a, const io::WeightFiles& b);

/// Returns one sentence about the forward pass, and one about the gradients if any differ.
std::string to_text(const RoundingVerdict& verdict);

}  // namespace mantissa::lab
