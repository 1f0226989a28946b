#include "mantissa/lab/audit/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/quantities.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/engine/comm/deal.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/runtime/observer.h"
#include "mantissa/files/io/state.h"
#include "mantissa/lab/audit/causes.h"
#include "mantissa/lab/audit/data_findings.h"
#include "mantissa/lab/audit/findings.h"
#include "mantissa/lab/audit/gradients.h"
#include "mantissa/lab/audit/record.h"
#include "mantissa/lab/audit/trials.h"
#include "mantissa/lab/audit/verdict.h"
#include "mantissa/lab/masters.h"
#include "mantissa/setup/weights/start.h"
#include "mantissa/train/run/directory.h"

namespace mantissa::lab {
namespace {

/// Returns true for at most `most` of `steps` steps, the first and the last among them.
bool is_observed(std::int64_t step, std::int64_t steps, std::int64_t most) {
  if (most == 0) return false;
  if (steps <= most || step >= steps) return true;
  if (most == 1) return false;
  const auto at = [&](std::int64_t s) { return s * (most - 1) / steps; };
  return step == 1 || at(step) != at(step - 1);
}

void describe(Audit& audit, const train::Trainer& trainer) {
  const plan::Program& program = trainer.program();
  audit.memory = trainer.memory().peak();
  audit.process = trainer.memory().process;
  audit.preset = program.policy.preset();
  audit.policy = program.policy.line();
  for (const plan::Slot& slot : program.slots) audit.parameters += slot.shape.count();
  audit.model = fmt::format("{} {}", trainer.model().model_type,
                            parameters_text(static_cast<double>(audit.parameters)));
  audit.title = fmt::format("run \"{}\" under {}", trainer.config().run.name, program.policy.title());
  audit.plan = plan::plan_rows(program);
  const std::vector<plan::PlanRow> update = plan::update_rows(*program.update);
  audit.plan.insert(audit.plan.end(), update.begin(), update.end());
}

/// Sets the source of ParameterHealth::never_moved: the file of a run, or a copy of the first weights.
class StartOf {
 public:
  StartOf(train::Trainer& trainer, const AuditSource& source) {
    const std::filesystem::path file = source.run / "start.safetensors";
    if (!source.run.empty() && disk::exists(file)) {
      file_.emplace(file);
      file_->check_base(run::base_of(trainer, run::hash_of_fixed(trainer)));
      trainer.set_start([this, &device = source.device](const plan::Slot& slot, ConstMatrix master) {
        return file_->unchanged(slot, master, device);
      });
    } else if (trainer.step() == 0) {
      copy_ = copy_masters(trainer);
      trainer.set_start([this, &device = source.device](const plan::Slot& slot, ConstMatrix master) {
        return unchanged(slot, master, device);
      });
    }
  }
  StartOf(const StartOf&) = delete;
  StartOf& operator=(const StartOf&) = delete;

 private:
  std::optional<std::int64_t> unchanged(const plan::Slot& slot, ConstMatrix master,
                                        const runtime::Device& device) const {
    const auto start = std::ranges::find(copy_, slot.name, &MasterTensor::name);
    if (start == copy_.end() || start->type != master.type) return std::nullopt;
    std::vector<std::byte> staging;
    const auto now = device.view(static_cast<const std::byte*>(master.data), start->bytes.size(), staging);
    return kernels::count_equal(device.host(), slot.shape.count(), start->bytes.data(), start->type,
                                now.data(), master.type);
  }

  std::optional<weights::StartWeights> file_;
  Masters copy_;
};

FirstNonFinite first_of(const train::Overflow& overflow, std::int64_t step) {
  FirstNonFinite first;
  first.step = step;
  first.scope = overflow.scope;
  first.op = overflow.op;
  first.pass = overflow.pass;
  first.format = overflow.format;
  first.value = overflow.value;
  first.channel = overflow.channel;
  for (const runtime::ReadRange& in : overflow.inputs)
    first.inputs.push_back({.name = in.name, .absmax = in.absmax});
  first.rows = overflow.origins;
  first.text = overflow.what;
  return first;
}

/// Returns the amplification of errors of the logits in the gradients of a step.
double amplification_of(const train::StepReport& r, const config::RunConfig& config,
                        const model::ModelConfig& model) {
  const bool cross_entropy = config.train.objective == "pretrain" || config.train.objective == "sft";
  return amplification_of_logits(cross_entropy ? r.loss : std::numeric_limits<double>::quiet_NaN(),
                                 model.vocab_size);
}

/// The overflows of an audit, each with the first step of its place.
class Overflows {
 public:
  void add(const train::Overflow& overflow, std::int64_t step) {
    const auto same = [&](const auto& o) {
      return o.first.scope == overflow.scope && o.first.op == overflow.op && o.first.pass == overflow.pass;
    };
    const auto known = std::ranges::find_if(all_, same);
    at_ = static_cast<std::size_t>(known - all_.begin());
    if (known == all_.end()) all_.emplace_back(overflow, step);
  }

  /// Adds the finding: of the overflow that stopped the run, otherwise of the first one. A loss scale that
  /// found its value by skipping steps is not a problem.
  void report(Audit& audit, std::vector<Finding>& found) {
    if (all_.empty()) return;
    const auto forward = [](const auto& o) { return o.first.forward; };
    if (scale_searches(audit) && std::ranges::none_of(all_, forward)) return;
    if (audit.stopped.empty()) {
      const auto worst = std::ranges::find_if(all_, forward);
      at_ = worst == all_.end() ? 0 : static_cast<std::size_t>(worst - all_.begin());
    }
    const auto& [overflow, step] = all_[at_];
    audit.first_non_finite = first_of(overflow, step);
    found.push_back(nonfinite_finding(overflow, step));
  }

 private:
  std::vector<std::pair<train::Overflow, std::int64_t>> all_;
  std::size_t at_ = 0;
};

/// Returns the number of ranks that observe steps.
std::int64_t watchers_of(const comm::Communicator* ranks, const config::RunConfig& config) {
  return ranks == nullptr || config.train.objective == "rl" ? 1 : ranks->size();
}

/// Returns the text of the first rank with one, or "".
std::string first_of_ranks(comm::Communicator* ranks, const std::string& own) {
  if (ranks == nullptr || ranks->alone()) return own;
  for (const comm::Bytes& text : ranks->all_gather(std::as_bytes(std::span(own)))) {
    if (!text.empty()) return comm::text_of(text);
  }
  return "";
}

}  // namespace

Audit audit_run(const AuditSource& source, const AuditOptions& options, const OnAuditStep& on_step,
                const std::stop_token& stop) {
  const auto begin = std::chrono::steady_clock::now();
  Audit audit;
  config::RunConfig config = source.config;
  config.log.health_interval = 1;
  config.log.tensorboard = false;  // no histograms
  std::optional<io::StateReader> state;
  if (!source.state.empty()) state.emplace(source.state);
  train::Trainer trainer(config, source.model, source.task.again(config), source.device,
                         state ? state->header().step : 0);
  if (state) run::restore(trainer, *state, source.state);
  trainer.watch_non_finite();
  describe(audit, trainer);
  audit.command = options.command;
  audit.run_command = options.run_command;
  const StartOf start(trainer, source);
  std::int64_t last = std::min(source.from - 1 + options.steps, config.run.steps);
  const std::int64_t most = std::min(last + options.more, config.run.steps);
  const std::int64_t steps = std::max<std::int64_t>(last - source.from + 1, 1);
  Record record(audit);
  if (!source.run.empty() && !options.command.empty())
    audit.earlier = earlier_points(source.run, source.from);
  Overflows overflows;
  std::vector<Finding> found = data_findings(source, last);
  std::optional<runtime::Observer> observer, updates;
  std::optional<runtime::RouterRecord> routed;
  std::size_t part = 0;  // of the run, in the observed step
  std::optional<GradientReference> reference;
  const std::int64_t watchers = watchers_of(options.ranks, config);
  if (options.observed > 0) {
    reference.emplace(source, config);
    audit.no_reference = first_of_ranks(options.ranks, reference->absent());
    if (!audit.no_reference.empty()) reference.reset();
  }
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  bool searches = false;   // the loss scale looks for its value: the next step is likely to be skipped too
  std::int64_t turns = 0;  // steps that are observed by any rank
  const auto watch = [&](std::int64_t rank, const std::stop_token& stop) -> std::optional<comm::Bytes> {
    try {
      while (trainer.step() < last && !stop.stop_requested()) {
        const std::int64_t step = trainer.step() + 1, nth = step - source.from + 1;
        observer.reset();
        updates.reset();
        routed.reset();
        bool compares = false;
        const bool observes =
            nth >= 1 && is_observed(nth, steps, options.observed) && (!searches || step == most);
        if (observes && turns++ % watchers == rank) {
          compares = reference && reference->compute(trainer, stop);
          const auto all = [](const plan::Step&) { return true; };
          observer.emplace(trainer.next_executor(), all);
          if (compares) routed.emplace(trainer.next_executor());
          part = trainer.part();
          updates.emplace(trainer.next_update(), all);
        }
        const std::optional<train::StepReport> r = trainer.advance(stop);
        if (!r) break;
        if (on_step && rank == 0) on_step(*r, last);
        if (nth < 1) continue;
        record.add_step(*r, {trainer.parts()[trainer.part()].stage, trainer.part()});
        if (observer) {
          audit.observed.push_back(step);
          record.begin_part(trainer.parts()[part]);
          record.add_values(step, *trainer.parts()[part].program, observer->take());
          record.add_values(step, *trainer.parts()[part].program->update, updates->take());
          if (!r->batch_skipped) record.add_reduced(step, trainer);
          if (compares && !r->skipped) {
            record.add_gradients(step, *trainer.parts()[part].program,
                                 amplification_of(*r, config, source.model.config),
                                 reference->compare(trainer, r->loss_scale.value_or(1)));
          }
          if (compares) record.add_routers(step, compare(routed->choices(), reference->choices()));
        }
        if (r->overflow) overflows.add(*r->overflow, step);
        ++audit.steps;
        searches = options.more > 0 && r->skipped && r->overflow && !r->overflow->forward;
        if (searches && last < most) {
          audit.out_of_time = seconds() > options.more_seconds;
          if (audit.out_of_time) break;
          ++last;
        }
        if (r->skipped && !r->batch_skipped && last - step < options.applied) break;
      }
    } catch (const RunStopped& e) {
      audit.stopped = e.message();
      audit.stopped_at = trainer.step() + 1;
      if (trainer.overflow()) overflows.add(*trainer.overflow(), trainer.step() + 1);
      // The values of the step at which the run stopped.
      if (observer) audit.observed.push_back(trainer.step() + 1);
      if (observer) record.begin_part(trainer.parts()[part]);
      if (observer) record.add_values(trainer.step() + 1, trainer.program(), observer->take());
      if (trainer.step() + 1 >= source.from) ++audit.steps;
    }
    observer.reset();
    updates.reset();
    routed.reset();
    audit.interrupted = stop.stop_requested();
    return rank == 0 ? comm::Bytes() : record.bytes(trainer.parts());
  };
  const std::vector<comm::Bytes> watched =
      comm::deal(options.ranks, watchers, {config.to_toml()}, stop, watch);
  if (options.ranks != nullptr) audit.interrupted = options.ranks->any(audit.interrupted);
  if (options.ranks != nullptr && !options.ranks->leads()) {
    if (options.tries_cures) follow_trials(*options.ranks, source, stop);
    return audit;
  }
  if (watchers > 1 && !audit.interrupted) record.merge(std::span(watched).subspan(1), trainer.parts());
  record.judge_rewards();
  record.list_unobserved(trainer.parts());
  if (!audit.observed.empty()) record.list_unreached(trainer.parts(), config, !source.run.empty());
  for (const forecast::OtherPass& pass : trainer.task().passes()) {
    const std::size_t points = plan::rounding_points(*pass.program).size();
    if (points > 0)
      audit.passes.push_back(
          fmt::format("{} ({})", pass.name, counted(static_cast<std::int64_t>(points), "rounding point")));
  }
  record.summarise_gradients();
  std::ranges::sort(audit.routers, {}, [](const RouterSeries& r) {  // layer 2 before layer 10
    return std::pair(r.scope.size(), r.scope);
  });
  const bool compared =
      std::ranges::any_of(audit.weights, [](const ParameterSeries& p) { return !p.gradient_steps.empty(); });
  if (audit.no_reference.empty() && !compared) audit.no_reference = "no observed step was applied";
  overflows.report(audit, found);
  const auto explains = [](const Finding& f) { return f.kind == "nonfinite" || f.kind == "no_labels"; };
  if (!audit.stopped.empty() && std::ranges::none_of(found, explains)) {
    Finding& f = found.emplace_back();
    f.kind = "nonfinite";
    f.step = audit.stopped_at;
    f.severity = 100;
    f.text = audit.stopped;
    f.evidence = {{"step", static_cast<double>(f.step)}};
  }
  for (Finding& f : find_problems(audit, config, source.model.config.vocab_size))
    found.push_back(std::move(f));
  for (Finding& f : found) {
    if (f.evidence.empty()) f.evidence = {{"step", static_cast<double>(f.step)}};
  }
  std::ranges::stable_sort(found, std::ranges::greater(), &Finding::severity);
  audit.findings = std::move(found);
  const Thresholds limits;
  audit.thresholds = {{"overflow", limits.overflow},
                      {"saturation", limits.saturation},
                      {"clipped", limits.clipped},
                      {"underflow", limits.underflow},
                      {"vanished", limits.vanished},
                      {"updates_lost", limits.updates_lost},
                      {"bias", limits.bias},
                      {"interior", limits.interior},
                      {"gradient", limits.gradient},
                      {"cancellation", limits.cancellation},
                      {"scale_fall", limits.scale_fall},
                      {"scale_low", limits.scale_low}};
  audit.seconds = seconds();
  if (options.tries_cures) {
    const double left = std::max(options.seconds - audit.seconds, options.trial_seconds);
    if (!audit.interrupted) try_cures(audit, source, {steps, options.more, left}, stop, options.ranks);
    if (options.ranks != nullptr) end_trials(*options.ranks);
  }
  for (Finding& f : audit.findings) {
    if (f.cure && options.cure_command) f.command = options.cure_command(*f.cure);
  }
  audit.verdict = verdict_of(audit);
  audit.seconds = seconds();
  return audit;
}

}  // namespace mantissa::lab
