#include "mantissa/train/steps/health_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "mantissa/core/base/quantities.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/precision/policy/glob.h"

namespace mantissa::train {
namespace {

std::string pattern_of(std::string_view name) {
  std::string pattern;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    const std::string_view part = name.substr(at, dot - at);
    const bool number =
        !part.empty() && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c); });
    pattern += fmt::format("{}{}", at == 0 ? "" : ".", number ? "*" : part);
    at = dot + 1;
  }
  return pattern;
}

/// Returns the names, each once, with a pattern in place of those that have one of several layers in `among`.
std::vector<std::string> grouped(const std::vector<std::string>& names,
                                 const std::vector<std::string>& among) {
  std::map<std::string, int> layers;
  for (const std::string& name : among) ++layers[pattern_of(name)];
  std::vector<std::string> groups;
  for (const std::string& name : names) {
    std::string pattern = pattern_of(name);
    const std::string& group = layers[pattern] > 1 ? pattern : name;
    if (std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

std::string listed(std::vector<std::string> names) {
  constexpr std::size_t kMost = 4;
  const std::size_t more = names.size() > kMost ? names.size() - kMost : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

/// Returns the arguments that give every parameter in `names` f32 in `field`: one rule for all layers if a
/// parameter of another layer is in `alike` too.
std::vector<std::string> rules_for(const std::vector<std::string>& names, std::string_view field,
                                   const std::vector<std::string>& alike) {
  std::vector<std::string> scopes, arguments;
  for (const std::string& name : grouped(names, alike)) {
    std::string scope(precision::rule_scope(name));
    if (std::ranges::find(scopes, scope) == scopes.end()) scopes.push_back(std::move(scope));
  }
  constexpr std::size_t kMost = 3;
  if (scopes.size() > kMost) scopes = {"*"};
  for (const std::string& scope : scopes) {
    arguments.emplace_back("--rule");
    arguments.push_back(fmt::format("{}: {}=f32", scope, field));
  }
  return arguments;
}

std::vector<std::string> started_over(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "--overwrite");
  return arguments;
}

}  // namespace

std::string patterns_of(const std::vector<std::string>& names) {
  std::vector<std::string> patterns;
  for (const std::string& name : names) {
    const std::string pattern = pattern_of(name);
    if (std::ranges::find(patterns, pattern) == patterns.end()) patterns.push_back(pattern);
  }
  return listed(std::move(patterns));
}

std::string HealthWatch::who(const Found& f) {
  const std::string_view one = f.vectors ? "vector" : "matrix", many = f.vectors ? "vectors" : "matrices";
  if (f.names.size() == 1) return fmt::format("the {} {}", one, f.names.front());
  return fmt::format("the {} {} {}", f.names.size(), many, listed(grouped(f.names, f.names)));
}

HealthWatch::Found& HealthWatch::add(std::vector<Found>& found, const runtime::ParameterHealth& p,
                                     double share) const {
  const Scalar arithmetic = policy_.update_arithmetic(use_of(p.name)).value_or(policy_.arithmetic());
  const auto same = [&](const Found& f) {
    return f.master == p.master && f.arithmetic == arithmetic && f.vectors == p.vector;
  };
  auto group = std::ranges::find_if(found, same);
  if (group == found.end()) {
    group = found.insert(group, Found{});
    group->master = p.master;
    group->arithmetic = arithmetic;
    group->vectors = p.vector;
  }
  group->names.push_back(p.name);
  if (share > group->worst_share) {
    group->worst = p.name;
    group->worst_share = share;
  }
  return *group;
}

std::vector<std::string> HealthWatch::with_format(Scalar master) const {
  std::vector<std::string> names;
  for (const Sums& s : at_.parameters) {
    if (s.last.master == master) names.push_back(s.last.name);
  }
  return names;
}

HealthFinding HealthWatch::finding(const Found& f, std::string kind, std::string op, std::string pass,
                                   std::string text, std::vector<Cure> cures) const {
  return {std::move(kind), std::move(op), std::move(pass),
          f.worst,         f.part / f.of, {std::move(text), std::move(cures)},
          f.worst_share,   f.absmax,      f.gradient,
          at_.lr,          at_.first,     at_.last,
          f.master,        f.arithmetic,  f.vectors,
          f.names};
}

template <class Loss, class Limit>
std::vector<HealthWatch::Found> HealthWatch::above(const Loss& loss, const Limit& limit) const {
  std::vector<Found> found;
  for (const Sums& s : at_.parameters) {
    const double share = loss(s) / static_cast<double>(s.steps);
    if (share <= limit(s)) continue;
    Found& f = add(found, s.last, share);
    f.part += share * static_cast<double>(s.last.elements);
    f.of += static_cast<double>(s.last.elements);
    f.absmax = std::max(f.absmax, s.last.weight_absmax);
    f.gradient = std::max(f.gradient, s.last.grad_absmax);
  }
  return found;
}

precision::Use HealthWatch::use_of(const std::string& name) const {
  return {name, "update", precision::Pass::update, std::max<std::int64_t>(at_.first, 1) - 1};
}

void HealthWatch::see(const StepReport& step, const PartNumber& place) {
  if (step.health.empty()) return;
  if (parts_.empty() || parts_.back().place != place) parts_.push_back({.place = place, .first = step.step});
  double highest = 0;
  for (const PartSums& part : parts_) {
    if (part.place.stage == place.stage) highest = std::max(highest, part.lr);
  }
  for (PartSums& part : parts_) {
    // Earlier measurements of the stage were at less than half of this rate.
    if (part.place.stage != place.stage || !(step.lr > 2 * highest)) continue;
    for (Sums& s : part.parameters) s.lost = s.moving = 0;
  }
  PartSums& part = parts_.back();
  part.last = step.step;
  part.lr = std::max(part.lr, step.lr);
  const bool high = step.lr >= std::max(highest, step.lr) / 2;
  std::vector<Sums>& parameters = part.parameters;
  for (const runtime::ParameterHealth& p : step.health) {
    auto sums = std::ranges::find_if(parameters, [&](const Sums& s) { return s.last.name == p.name; });
    if (sums == parameters.end()) sums = parameters.insert(sums, Sums{});
    sums->last = p;
    const auto elements = static_cast<double>(p.elements);
    if (high) {
      // Under `kahan` an update is lost if neither the weight nor its compensation keeps it: at least this
      // share.
      const double lost =
          p.compensation_stayed ? std::max(0.0, p.updates_lost + *p.compensation_stayed - 1) : p.updates_lost;
      sums->lost += lost * elements;
      sums->moving += (1 - p.updates_zero) * elements;
    }
    sums->flushed += p.grads_flushed;
    sums->saturated += p.grads_saturated;
    sums->reduce_flushed += p.reduce_flushed.value_or(0);
    sums->reduce_saturated += p.reduce_saturated.value_or(0);
    sums->beyond += p.saturated.value_or(0);
    // A delayed scale without a history is 1, and fits no weights.
    if (p.scale != 1) sums->vanished += p.vanished.value_or(0);
    ++sums->steps;
  }
}

std::vector<HealthFinding> HealthWatch::findings() {
  std::vector<HealthFinding> all;
  for (const PartSums& part : parts_) {
    at_ = part;
    std::vector<HealthFinding> said;
    find_lost(said);
    find_gradients(said);
    find_saturated(said);
    find_vanished(said);
    for (HealthFinding& f : said) {
      f.first = part.first;
      f.last = part.last;
      if (parts_.size() > 1 && part.first < part.last)
        f.warning.text += fmt::format("; in steps {} to {}", part.first, part.last);
      else if (parts_.size() > 1)
        f.warning.text += fmt::format("; in step {}", part.first);
      const auto same = std::ranges::find_if(all, [&](const HealthFinding& o) {
        return o.kind == f.kind && o.op == f.op && o.pass == f.pass && o.master == f.master &&
               o.arithmetic == f.arithmetic && o.vectors == f.vectors;
      });
      if (same == all.end()) {
        all.push_back(std::move(f));
      } else if (f.share > same->share) {
        *same = std::move(f);
      }
    }
  }
  return all;
}

void HealthWatch::find_lost(std::vector<HealthFinding>& said) const {
  std::vector<Found> found;
  for (const Sums& s : at_.parameters) {
    const runtime::ParameterHealth& p = s.last;
    // Stochastic rounding loses most small updates and moves the others by more.
    if (policy_.resolve(use_of(p.name)).rounding == Rounding::stochastic) continue;
    if (policy_.compensates(p.name) && !p.compensation_stayed) continue;
    if (s.moving == 0 || s.lost / s.moving <= limits_.updates_lost) continue;
    Found& f = add(found, p, s.lost / s.moving);
    f.part += s.lost;
    f.of += s.moving;
    f.absmax = std::max(f.absmax, p.weight_absmax);
    f.gradient = std::max(f.gradient, p.grad_absmax);
    if (p.never_moved) {
      f.never += *p.never_moved * static_cast<double>(p.elements);
      f.counted += static_cast<double>(p.elements);
    }
  }
  for (const Found& f : found) {
    std::string text = fmt::format("{} of the updates of {} were lost", percent_text(f.part / f.of), who(f));
    if (f.counted > 0)
      text += fmt::format(", and {} of the elements equal those at the start of the run",
                          percent_text(f.never / f.counted));
    const bool lowered =
        !holds(f.arithmetic, f.master);  // the update computes in fewer bits than the weight has
    const Scalar format = lowered ? f.arithmetic : f.master;
    const double spacing = ulp(f.absmax, format);
    text += fmt::format(": {}numbers in {} near {:.2g} are {:.2g} apart, and ",
                        lowered ? fmt::format("a rule computes the update in {}, ", name(format)) : "",
                        name(format), f.absmax, spacing);
    // Adaptive optimizers take steps of about the learning rate, unless gradients are small beside their eps.
    text += at_.lr < spacing
                ? fmt::format("the learning rate is {:.2g}", at_.lr)
                : fmt::format(
                      "updates are smaller although the learning rate is {:.2g}: the largest gradient "
                      "is {:.2g}",
                      at_.lr, f.gradient);
    std::vector<Cure> cures = {{started_over(rules_for(f.names, "params", with_format(f.master)))},
                               {started_over({"--set", "precision.rounding=stochastic"})},
                               {started_over({"--set", "precision.kahan=true"})}};
    if (lowered) {
      cures = {{started_over({"--rule", R"({match = "*", op = "update", compute = "f32"})"})}};
    } else if (bytes_of(f.master) >= 4)
      cures = {{started_over({"--set", fmt::format("optimizer.lr={:g}", at_.lr * 100)})}};
    said.push_back(finding(f, "rounded_away", "update", "update", std::move(text), std::move(cures)));
  }
}

void HealthWatch::find_gradients(std::vector<HealthFinding>& said) const {
  const auto say = [&](const Found& f, const char* kind, std::string_view what) {
    said.push_back(
        finding(f, kind, "gradient", "backward",
                fmt::format("{} of the gradients of {} {}", percent_text(f.part / f.of), who(f), what),
                {{started_over(rules_for(f.names, "grads", f.names))}}));
  };
  for (const Found& f :
       above([](const Sums& s) { return s.flushed; }, [&](const Sums&) { return limits_.grads_flushed; }))
    say(f, "underflow", "became zero: they are at most half the smallest number of their format");
  for (const Found& f :
       above([](const Sums& s) { return s.saturated; }, [&](const Sums&) { return limits_.saturated; }))
    say(f, "saturation", "exceeded the range of their format");
  const auto say_reduce = [&](const Found& f, const char* kind, std::string_view what) {
    said.push_back(finding(f, kind, "reduce", "backward",
                           fmt::format("{} of the sums over shards of the gradients of {} {}",
                                       percent_text(f.part / f.of), who(f), what),
                           {{started_over({"--set", "precision.reduce=f32"})}}));
  };
  // Stochastic rounding makes most small values zero and the others larger.
  const bool unbiased = policy_.fields().reduce_rounding == Rounding::stochastic;
  for (const Found& f : above([&](const Sums& s) { return unbiased ? 0 : s.reduce_flushed; },
                              [&](const Sums&) { return limits_.grads_flushed; }))
    say_reduce(f, "underflow", "became zero when they were rounded to the `reduce` format");
  for (const Found& f : above([](const Sums& s) { return s.reduce_saturated; },
                              [&](const Sums&) { return limits_.saturated; }))
    say_reduce(f, "saturation", "exceeded the range of the `reduce` format");
}

void HealthWatch::find_saturated(std::vector<HealthFinding>& said) const {
  const auto limit = [&](const Sums& s) {
    if (s.last.vanished) return limits_.in_blocks;
    // Under a scale a few weights may leave the range for a step.
    return s.last.scale ? limits_.saturated : limits_.beyond;
  };
  for (const Found& f : above([](const Sums& s) { return s.beyond; }, limit)) {
    std::string text = fmt::format("{} of {} exceed the range of the format in which products read them",
                                   percent_text(f.part / f.of), who(f));
    said.push_back(finding(f, "saturation", "matmul", "forward", std::move(text),
                           {{started_over(rules_for(f.names, "compute", f.names))}}));
  }
}

void HealthWatch::find_vanished(std::vector<HealthFinding>& said) const {
  for (const Found& f :
       above([](const Sums& s) { return s.vanished; }, [&](const Sums&) { return limits_.vanished; })) {
    std::string text = fmt::format(
        "{} of {} become zero in the blocks in which products read them; the largest weight is {:.2g}",
        percent_text(f.part / f.of), who(f), f.absmax);
    said.push_back(finding(f, "underflow", "matmul", "forward", std::move(text),
                           {{started_over(rules_for(f.names, "compute", f.names))}}));
  }
}

}  // namespace mantissa::train
