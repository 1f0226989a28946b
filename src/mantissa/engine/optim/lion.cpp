// Lion (Chen et al., 2023): w = w·(1 − lr·decay) − lr·sign(β1·m + (1 − β1)·g); m = β2·m + (1 − β2)·g.
#include "mantissa/engine/optim/parameter_update.h"
#include "mantissa/engine/optim/rules.h"

namespace mantissa::optim {
namespace {

void update(ParameterUpdate& p) {
  const auto [beta1, beta2] = p.betas();
  const auto fixed = [&](std::string_view name, double x) {
    return p.number(name, [x](const Progress&) { return x; });
  };
  const graph::ValueId moment = p.state("first_moment");
  Sweep s(p);
  const auto g = s.gradient(), m = s.read(moment);
  const auto mixed = [&](graph::ValueId beta, graph::ValueId rest) {
    return s.add(s.mul(m, s.read(beta)), s.mul(g, s.read(rest)));
  };
  const auto direction = s.sign(mixed(fixed("beta1", beta1), fixed("1-beta1", 1 - beta1)));
  const auto next = mixed(fixed("beta2", beta2), fixed("1-beta2", 1 - beta2));
  s.move_weight(s.mul(direction, s.read(p.lr())));
  s.write(moment, next);
  s.done();
}

}  // namespace

const Optimizer kLion = {
    .name = "lion",
    .title = "Lion",
    .doc = "sign of an interpolated momentum, with decoupled weight decay",
    .settings = {{"betas", std::array{0.9, 0.99},
                  "decay of the momentum in the step and in the update of the momentum", 0, 1, false, true},
                 {"weight_decay", 0.0,
                  "decoupled, multiplied by the learning rate, on tensors of two or more dimensions", 0}},
    .typical_update = 1,
    .update = update,
};

}  // namespace mantissa::optim
