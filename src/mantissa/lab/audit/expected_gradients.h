// What rounding the operands of products explains of the error of each parameter's gradient.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "mantissa/engine/plan/program.h"

namespace mantissa::lab {

/// The expected error of a gradient. Squares are relative to the mean square of the gradient.
struct ExpectedError {
  double squares = 0;         // without the effect of errors of the logits on the loss
  double of_logits = 0;       // the squared error of the logits, relative to their mean square
  std::string coarsest = {};  // the format of the operands of the product that contributes most: "mxfp4"

  /// Returns the rms error of the gradient, relative to its rms. `amplification` is that of the logits.
  double error(double amplification) const;
};

/// Returns the rms error of rounding to a significand with `mantissa_bits` stored bits, relative to the rms
/// of the values: an error is uniform in an interval of 2^-m of the binade, and significands are spread
/// evenly by their logarithm, so their mean square is 3 / (2 ln 2). That is 2^-m / √(18 / ln 2).
double rounding_error(int mantissa_bits);

/// Returns the factor from a relative error of the logits to one of the gradient of the loss at a mean loss
/// of `loss` per token: p·S, where p = exp(−loss) is the probability of the target, and S = ln((V − 1)·p /
/// (1 − p)) is how much its logit exceeds the others. The gradient at the target is p − 1, and an error d of
/// its logit changes it by p·(1 − p)·d. Where the loss differs between tokens this is an upper estimate:
/// those that the model predicts have little part in the gradient. `loss` NaN: it is not a cross entropy, and
/// the factor is 1.
double amplification_of_logits(double loss, std::int64_t vocabulary);

/// Returns the expected error of the gradient of every slot, by its name. u² is the sum of the squared
/// rounding_error() of the operands of products, each at least that of bf16, because other values of the
/// step may be stored in so many bits.
///
/// The residual stream is a sum of n terms: the embedding, and the branches ("model.layers.3.mlp") in their
/// order. Each has about an equal part of the variance. A branch multiplies two functions of the stream
/// (the gate and its value, the weights of attention and its values), so it doubles the squared relative
/// error of the stream, and adds u² of its products:
///   e²(s) = e²(s − 1)·(1 − 1/s) + (2·e²(s − 1) + u²)/s after s terms.
/// The gradient of the stream is also a sum, from the loss down. A branch passes its error on, and adds u² of
/// its backward products and the error e² of the values with which it multiplies:
///   d²(r) = d²(r − 1) + (u² + e²)/r after r terms, d²(1) = u² of the head + (amplification · e of logits)².
/// The gradient of a parameter of a branch has d² of the stream's gradient, 2·e² of its branch's input and
/// u² of the products of the branch on its path.
std::map<std::string, ExpectedError> expected_gradient_errors(const plan::Program& program);

}  // namespace mantissa::lab
