// mantissa audit
#include <fmt/format.h>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/signal_stop.h"
#include "mantissa/app/cli/terminal.h"
#include "mantissa/app/cli/together.h"
#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/owned.h"

namespace mantissa::cli {

namespace {

constexpr const char *kAuditJson = "audit.json", *kAuditPage = "report.html";

/// True for the directory of a run, which may also have a model.
bool is_run(const std::filesystem::path& what) {
  return disk::exists(what / "config.toml");
}

/// Returns "--out" and a directory for another run beside `out`, or nothing if `out` holds no state.
std::vector<std::string> another_out(const std::filesystem::path& out) {
  if (api::state_steps(out).empty()) return {};
  for (int i = 1;; ++i) {
    const std::string other = out.string() + (i == 1 ? "-cured" : fmt::format("-cured-{}", i));
    if (!disk::exists(other)) return {"--out", other};
  }
}

/// Returns the command of the run that an audit is about, with a cure. The cure of a model is that of its
/// audit: no run exists yet. That of a config whose run exists has another run directory.
std::string with_cure(const Arguments& a, const Cure& cure) {
  const std::filesystem::path what = a.at(0);
  if (!is_config(what) && !is_run(what)) return a.with(cure);
  const api::Config config =
      api::Config::load(is_config(what) ? what : what / "config.toml", a.texts("--set"), precision_of(a));
  std::vector<std::string> words = {config.objective() == "rl" ? "rl" : "train"};
  if (is_config(what)) {
    words.push_back(a.at(0));
    const std::vector<std::string> out = another_out(config.out());
    words.insert(words.end(), out.begin(), out.end());
  } else {
    words.insert(words.end(), {(what / "config.toml").string(), "--out", a.at(0)});
  }
  for (const char* option : {"--precision", "--deepspeed"}) {
    if (a.has(option)) words.insert(words.end(), {option, a.text(option)});
  }
  for (const char* option : {"--rule", "--set"}) {
    for (const std::string& text : a.texts(option)) words.insert(words.end(), {option, text});
  }
  return Arguments(a.program(), words).with(cure);
}

/// Returns the value of --from-step, 0 for the newest state, which is also the default.
std::int64_t first_step(const Arguments& a) {
  const std::string from = a.text("--from-step");
  if (from == "last-good") return 0;
  if (from.find_first_not_of("0123456789") != std::string::npos)
    throw ConfigError(fmt::format("--from-step {}: expected a step, or last-good", from));
  return a.integer("--from-step", 1, std::int64_t{1} << 40);
}

/// Throws ConfigError if --from-step is given for a config or a model, which have no steps to replay.
void check_replays(const Arguments& a) {
  const std::filesystem::path what = a.at(0);
  if (!a.has("--from-step")) return;
  first_step(a);
  if (is_config(what)) {
    throw ConfigError(
        fmt::format("--from-step: {} is a config, whose audit begins at step 1; to begin later, name "
                    "the directory of its run: mantissa audit RUN --from-step {}",
                    what.string(), a.text("--from-step")));
  }
  if (!is_run(what)) {
    throw ConfigError(
        fmt::format("--from-step: {} has no config.toml, so it is not the directory of a run; "
                    "audit a model without --from-step",
                    what.string()));
  }
}

int audit(const Arguments& a) {
  const std::filesystem::path what = a.at(0);
  check_replays(a);
  api::AuditOptions options;
  options.steps = a.has("--steps") || is_config(what) ? a.integer("--steps", 1, std::int64_t{1} << 40) : 3;
  options.try_cures = !a.has("--no-cures");
  options.changes = a.texts("--set");
  options.hardware = hardware_of(a);
  options.ranks = ranks();
  options.command = a.with({});
  options.cure_command = [&a](const Cure& cure) { return with_cure(a, cure); };
  const std::filesystem::path out = a.has("--out") ? a.text("--out") : name_of_run(what) + "-audit";
  disk::check_files_atomic(out, disk::kAudit, {kAuditJson, kAuditPage});
  const SignalStop signals;
  const bool quiet = a.has("--quiet") || a.has("--json");
  const auto tell_step = [&](std::int64_t step, std::int64_t steps, double loss) {
    if (!quiet) fmt::print(stderr, "step {} of {}, loss {:.4f}\n", step, steps, loss);
  };
  api::AuditReport report;
  if (is_config(what)) {
    if (a.has("--data"))
      throw ConfigError("--data: a config states its own data; --set data.source=… changes it");
    const api::Config config = allowed(a, api::Config::load(what, a.texts("--set"), precision_of(a)));
    tell(a, config.notes(), config.warnings());
    report = api::audit(config, options, tell_step, signals.token());
    const std::vector<std::string>& told = config.notes();  // the first ones of the report
    tell(a, {report.notes.begin() + std::min(std::ssize(told), std::ssize(report.notes)), report.notes.end()},
         {});
  } else if (is_run(what)) {
    if (!a.has("--steps")) options.steps = 20;
    options.allow_programs = a.has("--allow-programs");
    report = api::audit_replay(what, first_step(a), precision_of(a), options, tell_step, signals.token());
    tell(a, report.notes, {});
  } else {
    const api::AuditText text{.files = a.texts("--data"), .format = a.text("--format")};
    report = api::audit_model(what, text, precision_of(a), options, tell_step, signals.token());
    tell(a, report.notes, {});
  }
  if (!ranks().leads()) return signals.token().stop_requested() ? kInterrupted : 0;
  tell(a, {}, report.warnings);
  if (report.interrupted && report.steps == 0)
    return report_interrupt(signals, "no step was completed, and no report was written");
  disk::write_files_atomic(out, disk::kAudit, {{kAuditJson, report.json}, {kAuditPage, report.html}});
  const std::string text = fmt::format("{}\nreport  {}", report.text, printable((out / kAuditPage).string()));
  fmt::print("{}\n", a.has("--json") ? report.json : text);
  if (!report.interrupted) return 0;
  return report_interrupt(signals, fmt::format("the report has {} of {}", report.steps,
                                               counted(static_cast<std::uint64_t>(options.steps), "step")));
}

}  // namespace

Commands audit_commands() {
  return {{.name = "audit",
           .summary = "run a few steps under observation, and report what the precision did",
           .positionals = {{"CONFIG|RUN|MODEL",
                            "a run's config (.toml), a run directory, a model directory, or a GGUF file"}},
           .details =
               "A model is trained for a few steps at a low learning rate, by default under 16-mixed. Writes "
               "report.html, a page to read, and audit.json into --out. Trains nothing that is kept.",
           .options = {{"--steps", one, "N", "steps from the beginning of the run; 3 for a model", "20"},
                       {"--out", one, "DIR",
                        "directory of the report; default: the name of CONFIG, RUN or MODEL with -audit"},
                       {"--from-step", one, "N|last-good",
                        "replay a run from a step, or from its newest state", "last-good"},
                       {"--no-cures", "do not replay the steps with each cure"},
                       kData,
                       data_format("--format", "format of the data files")},
           .groups = {kPrecision, kRules, kSet, kAllowPrograms, kHardware, kResults},
           .run = audit,
           .shared = true}};
}

}  // namespace mantissa::cli
