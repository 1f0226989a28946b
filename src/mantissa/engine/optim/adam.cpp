// Adam (Kingma and Ba, 2015), as torch.optim.Adam: weight decay is added to the gradient, so the moments
// contain it. g = g + decay·w; m = β1·m + (1 − β1)·g; v = β2·v + (1 − β2)·g²;
// w = w − lr·(m/c1) / (√(v/c2) + ε) with c1 = 1 − β1^t and c2 = 1 − β2^t.
#include <cmath>

#include "mantissa/engine/optim/parameter_update.h"
#include "mantissa/engine/optim/rules.h"

namespace mantissa::optim {
namespace {

void update(ParameterUpdate& p) {
  const auto [beta1, beta2] = p.betas();
  const double decay = p.parameter().weight_decay;
  Sweep s(p);
  const auto fixed = [&](std::string_view name, double x) {
    return s.read(p.number(name, [x](const Progress&) { return x; }));
  };
  const auto correction = [&](std::string_view name, double beta) {
    return s.read(p.number(
        name, [beta](const Progress& now) { return 1 - std::pow(beta, static_cast<double>(now.t)); }));
  };
  auto g = s.gradient();
  if (decay != 0) g = s.add(g, s.mul(s.weight(), fixed("weight_decay", decay)));
  const graph::ValueId first = p.state("first_moment"), second = p.squares("second_moment");
  const auto m = s.add(s.mul(s.read(first), fixed("beta1", beta1)), s.mul(g, fixed("1-beta1", 1 - beta1)));
  const auto v =
      s.add(s.mul(s.read(second), fixed("beta2", beta2)), s.mul(s.mul(g, g), fixed("1-beta2", 1 - beta2)));
  const auto size = s.add(s.sqrt(s.div(v, correction("correction2", beta2))), fixed("eps", p.real("eps")));
  const auto step = s.mul(s.div(m, correction("correction1", beta1)), s.read(p.lr()));
  s.move_weight_undecayed(s.div(step, size));
  s.write(first, m);
  s.write(second, v);
  s.done();
}

}  // namespace

const Optimizer kAdam = {
    .name = "adam",
    .title = "Adam",
    .doc = "Adam with weight decay added to the gradient",
    .settings = {{"betas", std::array{0.9, 0.999}, "decay of the first and second moment", 0, 1, false, true},
                 {"eps", 1e-8, "added to the root of the second moment, after the bias correction", 0,
                  std::numeric_limits<double>::infinity(), true},
                 {"weight_decay", 0.0,
                  "added to the gradient, multiplied by the weight, on tensors of two or more dimensions",
                  0}},
    .typical_update = 1,
    .update = update,
};

}  // namespace mantissa::optim
