// Stochastic gradient descent with momentum, as torch.optim.SGD: weight decay is added to the gradient, and
// the momentum's first value is the gradient (dampening 0). b = momentum·b + g; w = w − lr·b, or with
// nesterov w − lr·(g + momentum·b).
#include "mantissa/core/base/error.h"
#include "mantissa/engine/optim/parameter_update.h"
#include "mantissa/engine/optim/rules.h"

namespace mantissa::optim {
namespace {

void check(const Settings& settings) {
  if (std::get<bool>(settings.at("nesterov")) && std::get<double>(settings.at("momentum")) == 0)
    throw ConfigError("optimizer.nesterov = true needs a momentum; set optimizer.momentum, such as 0.9");
}

void update(ParameterUpdate& p) {
  const double momentum = p.real("momentum"), decay = p.parameter().weight_decay;
  Sweep s(p);
  auto direction = s.gradient();
  if (decay != 0) {
    const auto factor = s.read(p.number("weight_decay", [decay](const Progress&) { return decay; }));
    direction = s.add(direction, s.mul(s.weight(), factor));
  }
  if (momentum != 0) {
    const auto factor = s.read(p.number("momentum", [momentum](const Progress&) { return momentum; }));
    const graph::ValueId buffer = p.state("momentum");
    const auto moved = s.add(s.mul(s.read(buffer), factor), direction);
    direction = p.flag("nesterov") ? s.add(direction, s.mul(moved, factor)) : moved;
    s.write(buffer, moved);
  }
  s.move_weight_undecayed(s.mul(direction, s.read(p.lr())));
  s.done();
}

}  // namespace

const Optimizer kSgd = {
    .name = "sgd",
    .title = "SGD",
    .doc = "stochastic gradient descent with momentum",
    .settings = {{"momentum", 0.0, "decay of the momentum", 0, 1, false, true},
                 {"nesterov", false, "Nesterov momentum"},
                 {"weight_decay", 0.0,
                  "added to the gradient, multiplied by the weight, on tensors of two or more dimensions",
                  0}},
    .check = check,
    .update = update,
};

}  // namespace mantissa::optim
