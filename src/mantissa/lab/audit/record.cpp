#include "mantissa/lab/audit/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/core/disk/look.h"
#include "mantissa/lab/median.h"
#include "mantissa/lab/metrics_file.h"
#include "mantissa/setup/config/stages.h"

namespace mantissa::lab {
namespace {

ValueStep value_step(std::int64_t step, const runtime::ObservedValue& value) {
  ValueStep v;
  v.step = step;
  const std::pair<std::string_view, double*> always[] = {
      {"absmax", &v.absmax}, {"absmin", &v.absmin},       {"mean", &v.mean},           {"rms", &v.rms},
      {"zeros", &v.zeros},   {"subnormal", &v.subnormal}, {"saturated", &v.saturated}, {"inf", &v.inf},
      {"nan", &v.nan}};
  const std::pair<std::string_view, std::optional<double>*> some[] = {{"flushed", &v.flushed},
                                                                      {"overflowed", &v.overflowed},
                                                                      {"error_rms", &v.error_rms},
                                                                      {"error_mean", &v.error_mean},
                                                                      {"error_inward", &v.error_inward},
                                                                      {"max_ulp", &v.max_ulp},
                                                                      {"cancelled", &v.cancelled},
                                                                      {"stuck", &v.stuck},
                                                                      {"moving", &v.moving},
                                                                      {"interior_error", &v.interior_error}};
  for (const auto& [name, figure] : runtime::figures(value)) {
    for (const auto& [key, field] : always) {
      if (key == name) *field = figure;
    }
    for (const auto& [key, field] : some) {
      if (key == name) *field = figure;
    }
  }
  return v;
}

/// Returns the scope of a parameter.
std::string module_of(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

/// Returns the policy field that decides the format of a result, or "".
std::string field_of(const plan::Program& program, const runtime::ObservedValue& value) {
  const plan::Buffer& b = program.buffer(value.step->outputs[value.index]);
  if (b.home == plan::Home::kept) return b.random == RandomUse::compensation ? "params" : "optimizer";
  if (b.home == plan::Home::master) return "params";
  return std::string(b.field);
}

/// True if the value is in a format with a scale that follows from earlier steps.
bool has_delayed_scale(const plan::Program& program, const runtime::ObservedValue& value) {
  const std::int32_t buffer =
      value.is_operand() ? value.step->inputs[value.index].buffer : value.step->outputs[value.index];
  const std::optional<plan::ScaledStorage>& q = program.buffer(buffer).scaled;
  return q && q->scale >= 0 && !program.scales[static_cast<std::size_t>(q->scale)].current;
}

std::optional<double> metric_of(const train::StepReport& r, std::string_view name) {
  const auto found = std::ranges::find(r.metrics, name, &objective::Metric::name);
  return found == r.metrics.end() ? std::nullopt : std::optional(found->value);
}

}  // namespace

void Record::add_step(const train::StepReport& r, const train::PartNumber& part) {
  StepPoint& p = audit_.points.emplace_back();
  p.stage = part.stage;
  p.part = part.part;
  p.step = r.step;
  p.loss = r.loss;
  p.grad_norm = r.grad_norm;
  p.lr = r.lr;
  p.loss_scale = r.loss_scale;
  p.skipped = r.skipped;
  p.batch_skipped = r.batch_skipped;
  if (r.overflow) p.overflow = r.overflow->what;
  if (const auto alike = metric_of(r, "equal_reward_share"), spread = metric_of(r, "rewards_std");
      alike || spread) {
    ++rollouts_;
    alike_ += alike == 1 ? 1 : 0;
    equal_ += spread == 0 ? 1 : 0;
  }
  for (const runtime::ParameterHealth& h : r.health) {
    auto series = std::ranges::find(audit_.weights, h.name, &ParameterSeries::name);
    if (series == audit_.weights.end()) {
      series = audit_.weights.insert(series, ParameterSeries{});
      series->name = h.name;
      series->master = h.master;
    }
    series->steps.emplace_back(r.step, h);
  }
}

void Record::judge_rewards() {
  if (rollouts_ == 0) return;
  const auto without_gradient = [](const StepPoint& p) { return p.skipped || p.grad_norm == 0; };
  if (equal_ == rollouts_) {
    audit_.uninformative = "all responses have the same reward";
  } else if (alike_ == rollouts_ && std::ranges::all_of(audit_.points, without_gradient)) {
    audit_.uninformative = "all responses to each prompt have the same reward";
  }
  if (!audit_.uninformative.empty())
    audit_.uninformative += ", so no response has an advantage, and the gradients show nothing";
}

ValueSeries& Record::series_of(const plan::Program& program, const runtime::ObservedValue& value) {
  const plan::Step& step = *value.step;
  const std::string pass(precision::name(runtime::pass_of(value)));
  const std::string name = runtime::name_of(program, value), op(step.op->op);
  const auto [at, is_new] =
      series_.try_emplace({step.scope, op, pass, name, value.rounded}, audit_.values.size());
  if (is_new) {
    ValueSeries& s = audit_.values.emplace_back();
    s.scope = step.scope;
    s.op = op;
    s.pass = pass;
    s.name = name;
    s.format = value.format;
    s.rounded = value.rounded;
    s.blocks = value.blocks;
    s.served = value.served;
    s.codes = value.codes;
    s.factor = value.is_operand();
    s.delayed = has_delayed_scale(program, value);
    s.kind = value.kind;
    s.rounds = value.rounds;
    s.flushes = value.is_operand() ? step.inputs[value.index].operand.flush_subnormals
                                   : step.compute.flush_subnormals;
    if (!value.is_operand() && !value.is_inside()) s.field = field_of(program, value);
    s.point = value.point;
    s.card = value.card;
    s.decided_by = step.decided_by;
  }
  return audit_.values[at->second];
}

void Record::add_values(std::int64_t step, const plan::Program& program,
                        const std::vector<runtime::ObservedValue>& values) {
  for (const runtime::ObservedValue& value : values) {
    if (value.counts.count == 0) continue;
    // Values that are not finite are seen, too.
    if (value.counts.compared + value.counts.inf + value.counts.nan > 0) {
      const std::string label = value.is_inside() ? value.point : runtime::name_of(program, value);
      compared_.insert({value.step->scope, std::string(value.step->op->op), value.kind, label});
    }
    ValueSeries& s = series_of(program, value);
    if (!s.steps.empty() && s.steps.back().step == step)
      continue;  // a step of the backward pass that repeats it
    s.steps.push_back(value_step(step, value));
    s.elements = static_cast<std::int64_t>(value.counts.count);
    s.binades.merge(value.counts.binades);
    if (value.counts.compared > 0) s.before.merge(value.counts.before);
  }
}

void Record::add_reduced(std::int64_t step, train::Trainer& trainer) {
  const std::vector<ValueCounts>& reduced = trainer.reduced();
  if (reduced.empty()) return;
  const std::vector<train::Trainer::NamedGradient> gradients = trainer.last_gradients();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const std::string& name = gradients[i].name;
    const std::string scope = module_of(name);
    compared_.insert({scope, "reduce", plan::RoundingKind::reduce, "gradient"});
    const auto [at, is_new] = series_.try_emplace(
        {scope, "reduce", "backward", name.substr(scope.size() + 1), trainer.program().reduce},
        audit_.values.size());
    if (is_new) {
      ValueSeries& s = audit_.values.emplace_back();
      s.scope = scope;
      s.op = "reduce";
      s.pass = "backward";
      s.name = name.substr(scope.size() + 1);
      s.format = s.rounded = trainer.program().reduce;
      s.kind = plan::RoundingKind::reduce;
      s.rounds = true;
      s.decided_by = trainer.program().policy.decided_by({}, {});
    }
    const runtime::ObservedValue value{
        .format = trainer.program().reduce, .rounded = trainer.program().reduce, .counts = reduced[i]};
    ValueSeries& s = audit_.values[at->second];
    s.steps.push_back(value_step(step, value));
    s.elements = gradients[i].count;
    s.binades.merge(reduced[i].binades);
    s.before.merge(reduced[i].before);
  }
}

void Record::add_gradients(std::int64_t step, const plan::Program& program, double amplification,
                           const std::map<std::string, GradientStep>& gradients) {
  auto expected = expected_.find(&program);
  if (expected == expected_.end())
    expected = expected_.emplace(&program, expected_gradient_errors(program)).first;
  for (ParameterSeries& p : audit_.weights) {
    const auto of = gradients.find(p.name);
    if (of == gradients.end()) continue;
    GradientStep& g = p.gradient_steps.emplace_back(of->second);
    g.step = step;
    const auto explained = expected->second.find(p.name);
    if (explained == expected->second.end()) continue;
    g.expected = explained->second.error(amplification);
    g.coarsest = explained->second.coarsest;
  }
}

RouterSeries& Record::router(const std::string& scope) {
  const auto known = std::ranges::find(audit_.routers, scope, &RouterSeries::scope);
  return known != audit_.routers.end() ? *known : audit_.routers.emplace_back(RouterSeries{scope, {}});
}

void Record::add_routers(std::int64_t step, const std::map<std::string, RouterStep>& routers) {
  for (const auto& [scope, counts] : routers) router(scope).steps.emplace_back(counts).step = step;
}

void Record::summarise_gradients() {
  std::map<std::int64_t, std::pair<std::vector<double>, std::vector<double>>> errors;
  for (const ParameterSeries& p : audit_.weights) {
    for (const GradientStep& g : p.gradient_steps) {
      errors[g.step].first.push_back(g.error);
      errors[g.step].second.push_back(g.expected);
    }
  }
  for (auto& [step, all] : errors) {
    const double error = median(std::move(all.first)).value_or(0);
    if (error < audit_.median_gradient_error) continue;
    audit_.median_gradient_error = error;
    audit_.expected_gradient_error = median(std::move(all.second)).value_or(0);
  }
}

void Record::list_unobserved(std::span<const programs::RunPart> parts) {
  std::set<std::string> seen;  // the same point in another part of the run is one
  for (const programs::RunPart& whole : parts) {
    if (!observed_.contains(whole.program.get())) continue;
    for (const plan::Program* part : {whole.program.get(), whole.program->update.get()}) {
      if (part == nullptr) continue;
      std::set<std::string> here;
      for (const plan::RoundingPoint& p : plan::rounding_points(*part)) {
        const std::string scope = p.step == nullptr ? module_of(p.scope(*part)) : p.scope(*part);
        const std::string place = fmt::format("{} ({})", place_text(scope, p.op(), p.pass()),
                                              p.name.empty() ? name(p.kind) : p.name);
        const std::string key = fmt::format("{} {} {}", place, name(p.kind), p.format_name());
        here.insert(key);
        if (seen.contains(key)) continue;
        ++audit_.points_of_rounding;
        const bool compared = compared_.contains({scope, std::string(p.op()), p.kind, p.name});
        if (compared && p.unobserved.empty()) continue;
        const std::string why(p.unobserved.empty() ? "no observed step could be repeated without it"
                                                   : p.unobserved);
        const std::string line = place + ": " + why;
        if (std::ranges::find(audit_.unobserved, line) == audit_.unobserved.end())
          audit_.unobserved.push_back(line);
      }
      seen.merge(here);
    }
  }
}

void Record::list_unreached(std::span<const programs::RunPart> parts, const config::RunConfig& config,
                            bool replays) {
  const auto applies = [](const precision::Rule& rule, const programs::RunPart& part) {
    return rule.first_step.value_or(0) <= part.first && (!rule.last_step || part.first < *rule.last_step);
  };
  const auto observed = [&](const programs::RunPart& part) { return observed_.contains(part.program.get()); };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const programs::RunPart& part = parts[i];
    if (observed(part)) continue;
    const bool last = i + 1 == parts.size();
    const std::int64_t first = part.first + 1, end = last ? config.run.steps : parts[i + 1].first;
    std::string text =
        first == end ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, end);
    if (config::stage_count(config) > 1) text += fmt::format(" (stage {})", part.stage + 1);
    for (const precision::Rule& rule : config.policy.rules()) {
      if (!rule.first_step && !rule.last_step) continue;
      const bool here = applies(rule, part);
      const bool elsewhere = std::ranges::any_of(parts, [&](const programs::RunPart& other) {
        return observed(other) && applies(rule, other) != here;
      });
      if (elsewhere)
        text += fmt::format(", where rule {} {}", rule.str(), here ? "applies" : "does not apply");
    }
    audit_.unreached.push_back(fmt::format("{}; {} {} reaches {}", text, replays ? "--from-step" : "--steps",
                                           first, first == end ? "it" : "them"));
  }
}

std::vector<StepPoint> earlier_points(const std::filesystem::path& run, std::int64_t first) {
  const std::filesystem::path path = run / "metrics.jsonl";
  if (!disk::exists(path)) return {};
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  std::vector<StepPoint> points;
  MetricsFile file(path);
  for (std::optional<StepLine> line = file.next(); line && line->step < first; line = file.next()) {
    const nlohmann::json& m = line->metrics;
    if (!m.contains("loss")) continue;  // of held-out rows only
    StepPoint& p = points.emplace_back();
    p.step = line->step;
    p.loss = number_in(m, "loss").value_or(kNan);
    p.grad_norm = number_in(m, "grad_norm").value_or(kNan);
    p.lr = number_in(m, "lr").value_or(kNan);
    p.loss_scale = number_in(m, "loss_scale");
    p.skipped = m.contains("skipped") && m["skipped"] == true;
  }
  return points;
}

}  // namespace mantissa::lab
