#include "mantissa/kernels/adamw.h"

#include <array>
#include <cmath>

#include "mantissa/kernels/expression.h"
#include "mantissa/kernels/formulas.h"

namespace mantissa::kernels {
namespace {

/// Calls use(sweep) with the sweep that `u` describes.
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

}  // namespace

void adamw(const Context& ctx, const AdamW& u) {
  with_sweep(u, [&](const Sweep& s) { sweep(ctx, s); });
}

std::optional<WeightOverflow> find_weight_overflow(const Context& ctx, const AdamW& u) {
  return with_sweep(u, [&](const Sweep& s) { return find_overflow(ctx, s, 0); });
}

}  // namespace mantissa::kernels
