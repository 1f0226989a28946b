// AdamW as a sweep over one parameter, with its memory given by pointers. For tests and benchmarks: training
// runs the same program as a node of its update graph (optim/adamw.cpp).
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/kernels/sweep.h"

namespace mantissa::kernels {

/// Operands of adamw_program(). Writes the master, the moments and, if present, the compensation and the
/// copy. Values stored in fewer bits than the arithmetic round by `rounding`; the weight, its two moments and
/// its compensation have separate random streams. The copy is the stored master, rounded to nearest.
struct AdamW {
  std::int64_t count = 0;
  void* master = nullptr;
  Scalar master_type = Scalar::f32;
  void* copy = nullptr;  // may be null
  Scalar copy_type = Scalar::f32;
  const void* gradient = nullptr;
  Scalar gradient_type = Scalar::f32;
  void* first_moment = nullptr;
  void* second_moment = nullptr;
  Scalar moment_type = Scalar::f32;
  void* compensation = nullptr;  // of master_type; may be null
  Rounding rounding = Rounding::nearest;
  Scalar arithmetic = Scalar::f64;  // the format of every operation's result; f64: no rounding
  RoundingKey key{};
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  double gradient_factor = 1;
  std::int64_t t = 1;  // number of the applied update, from 1
};
void adamw(const Context& ctx, const AdamW& u);

/// Returns the first weight that adamw(ctx, u) would store as inf or NaN, or null. Stores nothing.
std::optional<WeightOverflow> find_weight_overflow(const Context& ctx, const AdamW& u);

}  // namespace mantissa::kernels
