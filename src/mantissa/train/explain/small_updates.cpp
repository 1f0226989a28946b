#include "mantissa/train/explain/small_updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/engine/optim/groups.h"

namespace mantissa::explain {
namespace {

/// Returns the share of normal weights with this standard deviation that lose an update of size `update` in
/// format `s`: those whose neighbours are more than twice as far away.
double lost_share(double deviation, double update, Scalar s) {
  // The spacing is constant below twice the smallest normal number, and doubles at each power of two above.
  double from = std::ldexp(1.0, traits(s).min_normal_exp);
  if (ulp(from, s) > 2 * update) return 1;
  while (ulp(from, s) <= 2 * update) from *= 2;
  return std::erfc(from / deviation / std::sqrt(2.0));
}

/// Weights of one format with about the same magnitude.
struct Group {
  Scalar master = Scalar::f32;
  bool ones = false;
  double near = 0;  // the magnitude of the weights
  double lost = 0, tensors = 0;
  double update = 0;
  std::vector<std::string> names;
};

std::string text(const Group& g) {
  const std::string weights =
      g.names.size() == 1
          ? g.names.front()
          : fmt::format("{} {} such as {}", g.names.size(), g.ones ? "gains" : "weights", g.names.front());
  return fmt::format(
      "about {:.0f} % of the updates of {} will be lost: numbers in {} {} are {:.2g} apart, and a typical "
      "update at the highest learning rate is {:.2g}; keep these weights in f32 (--rule \"*: params=f32\"), "
      "or round stochastically (--set precision.rounding=stochastic)",
      100 * g.lost / g.tensors, weights, name(g.master),
      g.ones ? "just below 1" : fmt::format("near {:.2g}", g.near), ulp(g.near, g.master), g.update);
}

}  // namespace

std::vector<std::string> small_update_warnings(const config::RunConfig& config,
                                               const plan::Program& program) {
  const double typical = optim::find_optimizer(config.optimizer.name).typical_update;
  std::vector<Group> groups;
  for (const plan::Slot& slot : program.slots) {
    if (typical == 0 || slot.gradient == plan::kNoBuffer || bytes_of(slot.master) >= 4) continue;
    if (slot.init.kind == graph::Init::Kind::zeros || config.policy.compensates(slot.name)) continue;
    const precision::Use use{slot.name, "update", precision::Pass::update, 0};
    if (config.policy.resolve(use).rounding == Rounding::stochastic) continue;
    const optim::GroupSettings settings = optim::settings_of(config.optimizer.groups, slot.name);
    const double update = typical * config.optimizer.lr * settings.lr_scale;
    const bool ones = slot.init.kind == graph::Init::Kind::ones;
    // Below one, numbers are half as far apart as above it.
    const double lost = ones ? (ulp(0.75, slot.master) > 2 * update ? 1.0 : 0.0)
                             : lost_share(slot.init.std, update, slot.master);
    if (update == 0 || lost < 0.5) continue;
    const auto same = [&](const Group& g) {
      return g.master == slot.master && g.ones == ones && g.update == update;
    };
    auto group = std::ranges::find_if(groups, same);
    if (group == groups.end())
      group = groups.insert(group, {slot.master, ones, ones ? 0.75 : slot.init.std, 0, 0, update, {}});
    group->lost += lost;
    group->tensors += 1;
    group->names.push_back(slot.name);
  }
  std::vector<std::string> warnings;
  for (const Group& g : groups) warnings.push_back(text(g));
  return warnings;
}

}  // namespace mantissa::explain
