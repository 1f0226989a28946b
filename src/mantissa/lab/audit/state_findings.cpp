// Findings of states of the optimizer that stay as they are: their changes are below half of the last place.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/quantities.h"
#include "mantissa/lab/audit/value_findings.h"
#include "mantissa/train/steps/health_watch.h"

namespace mantissa::lab {
namespace {

/// A state of all weights that store it in one format.
struct Stuck {
  std::string state;
  Scalar format = Scalar::f32;
  std::vector<std::string> weights = {};
  double stuck = 0, moving = 0;  // elements, over the steps
  const ValueSeries* worst = nullptr;
  double worst_share = 0;
  std::int64_t first = 0;
};

/// Returns the decay of the second moment at which a change of its own size is 8 times half of the last place
/// at most: half of the last place of a format with m stored bits is at most 2^-(m + 1) of the value.
double faster_decay(Scalar format) {
  return 1 - std::ldexp(1.0, 2 - traits(format).mantissa_bits);
}

Finding finding_of(const Stuck& s, const config::RunConfig& config) {
  Finding f;
  f.kind = "rounded_away";
  f.scope = s.worst->scope;
  f.op = "update";
  f.pass = "update";
  f.step = s.first;
  f.share = s.stuck / s.moving;
  f.severity = severity_of(f.kind, f.share);
  f.evidence = {{"stuck", f.share}, {"worst_share", s.worst_share}};
  f.rule = (s.weights.size() == 1 ? s.worst->scope : std::string("*")) + ": optimizer=f32";
  f.text = fmt::format(
      "{} of the changes of the optimizer's state {} of {} are lost: they are below half of the last place "
      "of {}",
      percent_text(f.share), s.state,
      s.weights.size() == 1
          ? s.weights.front()
          : fmt::format("{} ({})", counted(s.weights.size(), "weight"), train::patterns_of(s.weights)),
      name(s.format));
  const auto betas = config.optimizer.settings.find("betas");
  if (s.state == "second_moment" && betas != config.optimizer.settings.end()) {
    const auto* pair = std::get_if<std::array<double, 2>>(&betas->second);
    if (pair != nullptr && (*pair)[1] > faster_decay(s.format)) {
      f.text += fmt::format(", and 1 - beta2 is {:.2g}", 1 - (*pair)[1]);
      f.more = {{"--set", fmt::format("optimizer.betas=[{:g},{:g}]", (*pair)[0], faster_decay(s.format))}};
    }
  }
  f.more.push_back({"--set", "precision.rounding=stochastic"});
  return f;
}

}  // namespace

void find_stuck_states(const Audit& audit, const config::RunConfig& config, const Thresholds& t,
                       std::vector<Finding>& found) {
  std::vector<Stuck> states;
  for (const ValueSeries& v : audit.values) {
    if (v.field != "optimizer" || v.pass != "update") continue;
    double stuck = 0, moving = 0;
    std::int64_t first = 0;
    std::size_t times = 0;
    for (const ValueStep& s : v.steps) {
      const precision::Use use{v.scope, "update", precision::Pass::update, s.step - 1};
      if (!s.stuck || !s.moving || config.policy.resolve(use).rounding == Rounding::stochastic) continue;
      stuck += *s.stuck * static_cast<double>(v.elements);
      moving += *s.moving * static_cast<double>(v.elements);
      if (!(*s.stuck > t.updates_lost * *s.moving)) continue;
      ++times;
      if (first == 0) first = s.step;
    }
    const bool often =
        v.steps.size() <= 2 ? times > 0 : times >= std::max<std::size_t>(2, v.steps.size() / 4);
    if (!often || stuck <= t.updates_lost * moving) continue;
    const auto same = [&](const Stuck& s) { return s.state == v.name && s.format == v.rounded; };
    auto state = std::ranges::find_if(states, same);
    if (state == states.end()) state = states.insert(state, Stuck{.state = v.name, .format = v.rounded});
    state->weights.push_back(v.scope);
    state->stuck += stuck;
    state->moving += moving;
    state->first = state->first == 0 ? first : std::min(first, state->first);
    if (stuck / moving > state->worst_share) state->worst = &v, state->worst_share = stuck / moving;
  }
  for (const Stuck& state : states) found.push_back(finding_of(state, config));
}

}  // namespace mantissa::lab
