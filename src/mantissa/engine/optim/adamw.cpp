// AdamW (Loshchilov and Hutter, 2019). kernels/formulas.h states the formula.
#include <cmath>

#include "mantissa/engine/optim/parameter_update.h"
#include "mantissa/engine/optim/rules.h"
#include "mantissa/kernels/formulas.h"

namespace mantissa::optim {

void update_by_adamw(ParameterUpdate& p) {
  using Now = const Progress&;
  p.set_label("adamw");
  const auto [beta1, beta2] = p.betas();
  const double eps = p.real("eps");
  const auto correction = [](double beta) {
    return [beta](Now now) { return 1 - std::pow(beta, static_cast<double>(now.t)); };
  };
  const auto fixed = [](double x) { return [x](Now) { return x; }; };
  const graph::ValueId first = p.state("first_moment"), second = p.squares("second_moment");
  // In the order of AdamWRow and AdamWNumber.
  std::vector<graph::ValueId> inputs = {p.weight(), p.gradient(), first, second};
  std::vector<graph::OutputSpec> outputs = {p.in_place(p.weight()), p.in_place(first), p.in_place(second)};
  const bool compensated = p.compensation().has_value();
  if (compensated) {
    inputs.push_back(*p.compensation());
    outputs.push_back(p.in_place(*p.compensation()));
  }
  inputs.insert(inputs.end(),
                {p.gradient_factor(), p.number("beta1", fixed(beta1)), p.number("1-beta1", fixed(1 - beta1)),
                 p.number("beta2", fixed(beta2)), p.number("1-beta2", fixed(1 - beta2)), p.lr(), p.decay(),
                 p.number("correction1", correction(beta1)), p.number("correction2", correction(beta2)),
                 p.number("eps", fixed(eps))});
  p.add_pass(kernels::adamw_program(compensated), std::move(inputs), outputs);
}

const Optimizer kAdamW = {
    .name = "adamw",
    .title = "AdamW",
    .doc = "Adam with decoupled weight decay",
    .settings = {{"betas", std::array{0.9, 0.95}, "decay of the first and second moment", 0, 1, false, true},
                 {"eps", 1e-8, "added to the root of the second moment, after the bias correction", 0,
                  std::numeric_limits<double>::infinity(), true},
                 {"weight_decay", 0.1,
                  "decoupled, multiplied by the learning rate, on tensors of two or more dimensions", 0}},
    .typical_update = 1,
    .update = update_by_adamw,
};

}  // namespace mantissa::optim
