// AdamW as a sweep over one parameter, with its memory given by pointers, and one element of it in double.
// Training runs the same program as a node of its update graph (engine/optim/adamw.cpp).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

#include "mantissa/kernels/expression.h"
#include "mantissa/kernels/formulas.h"
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
/// Calls use(sweep) with the sweep of `u`.
template <class Use>
auto with_sweep(const AdamW& u, const Use& use) {
  const bool compensated = u.compensation != nullptr;
  const Scalar arithmetic = u.master_type == Scalar::f64 ? Scalar::f64 : Scalar::f32;
  const double t = static_cast<double>(u.t), decay = u.lr * u.weight_decay;
  const std::array<double, kAdamWNumbers> numbers = {u.gradient_factor,
                                                     u.beta1,
                                                     1 - u.beta1,
                                                     u.beta2,
                                                     1 - u.beta2,
                                                     u.lr,
                                                     compensated ? decay : 1 - decay,
                                                     1 - std::pow(u.beta1, t),
                                                     1 - std::pow(u.beta2, t),
                                                     u.eps};
  std::array<PointwiseInput, 5 + kAdamWNumbers> inputs = {{{u.master, u.master_type},
                                                           {u.gradient, u.gradient_type},
                                                           {u.first_moment, u.moment_type},
                                                           {u.second_moment, u.moment_type},
                                                           {u.compensation, u.master_type}}};
  const std::size_t rows = compensated ? 5 : 4;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    inputs[rows + i] = {&numbers[i], Scalar::f64, Broadcast::everywhere};
  const PointwiseOutput copy{u.copy, u.copy_type};
  const std::array<SweepOutput, 4> outputs = {
      {{u.master, u.master_type, u.rounding, RandomUse::rounding, {&copy, u.copy == nullptr ? 0U : 1U}},
       {u.first_moment, u.moment_type, u.rounding, RandomUse::first_moment},
       {u.second_moment, u.moment_type, u.rounding, RandomUse::second_moment},
       {u.compensation, u.master_type, u.rounding, RandomUse::compensation}}};
  const Expression& exact = adamw_program(compensated);
  const bool lowers = !holds(u.arithmetic, arithmetic);
  const Expression rounded = lowers ? lowered(exact, u.arithmetic) : Expression{};
  return use(Sweep{lowers ? rounded : exact, 1, u.count, std::span(inputs).first(rows + numbers.size()),
                   std::span(outputs).first(compensated ? 4 : 3), arithmetic, u.key});
}

inline void adamw(const Context& ctx, const AdamW& u) {
  with_sweep(u, [&](const Sweep& s) { sweep(ctx, s); });
}

/// Returns the first weight that adamw(ctx, u) would store as inf or NaN, or null. Stores nothing.
inline std::optional<WeightOverflow> find_weight_overflow(const Context& ctx, const AdamW& u) {
  return with_sweep(u, [&](const Sweep& s) { return find_overflow(ctx, s, 0); });
}

namespace reference {

struct AdamWElement {
  double w = 0, m = 0, v = 0;
};

/// Returns the element after the update with `gradient` and the hyperparameters of `u`, whose pointers are
/// unused.
inline AdamWElement adamw(const AdamW& u, AdamWElement e, double gradient) {
  const double t = static_cast<double>(u.t), g = gradient * u.gradient_factor;
  e.m = u.beta1 * e.m + (1 - u.beta1) * g;
  e.v = u.beta2 * e.v + (1 - u.beta2) * g * g;
  const double m = e.m / (1 - std::pow(u.beta1, t)), v = e.v / (1 - std::pow(u.beta2, t));
  e.w = e.w * (1 - u.lr * u.weight_decay) - u.lr * m / (std::sqrt(v) + u.eps);
  return e;
}

}  // namespace reference
}  // namespace mantissa::kernels
