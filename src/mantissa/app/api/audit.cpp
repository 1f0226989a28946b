#include "mantissa/app/api/audit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/app/api/internal.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/files/io/state.h"
#include "mantissa/lab/audit/data_findings.h"
#include "mantissa/lab/audit/run.h"
#include "mantissa/precision/policy/supported.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/ranks.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/train/run/work.h"

namespace mantissa::api {
namespace {

/// The part of a run that is replayed.
struct Replay {
  std::filesystem::path run, state;
  std::int64_t from = 1;
};

AuditReport report_of(const lab::Audit& audit, const Config& config) {
  return {.text = lab::to_text(audit),
          .json = lab::to_json(audit),
          .html = lab::to_html(audit),
          .notes = config.impl().told.notes,
          .findings = static_cast<std::int64_t>(audit.findings.size()),
          .steps = audit.steps,
          .interrupted = false};
}

AuditReport report_of(const Config& config, weights::ModelSource model, data::Memory data,
                      const Replay& replay, const AuditOptions& options, const OnAuditStep& on_step,
                      const std::stop_token& stop, std::int64_t more = 0, double limit = 100) {
  config::RunConfig run = config.impl().run;
  const std::string whole_rows = config::use_whole_rows(run);
  precision::check_supported(run.policy);
  const auto device = device_for(options.hardware, run.run.threads, options.ranks.local_size());
  const lab::AuditOptions details{.steps = options.steps,
                                  .more = more,
                                  .tries_cures = options.try_cures,
                                  .ranks = &options.ranks.communicator(),
                                  .seconds = limit,
                                  .trial_seconds = limit / 2,
                                  .command = options.command,
                                  .cure_command = options.cure_command};
  std::optional<run::Work> work;
  try {
    work.emplace(run::work_of(run, model, std::move(data), *device, nullptr));
  } catch (const data::NoLabels& e) {
    return report_of(lab::audit_without_labels(run, model.config, e, details), config);
  }
  const lab::Audit audit = lab::audit_run(
      {work->config, model, *work->task, *device, replay.run, replay.state, replay.from}, details,
      [&](const train::StepReport& step, std::int64_t steps) {
        if (on_step) on_step(step.step, steps, step.loss);
      },
      stop);
  if (!options.ranks.leads()) return {};
  AuditReport report = report_of(audit, config);
  if (!whole_rows.empty()) report.notes.push_back(whole_rows);
  for (const std::string& warning :
       plan::rule_warnings(programs::lower_run(work->config, model.config), run.policy, run.run.steps)) {
    const std::vector<std::string>& told = config.impl().told.warnings;
    if (std::ranges::find(told, warning) == told.end()) report.warnings.push_back(warning);
  }
  report.interrupted = audit.interrupted || stop.stop_requested();
  return report;
}

/// Returns ids that are drawn uniformly, enough for some steps.
std::vector<std::int32_t> random_ids(std::int64_t vocabulary, std::int64_t count) {
  const RandomStream stream(1, RandomUse::initial_weights, hash_name("audit"), 0);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = stream.bits(static_cast<std::uint64_t>(i));
    ids.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(vocabulary)));
  }
  return ids;
}

}  // namespace

AuditReport audit(const Config& config, const AuditOptions& options, const OnAuditStep& on_step,
                  std::stop_token stop) {
  return report_of(config, weights::find_run_model(config.impl().run), memory_of(options.data), {}, options,
                   on_step, stop);
}

AuditReport audit_replay(const std::filesystem::path& run, std::int64_t from, const Precision& precision,
                         const AuditOptions& options, const OnAuditStep& on_step, std::stop_token stop) {
  Config config = Config::load(run / "config.toml", options.changes, precision);
  if (options.allow_programs) config = config.allow_programs();
  const std::int64_t steps = config.impl().run.run.steps;
  Replay replay{run, {}, 1};
  std::int64_t before = 0;
  for (const io::FoundState& s : io::find_states(run)) {
    if (s.step >= (from > 0 ? from : steps)) break;
    before = s.step;
    replay.state = s.path;
  }
  replay.from = from > 0 ? from : before + 1;
  if (replay.from > steps)
    throw ConfigError("--from-step {}: expected a step of the run, from 1 to {}", replay.from, steps);
  AuditOptions continued = options;
  if (options.cure_command) {
    continued.cure_command = [&](Cure cure) {
      const std::string from = replay.state.empty() ? "--overwrite" : fmt::format("--resume={}", before);
      cure.arguments.insert(cure.arguments.begin(), from);
      return options.cure_command(cure);
    };
  }
  AuditReport report = report_of(config, weights::find_run_model(config.impl().run), memory_of(options.data),
                                 replay, continued, on_step, stop);
  report.notes.push_back(fmt::format(
      "replayed from {}", replay.state.empty() ? "the beginning of the run" : replay.state.string()));
  return report;
}

AuditReport audit_model(const std::filesystem::path& model, const AuditText& text, const Precision& precision,
                        const AuditOptions& options, const OnAuditStep& on_step, std::stop_token stop) {
  constexpr std::int64_t kRows = 4, kMore = 8;  // steps in place of skipped ones
  constexpr double kSeconds = 50;               // for cures: an audit of 100M parameters ends within a minute
  const weights::ModelSource source = weights::find_model(model);
  const std::int64_t length = std::min(text.sequence_length, source.config.usual_positions());
  const bool bytes = source.config.vocab_size == 256;
  std::vector<std::string> files = text.files;
  if (files.empty()) files = {"kk"};
  for (std::string& file : files)
    file = config::toml_text(file == "kk" ? file : std::filesystem::absolute(file).string());
  Precision used = precision;
  if (!used.policy && used.deepspeed.empty()) used.policy = "16-mixed";
  const std::string toml = fmt::format(
      "[run]\nname = {}\nsteps = {}\n[model]\npath = {}\n[data]\nsource = [{}]\nformat = {}\nsequence_length "
      "= {}\n"
      "[optimizer]\nlr = 1e-5\n[schedule]\nname = \"constant\"\nwarmup_steps = 0\n",
      config::toml_text(last_name(model)), options.steps + kMore,
      config::toml_text(std::filesystem::absolute(model).string()), fmt::join(files, ", "),
      config::toml_text(text.format), length);
  std::vector<std::string> changes = {fmt::format("batch.global_batch_size={}", kRows),
                                      fmt::format("batch.micro_batch_size={}", kRows)};
  changes.insert(changes.end(), options.changes.begin(), options.changes.end());
  const Config config = Config::parse(toml, changes, used);
  data::Memory memory = memory_of(options.data);
  const config::RunConfig& run = config.impl().run;
  const bool random =
      run.data.source == std::vector<std::string>{"kk"} && text.files.empty() && !memory.any() && !bytes;
  if (random) {
    memory.tokens =
        random_ids(source.config.vocab_size, (run.data.sequence_length + 1) * run.batch.global_batch_size *
                                                 (options.steps + kMore + 1) * 2);
  }
  AuditReport report =
      report_of(config, source, std::move(memory), {}, options, on_step, stop, kMore, kSeconds);
  if (random) {
    report.notes.emplace_back(
        "the ids are random: the weights are audited, but activations and losses are not those of text; give "
        "--data");
  }
  return report;
}

}  // namespace mantissa::api
