// AdamW over master weights: norm and finite check of all gradients first, then one sweep that clips,
// updates, and writes the copies in lower formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/kernels/adamw.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/update.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double max_grad_norm = 1.0;  // 0: gradients are not clipped
  std::uint64_t seed = 0;      // of stochastic rounding
};

/// One parameter's memory. All of `count` elements; `copies` may be empty, `compensation` without data.
struct Parameter {
  std::int64_t count = 0;
  bool decays = true;  // weight decay acts on tensors of two or more dimensions only
  Matrix master;
  std::vector<Matrix> copies;
  Matrix gradient;
  Matrix first_moment;
  Matrix second_moment;
  Matrix compensation;                    // what updates lost in rounding the master, in its format
  Rounding rounding = Rounding::nearest;  // of masters and moments below the arithmetic's format
  Scalar arithmetic = Scalar::f64;        // below the master's own: what every operation is rounded to
  std::uint64_t name_hash = 0;            // hash_name() of its name: a key of stochastic rounding
};

/// Whether an update may make a weight inf or nan that was finite: where its format has fewer bits of
/// exponent than f32, or a lowered arithmetic may lose its divisor.
bool may_break_weights(Scalar master, Scalar arithmetic);

struct StepResult {
  double gradient_norm = 0;  // unscaled, before clipping
  bool finite = true;        // all gradients are; if not, nothing was changed
  /// A weight that the update would make inf or nan, and whose it is; nothing was changed then. Sought where
  /// it may.
  std::optional<kernels::WeightOverflow> overflow{};
  std::size_t parameter = 0;
};

/// One update. `t`: of applied updates, from 1. `loss_scale`: what the gradients were multiplied by. `step`:
/// of attempted updates, a key of stochastic rounding. Order: finite check and norm of all gradients → if not
/// finite nothing is changed → clip by min(1, c / (norm + 1e-6)) → would all weights that may break stay
/// finite? → sweep.
StepResult adamw_step(const kernels::Context& ctx, std::span<const Parameter> parameters,
                      const AdamWOptions& options, double lr, std::int64_t t, double loss_scale = 1,
                      std::int64_t step = 0);

}  // namespace mantissa::optim
