// mantissa train
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "mantissa/api/error.h"
#include "mantissa/cli/options.h"
#include "mantissa/cli/signal_stop.h"
#include "mantissa/cli/terminal.h"

namespace mantissa::cli {
namespace {

constexpr int kInterrupted = 130;

struct TrainArguments {
  std::string config, out, resume;
  bool overwrite = false, dry_run = false;
};

std::string bytes_text(std::size_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

/// Five lines that a person understands.
void print_summary(const api::Summary& s) {
  fmt::print("\nloss        {:.4f} at the first step, {:.4f} at the last{}\n", s.first_loss, s.final_loss,
             s.validation_loss ? fmt::format(", {:.4f} on held-out rows", *s.validation_loss) : "");
  fmt::print("work        {} steps, {} tokens in {:.1f} s ({:.0f} tokens/s)\n", s.steps, s.tokens, s.seconds,
             static_cast<double>(s.tokens) / s.seconds);
  fmt::print("memory      {} at most; the plan said {}\n", bytes_text(s.measured_peak_bytes),
             bytes_text(s.predicted_peak_bytes));
  fmt::print("precision   {}; {} steps skipped\n", s.policy, s.skipped);
  fmt::print("model       {} (f32, xxh64 {})\n", s.model.string(), s.weights_xxh64);
}

nlohmann::json summary_json(const api::Summary& s) {
  return {{"steps", s.steps},
          {"final_loss", s.final_loss},
          {"validation_loss", s.validation_loss ? nlohmann::json(*s.validation_loss) : nlohmann::json()},
          {"tokens", s.tokens},
          {"seconds", s.seconds},
          {"predicted_peak_bytes", s.predicted_peak_bytes},
          {"measured_peak_bytes", s.measured_peak_bytes},
          {"skipped", s.skipped},
          {"policy", s.policy},
          {"weights_xxh64", s.weights_xxh64},
          {"model", s.model.string()},
          {"interrupted", s.interrupted}};
}

std::optional<std::int64_t> resume_step(const CLI::Option* option, const std::string& text) {
  if (option->count() == 0) return std::nullopt;
  if (text == "latest") return 0;
  std::size_t used = 0;
  std::int64_t step = -1;
  try {
    step = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text.size() || step < 1)
    throw ConfigError(fmt::format("--resume={}: give the step of a state, such as --resume=100", text));
  return step;
}

int run_train(const TrainArguments& a, const std::optional<std::int64_t>& resume,
              const CommonOptions& common) {
  const api::Config config = api::Config::load(a.config, common.set, common.policy(a.dry_run));
  const bool quiet = common.quiet || common.json;
  if (a.dry_run) {
    const api::Plan plan = api::explain(config, common.hardware(), common.targets);
    if (!plan.refusal.empty()) throw ConfigError(plan.refusal);
    fmt::print("{}\n", common.json ? plan.json : plan.text);
    return 0;
  }
  api::TrainOptions options;
  options.out = a.out;
  options.overwrite = a.overwrite;
  options.resume = resume;
  options.hardware = common.hardware();
  if (common.json) common.tell(config.notes(), config.warnings());  // else the table below says it
  StepTable table(quiet);
  const SignalStop signals;
  api::Events events;
  events.on_plan = [&](const api::Plan& p) {
    table.say(fmt::format("plan    {}, about {:.2g} s a step, policy {}", bytes_text(p.predicted_peak_bytes),
                          p.seconds_per_step, p.policy));
  };
  events.on_step = [&](const api::Step& s) { table.show(s); };
  events.on_validation = [&](std::int64_t step, double loss) {
    table.say(fmt::format("{:>6} {:>8.4f} on held-out rows", step, loss));
  };
  events.on_state = [&](std::int64_t step, const std::filesystem::path& path) {
    if (signals.token().stop_requested())
      table.say(
          fmt::format("^C      state of step {} saved in {}; go on with --resume", step, path.string()));
  };
  events.on_note = [&](const std::string& note) { table.say("note    " + note); };
  events.on_warning = [&](const Warning& warning) { table.say("warn    " + warning.str()); };
  const api::Summary summary = api::train(config, options, events, signals.token());
  table.finish();
  if (summary.interrupted && summary.steps == 0)
    table.say("^C      stopped before the first step was done; --resume starts there");
  if (common.json) {
    fmt::print("{}\n", summary_json(summary).dump(2));
  } else if (!summary.interrupted) {
    print_summary(summary);
  }
  return summary.interrupted ? kInterrupted : 0;
}

}  // namespace

void add_train(CLI::App& app, CommonOptions& common, Run& run) {
  CLI::App* command = app.add_subcommand("train", "Train as a config says");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("CONFIG", arguments->config, "The run's config (TOML)")->required();
  command->add_option("--out", arguments->out, "Run directory; the config's run.out where left out");
  CLI::Option* resume =
      command->add_option("--resume", arguments->resume, "Go on from the newest state, or that of a step")
          ->type_name("[=STEP]");
  command->add_flag("--overwrite", arguments->overwrite, "Start anew in a directory that holds a state")
      ->excludes(resume);
  command->add_flag("--dry-run", arguments->dry_run, "Print the plan and stop");
  common.add_to(*command);
  command->footer("Config keys:\n" + api::config_help());
  command->callback([arguments, resume, &common, &run] {
    run = [arguments, resume, &common] {
      return run_train(*arguments, resume_step(resume, arguments->resume), common);
    };
  });
}

}  // namespace mantissa::cli
