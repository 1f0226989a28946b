#include "mantissa/optim/adamw.h"

#include <algorithm>
#include <cmath>

#include "mantissa/kernels/update.h"

namespace mantissa::optim {
namespace {

kernels::GradientNorm norm_of_all(const kernels::Context& ctx, std::span<const Parameter> parameters) {
  kernels::GradientNorm all;
  for (const Parameter& p : parameters) {
    const kernels::GradientNorm one = kernels::gradient_norm(ctx, p.gradient.data, p.gradient.type, p.count);
    all.sum_of_squares += one.sum_of_squares;
    all.finite = all.finite && one.finite;
  }
  return all;
}

}  // namespace

bool may_break_weights(Scalar master, Scalar arithmetic) {
  return traits(master).exponent_bits < traits(Scalar::f32).exponent_bits || !holds(arithmetic, Scalar::f32);
}

StepResult adamw_step(const kernels::Context& ctx, std::span<const Parameter> parameters,
                      const AdamWOptions& options, double lr, std::int64_t t, double loss_scale,
                      std::int64_t step) {
  const kernels::GradientNorm all = norm_of_all(ctx, parameters);
  StepResult result{std::sqrt(all.sum_of_squares) / loss_scale, all.finite};
  if (!all.finite) return result;
  const double clip =
      options.max_grad_norm > 0 ? std::min(1.0, options.max_grad_norm / (result.gradient_norm + 1e-6)) : 1.0;
  std::vector<kernels::AdamW> updates;
  for (const Parameter& p : parameters) {
    kernels::AdamW& u = updates.emplace_back();
    u.count = p.count;
    u.master = p.master.data;
    u.master_type = p.master.type;
    if (!p.copies.empty()) {
      u.copy = p.copies[0].data;
      u.copy_type = p.copies[0].type;
    }
    u.gradient = p.gradient.data;
    u.gradient_type = p.gradient.type;
    u.first_moment = p.first_moment.data;
    u.second_moment = p.second_moment.data;
    u.moment_type = p.first_moment.type;
    u.compensation = p.compensation.data;
    u.rounding = p.rounding;
    u.arithmetic = p.arithmetic;
    u.key = {options.seed, static_cast<std::uint64_t>(step), p.name_hash};
    u.lr = lr;
    u.beta1 = options.beta1;
    u.beta2 = options.beta2;
    u.eps = options.eps;
    u.weight_decay = p.decays ? options.weight_decay : 0;
    u.gradient_factor = clip / loss_scale;
    u.t = t;
    if (!may_break_weights(u.master_type, u.arithmetic)) continue;
    result.overflow = kernels::find_weight_overflow(ctx, u);
    result.parameter = updates.size() - 1;
    if (result.overflow) return result;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    kernels::adamw(ctx, updates[i]);
    for (std::size_t c = 1; c < p.copies.size(); ++c) {
      kernels::cast(ctx, p.count, p.master.data, p.master.type, p.copies[c].data, p.copies[c].type);
    }
  }
  return result;
}

}  // namespace mantissa::optim
