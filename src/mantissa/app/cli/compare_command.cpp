// mantissa compare
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/signal_stop.h"
#include "mantissa/app/cli/together.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/owned.h"

namespace mantissa::cli {
namespace {

constexpr const char *kJson = "compare.json", *kTable = "compare.csv", *kPage = "report.html";

/// Splits the values of --precision at commas.
std::vector<std::string> policies_of(const Arguments& a) {
  std::vector<std::string> policies;
  for (const std::string& values : a.texts("--precision")) {
    for (std::string& policy : api::split_values(values)) {
      if (policy.empty())
        throw ConfigError(fmt::format("--precision {}: a policy is empty. Fix: write A,B,C", values));
      policies.push_back(std::move(policy));
    }
  }
  return policies;
}

/// Returns true for the first step, the last, and about 20 in between.
bool is_told(const api::CompareStep& s) {
  constexpr std::int64_t kLines = 20;
  return s.step == 1 || s.step * kLines / s.steps != (s.step - 1) * kLines / s.steps;
}

api::CompareReport train_runs(const Arguments& a, const SignalStop& signals) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40, kMostSeeds = 100;
  if (a.given().size() > 1)
    throw ConfigError("compare: a config is compared alone. Fix: give one config, or only run directories");
  api::CompareOptions options;
  options.policies = policies_of(a);
  options.vary = a.texts("--vary");
  options.rules = a.texts("--rule");
  options.overrides = a.texts("--set");
  options.deepspeed = a.text("--deepspeed");
  if (a.has("--steps")) options.steps = a.integer("--steps", 1, kMost);
  options.seeds = a.integer("--seeds", 0, kMostSeeds);
  const auto gives_seeds = [](const std::string& entry) { return entry.starts_with("run.seed="); };
  if (a.has("--seeds") && std::ranges::any_of(options.vary, gives_seeds))
    throw ConfigError("compare: --vary run.seed=… gives the seeds of all runs. Fix: leave out --seeds");
  options.hardware = hardware_of(a);
  options.ranks = ranks();
  options.allow_programs = a.has("--allow-programs");
  const bool quiet = a.has("--quiet") || a.has("--json");
  api::CompareReport report = api::compare(
      a.at(0), options,
      [&](const api::CompareStep& s) {
        if (!quiet && is_told(s))
          fmt::print(stderr, "run {} of {}, {}: step {} of {}, loss {:.4f}\n", s.run, s.runs, s.name, s.step,
                     s.steps, s.loss);
      },
      signals.token());
  tell(a, report.notes, {});
  return report;
}

api::CompareReport read_runs(const Arguments& a) {
  refuse_given(a, {"--precision", "--vary", "--rule", "--set", "--deepspeed", "--steps", "--seeds"},
               "compare: {0} needs a config; runs are compared as they are");
  return api::compare(std::vector<std::filesystem::path>(a.given().begin(), a.given().end()), hardware_of(a));
}

int compare(const Arguments& a) {
  const std::filesystem::path what = a.at(0);
  if (!is_config(what) && !ranks().leads()) return 0;  // there is nothing to share
  const std::filesystem::path out = a.has("--out") ? a.text("--out") : name_of_run(what) + "-compare";
  disk::check_files_atomic(out, disk::kComparison, {kJson, kTable, kPage});
  const PipeErrors pipes;
  const SignalStop signals;
  const api::CompareReport report = is_config(what) ? train_runs(a, signals) : read_runs(a);
  if (report.runs == 0) {
    const bool older = disk::exists(out / kPage);
    return report_interrupt(
        signals, older ? fmt::format("no run had ended; {} has an earlier comparison", (out / kPage).string())
                       : std::string("no run had ended"));
  }
  if (ranks().leads()) {
    disk::write_files_atomic(out, disk::kComparison,
                             {{kJson, report.json}, {kTable, report.csv}, {kPage, report.html}});
  }
  const std::string text = fmt::format("{}\nreport  {}", report.text, printable((out / kPage).string()));
  fmt::print("{}\n", a.has("--json") ? report.json : text);
  if (report.interrupted) return report_interrupt(signals, "the report has the runs that had ended");
  return 0;
}

}  // namespace

Commands compare_commands() {
  return {
      {.name = "compare",
       .summary =
           "run policies or settings side by side with the same seeds, and report loss, speed and memory",
       .positionals = {{"CONFIG|RUN", "a run's config (.toml), or a run directory, the reference"},
                       {"[RUN…]", "more run directories"}},
       .details = "A config is trained with each seed for each policy and setting; nothing of this is "
                  "kept. Runs are compared from their directories. Writes report.html, compare.json and "
                  "compare.csv into --out.",
       .options = {{"--precision", each, "A,B,…",
                    "policies, the first of which is the reference; default: the config's own; repeatable"},
                   {"--vary", each, "KEY=A,B,…",
                    "values of a key of the config; one run for each combination; repeatable"},
                   {"--steps", one, "N", "steps from the beginning of each run; default: all of run.steps"},
                   {"--seeds", one, "N",
                    "seeds with which every run is trained; 1 is fast, but gives no verdict", "3"},
                   {"--out", one, "DIR",
                    "directory of the report; default: the name of CONFIG or RUN with -compare"},
                   {"--rule", list, "RULE",
                    "'SCOPE: field=value …' for a part of the model, in all runs; repeatable"},
                   {"--deepspeed", one, "FILE", "DeepSpeed JSON, as in train, for all runs"}},
       .groups = {kSet, kAllowPrograms, kHardware, kResults},
       .run = compare,
       .shared = true}};
}

}  // namespace mantissa::cli
