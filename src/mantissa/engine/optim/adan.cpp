// Adan (Xie et al., 2022), as the authors' adan.py without its fused kernels: moments of the gradient g, of
// its change d = g − g' from the update before (0 at the first), and of the square of g + β2·d.
//   m = β1·m + (1 − β1)·g;  v = β2·v + (1 − β2)·d;  n = β3·n + (1 − β3)·(g + β2·d)²
//   w = (w − lr·(m/(1 − β1^t) + β2·v/(1 − β2^t)) / (√(n/(1 − β3^t)) + ε)) / (1 + lr·decay)
// The betas are shares that remain, as in the code; the paper's are 1 − β.
#include <cmath>

#include "mantissa/engine/optim/parameter_update.h"
#include "mantissa/engine/optim/rules.h"

namespace mantissa::optim {
namespace {

void update(ParameterUpdate& p) {
  const auto [beta1, beta2] = p.betas();
  const double beta3 = p.real("beta3"), scale = p.parameter().lr_scale, decay = p.parameter().weight_decay;
  const graph::ValueId first = p.state("first_moment"), squared = p.squares("square_moment"),
                       change = p.state("change_moment"), previous = p.state("previous_gradient");
  const auto number = [&](std::string_view name, std::function<double(const Progress&)> of) {
    return p.number(name, std::move(of));
  };
  const auto fixed = [&](std::string_view name, double value) {
    return number(name, [value](const Progress&) { return value; });
  };
  const auto rate = [&](std::string_view name, double beta, double factor) {
    return number(name, [=](const Progress& now) {
      return now.lr * scale * factor / (1 - std::pow(beta, static_cast<double>(now.t)));
    });
  };
  const auto after_first = number("after_first", [](const Progress& now) { return now.t > 1 ? 1.0 : 0.0; });

  Sweep s(p);
  const auto g = s.gradient();
  const auto d = s.mul(s.sub(g, s.read(previous)), s.read(after_first));
  const auto m = s.lerp(s.read(first), g, s.read(fixed("1-beta1", 1 - beta1)));
  const auto v = s.lerp(s.read(change), d, s.read(fixed("1-beta2", 1 - beta2)));
  const auto ahead = s.add(g, s.mul(d, s.read(fixed("beta2", beta2))));
  const auto n = s.lerp(s.read(squared), s.mul(ahead, ahead), s.read(fixed("1-beta3", 1 - beta3)));
  const auto correction = number("correction3", [beta3](const Progress& now) {
    return 1 - std::pow(beta3, static_cast<double>(now.t));
  });
  const auto size = s.add(s.sqrt(s.div(n, s.read(correction))), s.read(fixed("eps", p.real("eps"))));
  const auto step =
      s.add(s.mul(m, s.read(rate("rate1", beta1, 1))), s.mul(v, s.read(rate("rate2", beta2, beta2))));
  s.make(s.div(step, size), p.shape(), "step");
  s.write(first, m);
  s.write(change, v);
  s.write(squared, n);
  const graph::ValueId made = s.done().front();

  // (w − step)/(1 + lr·decay) = w − (step·k + w·(1 − k)) with k = 1/(1 + lr·decay).
  Sweep last(p);
  auto moved = last.read(made);
  if (decay != 0) {
    const auto keep = p.number(
        "keep", [=](const Progress& now) { return 1 / (1 + now.lr * scale * decay); }, 1.0);
    const auto lose = p.number(
        "lose", [=](const Progress& now) { return now.lr * scale * decay / (1 + now.lr * scale * decay); },
        0.0);
    moved = last.add(last.mul(moved, last.read(keep)), last.mul(last.weight(), last.read(lose)));
  }
  last.move_weight_undecayed(moved);
  last.write(previous, last.gradient());
  last.done();
}

}  // namespace

const Optimizer kAdan = {
    .name = "adan",
    .title = "Adan",
    .doc = "Nesterov momentum estimated from the change of the gradient",
    .settings =
        {{"betas", std::array{0.98, 0.92}, "decay of the moments of the gradient and of its change", 0, 1,
          false, true},
         {"beta3", 0.99, "decay of the second moment", 0, 1, false, true},
         {"eps", 1e-8, "added to the root of the second moment, after the bias correction", 0,
          std::numeric_limits<double>::infinity(), true},
         {"weight_decay", 0.0,
          "the weight is divided by 1 + lr·decay (a proximal step), on tensors of two or more dimensions",
          0}},
    .typical_update = 1,
    .update = update,
};

}  // namespace mantissa::optim
