#include "mantissa/lab/audit/trials.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "mantissa/engine/comm/deal.h"
#include "mantissa/text/reward/rule.h"
#include "mantissa/train/run/cures.h"

namespace mantissa::lab {
namespace {

constexpr double kSlow = 10;           // seconds of an audit
constexpr std::int64_t kObserved = 8;  // steps that another trial observes, since that takes most of the time
constexpr double kShare = 0.45;        // of the time that is left, for steps in place of skipped ones
constexpr std::int64_t kApplied = 3;   // steps at the end that a cure must complete
const std::vector<std::string> kF32 = {"f32"};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool has_kind(const std::vector<Finding>& findings, const std::string& kind) {
  return std::ranges::find(findings, kind, &Finding::kind) != findings.end();
}

/// True if the run went on to its end, and its last steps changed the weights.
bool runs(const Audit& audit) {
  if (!audit.stopped.empty()) return false;
  std::int64_t applied = 0;
  for (auto p = audit.points.rbegin(); p != audit.points.rend() && applied < kApplied; ++p) {
    if (p->batch_skipped) continue;
    if (p->skipped) return false;
    ++applied;
  }
  return applied > 0;
}

/// Returns the fields of a job.
template <class Job>
auto fields_of_job(Job& job) {
  return std::tie(job.arguments, job.observed, job.steps, job.more, job.seen, job.more_seconds);
}

/// Returns the fields of a trial but its cure and its findings.
template <class SomeTrial>
auto fields_of_trial(SomeTrial& trial) {
  return std::tie(trial.runs, trial.out_of_time, trial.memory, trial.step_seconds, trial.seconds);
}

comm::Bytes bytes_of(const Trial& trial) {
  comm::Bytes bytes;
  comm::append_all(bytes, fields_of_trial(trial));
  for (const Finding& f : trial.findings) {
    comm::append(bytes, f.kind);
    comm::append(bytes, f.severity);
    comm::append(bytes, f.rule.has_value());
    if (f.rule) comm::append(bytes, *f.rule);
  }
  return bytes;
}

Trial trial_of(const TrialJob& job, std::span<const std::byte> bytes) {
  Trial trial{job.arguments, job.observed};
  comm::take_all(bytes, fields_of_trial(trial));
  while (!bytes.empty()) {
    Finding& f = trial.findings.emplace_back();
    f.kind = comm::take<std::string>(bytes);
    f.severity = comm::take<double>(bytes);
    if (comm::take<bool>(bytes)) f.rule = comm::take<std::string>(bytes);
  }
  return trial;
}

config::RunConfig changed(const config::RunConfig& config, const std::vector<std::string>& arguments) {
  if (arguments != kF32) return run::with_cure(config, Cure{arguments});
  config::RunConfig f32 = config;
  f32.policy = precision::Policy();
  return f32;
}

/// Runs a job. Returns null after a stop: the trial may be incomplete.
std::optional<Trial> trial_of(const TrialJob& job, const AuditSource& source, const std::stop_token& stop) {
  const auto begin = std::chrono::steady_clock::now();
  Trial trial{job.arguments, job.observed};
  try {
    const config::RunConfig config = changed(source.config, job.arguments);
    const AuditSource again{config,     source.model, source.task, source.device,
                            source.run, source.state, source.from};
    Audit audit = audit_run(again,
                            {.steps = job.steps,
                             .more = job.more,
                             .more_seconds = job.more_seconds,
                             .observed = job.seen,
                             .applied = kApplied,
                             .tries_cures = false},
                            {}, stop);
    trial.out_of_time = audit.out_of_time;
    trial.runs = lab::runs(audit);
    trial.findings = std::move(audit.findings);
    trial.memory = audit.memory - audit.process;
    trial.step_seconds = audit.seconds / static_cast<double>(std::max<std::int64_t>(1, audit.steps));
  } catch (const Error&) {  // the config or a format does not take the cure
  }
  if (stop.stop_requested()) return std::nullopt;
  trial.seconds = seconds_since(begin);
  return trial;
}

/// Runs jobs, one on each rank. Returns the trials of the first of them, up to one that a stop ended.
std::vector<Trial> dealt(comm::Communicator* ranks, std::span<const TrialJob> jobs, std::string_view inputs,
                         const AuditSource& source, const std::stop_token& stop) {
  std::vector<Trial> trials;
  const std::vector<comm::Bytes> done = comm::deal(
      ranks, std::ssize(jobs), {inputs}, stop,
      [&](std::int64_t job, const std::stop_token& stopped) -> std::optional<comm::Bytes> {
        const std::optional<Trial> trial = trial_of(jobs[static_cast<std::size_t>(job)], source, stopped);
        if (!trial) return std::nullopt;
        return bytes_of(*trial);
      });
  for (std::size_t i = 0; i < done.size(); ++i) trials.push_back(trial_of(jobs[i], done[i]));
  return trials;
}

/// Returns the number of cures that may run at the same time: one if they start programs, which would run
/// more often than on one rank.
std::size_t trials_at_once(const comm::Communicator* ranks, const config::RunConfig& config) {
  const bool program = config.train.objective == "rl" && reward::runs_program(config.rl.reward);
  return ranks == nullptr || program ? 1 : static_cast<std::size_t>(ranks->size());
}

}  // namespace

Trials::Trials(const Audit& audit, const AuditSource& source, const CureTrials& options,
               const std::stop_token& stop, comm::Communicator* ranks)
    : audit_(audit),
      source_(source),
      options_(options),
      stop_(stop),
      ranks_(ranks),
      begin_(std::chrono::steady_clock::now()) {}

bool Trials::slow() const {
  return audit_.seconds > kSlow;
}

const Trial* Trials::find(const Arguments& arguments, bool observed) const {
  const auto same = [&](const Trial& t) {
    return t.arguments == arguments && (t.observed == observed || (t.observed && !t.out_of_time));
  };
  const auto at = std::ranges::find_if(trials_, same);
  return at == trials_.end() ? nullptr : &*at;
}

const Trial* Trials::run(const std::vector<Arguments>& wanted, bool observed) {
  const Arguments& first = wanted.front();
  const auto miss = [&] {
    if (std::ranges::find(missed_, first) == missed_.end()) missed_.push_back(first);
    return nullptr;
  };
  if (find(first, observed) == nullptr) {
    if (stopped_ || stop_.stop_requested()) return nullptr;
    const double left = options_.seconds - seconds_since(begin_);
    if (longest_ > 0 && longest_ > left) return miss();
    const std::int64_t seen = !observed ? 0 : slow() ? 1 : kObserved;
    std::vector<TrialJob> jobs;
    comm::Bytes order;
    for (const Arguments& arguments : wanted) {
      const bool known = find(arguments, observed) != nullptr ||
                         std::ranges::find(jobs, arguments, &TrialJob::arguments) != jobs.end();
      if (known || jobs.size() == trials_at_once(ranks_, source_.config)) continue;
      jobs.push_back({arguments, observed, options_.steps, options_.more, seen, kShare * left});
      comm::append_all(order, fields_of_job(jobs.back()));
    }
    if (ranks_ != nullptr) order = ranks_->broadcast(std::move(order));
    std::vector<Trial> trials = dealt(ranks_, jobs, comm::memory_of(order), source_, stop_);
    stopped_ = trials.size() < jobs.size();
    for (Trial& trial : trials) {
      if (!trial.out_of_time) longest_ = std::max(longest_, trial.seconds);
      trials_.push_back(std::move(trial));
    }
  }
  const Trial* trial = find(first, observed);
  return trial != nullptr && trial->out_of_time ? miss() : trial;
}

const Trial* Trials::under(std::span<const Cure> cures, bool observed) {
  std::vector<Arguments> wanted;
  for (const Cure& cure : cures) wanted.push_back(cure.arguments);
  return run(wanted, observed);
}

const Trial* Trials::in_f32() {
  return run({kF32}, false);
}

bool Trials::cures(const Trial& trial, const Finding& finding) const {
  return trial.runs && std::ranges::none_of(trial.findings, [&](const Finding& f) {
           if (f.kind == finding.kind) return true;
           // Weights may begin to lose updates once their gradients are right: that is another problem.
           const bool worse =
               (f.severity > finding.severity && f.kind != "rounded_away") || f.kind == "learning_rate";
           return worse && !has_kind(audit_.findings, f.kind);
         });
}

void follow_trials(comm::Communicator& ranks, const AuditSource& source, const std::stop_token& stop) {
  while (true) {
    const comm::Bytes order = ranks.broadcast(comm::Bytes());
    if (order.empty()) return;
    std::vector<TrialJob> jobs;
    for (std::span<const std::byte> left = order; !left.empty();)
      comm::take_all(left, fields_of_job(jobs.emplace_back()));
    dealt(&ranks, jobs, comm::memory_of(order), source, stop);
  }
}

void end_trials(comm::Communicator& ranks) {
  ranks.broadcast(comm::Bytes());
}

}  // namespace mantissa::lab
