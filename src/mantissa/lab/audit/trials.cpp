#include "mantissa/lab/audit/trials.h"

#include <algorithm>

#include "mantissa/train/run/cures.h"

namespace mantissa::lab {
namespace {

constexpr double kSlow = 10;           // seconds of an audit
constexpr std::int64_t kObserved = 8;  // steps that another trial observes, since that takes most of the time
constexpr double kShare = 0.45;        // of the time that is left, for steps in place of skipped ones
constexpr std::int64_t kApplied = 3;   // steps at the end that a cure must complete

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

}  // namespace

Trials::Trials(const Audit& audit, const AuditSource& source, const CureTrials& options,
               const std::stop_token& stop)
    : audit_(audit),
      source_(source),
      options_(options),
      stop_(stop),
      begin_(std::chrono::steady_clock::now()) {}

bool Trials::slow() const {
  return audit_.seconds > kSlow;
}

const Trial* Trials::find(const std::vector<std::string>& arguments, bool observed) const {
  const auto same = [&](const Trial& t) { return t.arguments == arguments && (t.observed || !observed); };
  const auto at = std::ranges::find_if(trials_, same);
  return at == trials_.end() ? nullptr : &*at;
}

template <class Change>
const Trial* Trials::run(const std::vector<std::string>& arguments, bool observed, const Change& change) {
  if (const Trial* done = find(arguments, observed)) return done;
  if (stop_.stop_requested()) return nullptr;
  const auto miss = [&] {
    if (std::ranges::find(missed_, arguments) == missed_.end()) missed_.push_back(arguments);
    return nullptr;
  };
  const double left = options_.seconds - seconds_since(begin_);
  if (longest_ > 0 && longest_ > left) return miss();
  const auto begin = std::chrono::steady_clock::now();
  Trial trial{arguments, observed};
  try {
    const config::RunConfig changed = change();
    const std::int64_t seen = !observed ? 0 : slow() ? 1 : kObserved;
    const AuditSource again{changed,     source_.model, source_.task, source_.device,
                            source_.run, source_.state, source_.from};
    Audit audit = audit_run(again,
                            {.steps = options_.steps,
                             .more = options_.more,
                             .more_seconds = kShare * left,
                             .observed = seen,
                             .applied = kApplied,
                             .tries_cures = false},
                            {}, stop_);
    if (stop_.stop_requested()) return nullptr;  // it may be incomplete
    if (audit.out_of_time) return miss();
    trial.runs = lab::runs(audit);
    trial.findings = std::move(audit.findings);
    trial.memory = audit.memory;
    trial.step_seconds = audit.seconds / static_cast<double>(std::max<std::int64_t>(1, audit.steps));
  } catch (const Error&) {  // the config or a format does not take the cure
  }
  longest_ = std::max(longest_, seconds_since(begin));
  return &trials_.emplace_back(std::move(trial));
}

const Trial* Trials::under(const Cure& cure, bool observed) {
  return run(cure.arguments, observed, [&] { return run::with_cure(source_.config, cure); });
}

const Trial* Trials::in_f32() {
  return run({"f32"}, false, [&] {
    config::RunConfig config = source_.config;
    config.policy = precision::Policy();
    return config;
  });
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

}  // namespace mantissa::lab
