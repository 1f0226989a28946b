// AdamW as a sweep over one parameter whose memory is given by pointers: what is measured and tested by
// itself. Training runs the same program as a node of its update graph (optim/adamw.cpp).
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/kernels/sweep.h"

namespace mantissa::kernels {

/// Operands of adamw_program(). Writes the master, the moments and, where there are some, the compensation
/// and the copy. What is stored in fewer bits than the arithmetic is rounded as `rounding` says, with a
/// stream of random bits each for the weight, its two moments and its compensation; the copy is the stored
/// master, rounded to nearest.
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
  Scalar arithmetic = Scalar::f64;  // what the result of every operation is rounded to; f64: not at all
  RoundingKey key{};
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  double gradient_factor = 1;
  std::int64_t t = 1;  // of applied updates, from 1
};
void adamw(const Context& ctx, const AdamW& u);

/// The first weight that adamw(ctx, u) would store as inf or nan. Stores nothing.
std::optional<WeightOverflow> find_weight_overflow(const Context& ctx, const AdamW& u);

}  // namespace mantissa::kernels
