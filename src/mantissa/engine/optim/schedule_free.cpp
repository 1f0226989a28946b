// Schedule-free AdamW (Defazio et al., 2024), as AdamWScheduleFree of the package schedulefree with r = 0 and
// weight_lr_power = 2. The gradient is that at the weight y; z is the sequence that AdamW moves, and x its
// average, the weights for evaluation:
//   v = β2·v + (1 − β2)·g²;  u = g / (√(v/(1 − β2^t)) + ε) + decay·y
//   z = z − lr·u;  x = x + c·(z − x);  y = z + β1·(x − z),  c = lr_t² / Σ lr_i² over the updates i ≤ t.
// The package keeps y and z, and computes x from them; here x and z are states and y follows from them, so
// rounding y to the format of the weights never accumulates, and it needs no compensation.
#include <cmath>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/optim/common_settings.h"
#include "mantissa/engine/optim/parameter_update.h"
#include "mantissa/engine/optim/rules.h"

namespace mantissa::optim {
namespace {

void check(const Settings& settings) {
  if (std::get<double>(settings.at(std::string(kEmaDecay))) != 0) {
    throw ConfigError(
        "optimizer.ema_decay: expected 0 with \"schedule-free-adamw\", which has an average of its own. Fix: "
        "remove the key");
  }
  if (facts_of(settings).constant_rate) return;
  throw ConfigError(
      "\"schedule-free-adamw\" needs a constant learning rate after the warm-up, because its average takes the "
      "place of the decay, and no [[run.stage]]. Fix: --set schedule.name=constant, and remove the stages");
}

/// Returns the weight of update t in the average, for a rate that rises in `warmup` equal steps and then
/// stays. The rate itself cancels: Σ i² over i ≤ n is n·(n + 1)·(2n + 1)/6.
double share(std::int64_t t, std::int64_t warmup) {
  const double n = static_cast<double>(t), w = static_cast<double>(warmup);
  if (t <= warmup) return 6 * n / ((n + 1) * (2 * n + 1));
  const double rising = warmup == 0 ? 0 : (w + 1) * (2 * w + 1) / (6 * w);
  return 1 / (rising + (n - w));
}

void update(ParameterUpdate& p) {
  const auto [beta1, beta2] = p.betas();
  const double decay = p.parameter().weight_decay, scale = p.parameter().lr_scale;
  const graph::ValueId average = p.average(), base = p.weight_state("base"),
                       second = p.squares("second_moment");
  Sweep s(p);
  const auto number = [&](std::string_view name, std::function<double(const Progress&)> of) {
    return s.read(p.number(name, std::move(of)));
  };
  const auto y = s.weight();  // also without decay: an update reads what it replaces
  const auto g = s.gradient(), x = s.read(average), z = s.read(base), v = s.read(second);
  const auto squares =
      s.lerp(v, s.mul(g, g), number("1-beta2", [beta2 = beta2](const Progress&) { return 1 - beta2; }));
  const auto correction = number("correction2", [beta2 = beta2](const Progress& now) {
    return 1 - std::pow(beta2, static_cast<double>(now.t));
  });
  const auto eps = number("eps", [eps = p.real("eps")](const Progress&) { return eps; });
  const auto size = s.add(s.sqrt(s.div(squares, correction)), eps);
  auto moved = s.sub(z, s.mul(s.div(g, size), s.read(p.lr())));
  if (decay != 0) {
    const auto shrink = s.read(p.number(
        "lr*decay", [=](const Progress& now) { return now.lr * scale * decay; }, 0.0));
    moved = s.sub(moved, s.mul(y, shrink));
  }
  const std::int64_t warmup = p.facts().warmup_steps;
  const auto mean =
      s.lerp(x, moved, number("share", [warmup](const Progress& now) { return share(now.t, warmup); }));
  s.write(p.weight(),
          s.lerp(moved, mean, number("beta1", [beta1 = beta1](const Progress&) { return beta1; })));
  s.write(average, mean);
  s.write(base, moved);
  s.write(second, squares);
  s.done();
}

}  // namespace

const Optimizer kScheduleFreeAdamW = {
    .name = "schedule-free-adamw",
    .title = "Schedule-free AdamW",
    .doc = "AdamW whose average of the weights takes the place of a decaying learning rate",
    .settings =
        {{"betas", std::array{0.9, 0.999},
          "share of the average in the weights where gradients are computed; decay of the second moment", 0,
          1, false, true},
         {"eps", 1e-8, "added to the root of the second moment, after the bias correction", 0,
          std::numeric_limits<double>::infinity(), true},
         {"weight_decay", 0.0,
          "decoupled, multiplied by the learning rate, on tensors of two or more dimensions", 0}},
    .typical_update = 1,
    .check = check,
    .update = update,
};

}  // namespace mantissa::optim
