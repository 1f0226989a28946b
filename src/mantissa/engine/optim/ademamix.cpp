// AdEMAMix (Pagliardini et al., 2024): a fast and a slow average of the gradients.
//   m1 = β1·m1 + (1 − β1)·g;  m2 = β3(t)·m2 + (1 − β3(t))·g;  v = β2·v + (1 − β2)·g²
//   w = w·(1 − lr·decay) − lr·(m1/(1 − β1^t) + α(t)·m2) / (√(v/(1 − β2^t)) + ε)
// Over the first T updates, α(t) = α·t/T, and β3(t) rises from β1 so that its half-life does linearly:
//   β3(t) = exp(1 / ((1 − t/T)/ln β1 + (t/T)/ln β3)), the paper's f_β3.
#include <algorithm>
#include <cmath>

#include "mantissa/engine/optim/common_settings.h"
#include "mantissa/engine/optim/parameter_update.h"
#include "mantissa/engine/optim/rules.h"

namespace mantissa::optim {
namespace {

/// Returns the share of the warm-up of α and β3 that is complete at update t.
double risen(std::int64_t t, std::int64_t warmup) {
  return std::min(1.0, static_cast<double>(t) / static_cast<double>(warmup));
}

/// A decay of 0 has the logarithm −inf, and its reciprocal is the half-life 0.
double slow_decay(double beta1, double beta3, double share) {
  if (share >= 1) return beta3;
  return std::exp(1 / ((1 - share) / std::log(beta1) + share / std::log(beta3)));
}

void update(ParameterUpdate& p) {
  const auto [beta1, beta2] = p.betas();
  const double beta3 = p.real("beta3"), alpha = p.real("alpha");
  const std::int64_t own = p.whole("mix_warmup"), warmup = own > 0 ? own : p.facts().steps;
  const graph::ValueId fast = p.state("first_moment"), squared = p.squares("second_moment"),
                       slow = p.state("slow_moment");
  Sweep s(p);
  const auto number = [&](std::string_view name, std::function<double(const Progress&)> of) {
    return s.read(p.number(name, std::move(of)));
  };
  const auto fixed = [&](std::string_view name, double value) {
    return number(name, [value](const Progress&) { return value; });
  };
  const auto correction = [&](std::string_view name, double beta) {
    return number(name,
                  [beta](const Progress& now) { return 1 - std::pow(beta, static_cast<double>(now.t)); });
  };
  const auto g = s.gradient();
  const auto m1 = s.lerp(s.read(fast), g, fixed("1-beta1", 1 - beta1));
  const auto m2 = s.lerp(s.read(slow), g, number("1-beta3", [=, beta1 = beta1](const Progress& now) {
                           return 1 - slow_decay(beta1, beta3, risen(now.t, warmup));
                         }));
  const auto v = s.lerp(s.read(squared), s.mul(g, g), fixed("1-beta2", 1 - beta2));
  const auto mix = number("alpha", [=](const Progress& now) { return alpha * risen(now.t, warmup); });
  const auto direction = s.add(s.div(m1, correction("correction1", beta1)), s.mul(mix, m2));
  const auto size = s.add(s.sqrt(s.div(v, correction("correction2", beta2))), fixed("eps", p.real("eps")));
  s.write(fast, m1);
  s.write(squared, v);
  s.write(slow, m2);
  s.end_by_moving(s.mul(s.div(direction, size), s.read(p.lr())));
}

}  // namespace

const Optimizer kAdEmaMix = {
    .name = "ademamix",
    .title = "AdEMAMix",
    .doc = "AdamW with a second, slow average of the gradients",
    .settings = {{"betas", std::array{0.9, 0.999}, "decay of the first and second moment", 0, 1, false, true},
                 {"beta3", 0.9999, "AdEMAMix: decay of the slow moment; Adan: of the second moment", 0, 1,
                  false, true},
                 {"alpha", 5.0, "share of the slow moment in the step", 0},
                 {"mix_warmup", std::int64_t{0},
                  "updates in which alpha rises from 0 and beta3 from the first beta; 0: run.steps; 1: none",
                  0, 1e15},
                 {"eps", 1e-8, "added to the root of the second moment, after the bias correction", 0,
                  std::numeric_limits<double>::infinity(), true},
                 {"weight_decay", 0.0,
                  "decoupled, multiplied by the learning rate, on tensors of two or more dimensions", 0}},
    .typical_update = 1,
    .update = update,
};

}  // namespace mantissa::optim
