// mantissa train
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/fit.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/app/cli/terminal.h"
#include "mantissa/app/cli/together.h"
#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

std::string bytes_text(std::size_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string held_out_text(const api::Summary& s) {
  return s.validation_loss ? fmt::format(", {:.4f} on held-out rows", *s.validation_loss) : "";
}

/// The mean rewards of the rollouts of a run of rl.
struct Rewards {
  std::int64_t first_step = 0;  // 0: there was none
  double first = 0, last = 0;
  std::optional<double> held_out;

  void see(const api::Step& s) {
    for (const auto& [name, value] : s.metrics) {
      if (name != "reward") continue;
      if (first_step == 0) first_step = s.step, first = value;
      last = value;
    }
  }
  void see_held_out(const api::Metrics& metrics) {
    for (const auto& [name, value] : metrics) {
      if (name == "reward") held_out = value;
    }
  }
};

std::string at_step(std::int64_t step) {
  return step == 1 ? "at the first step" : fmt::format("at step {}", step);
}

/// Prints five lines. The policy's line is at the top of the run, unless that was `quiet`.
void print_summary(const api::Summary& s, const Rewards& rewards, bool quiet) {
  if (rewards.first_step > 0) {
    fmt::print("\nreward      {:.4f} {}, {:.4f} at the last rollout{}\n", rewards.first,
               at_step(rewards.first_step), rewards.last,
               rewards.held_out ? fmt::format(", {:.4f} on held-out prompts", *rewards.held_out) : "");
  } else if (s.steps_here > 0) {
    fmt::print("\nloss        {:.4f} {}, {:.4f} at the last{}\n", s.first_loss, at_step(s.first_loss_step),
               s.final_loss, held_out_text(s));
  }
  if (s.steps_here == 0) {
    fmt::print("\nloss        {:.4f} at the last step{}\n", s.final_loss, held_out_text(s));
    fmt::print("work        the run was already complete: {}\n", counted(s.steps, "step"));
  } else {
    const std::string steps = s.steps_here < s.steps
                                  ? fmt::format("{} of {}", s.steps_here, counted(s.steps, "step"))
                                  : counted(s.steps_here, "step");
    fmt::print("work        {}, {} in {:.1f} s ({:.0f} tokens/s)\n", steps, counted(s.tokens_here, "token"),
               s.seconds, static_cast<double>(s.tokens_here) / s.seconds);
  }
  fmt::print("memory      {} peak; {} predicted\n", bytes_text(s.measured_peak_bytes),
             bytes_text(s.predicted_peak_bytes));
  fmt::print("precision   {}; {} skipped\n", quiet ? s.policy : s.policy_name, counted(s.skipped, "step"));
  if (s.fallback_share > 0) {
    fmt::print("units       {:.2g} % of the blocks of products by FMA: a subnormal number could occur\n",
               100 * s.fallback_share);
  }
  fmt::print("{:<11} {} ({}, xxh64 {})\n", s.model.filename().string(), printable(s.model.string()),
             s.model_format, s.weights_xxh64);
}

nlohmann::json summary_json(const api::Summary& s, const std::vector<std::string>& notes) {
  nlohmann::json findings = nlohmann::json::array();
  for (const Warning& w : s.findings) {
    nlohmann::json cures = nlohmann::json::array();
    for (const Cure& cure : w.cures) cures.push_back(cure.arguments);
    findings.push_back({{"text", w.text}, {"cures", std::move(cures)}});
  }
  return {{"steps", s.steps},
          {"final_loss", s.final_loss},
          {"validation_loss", s.validation_loss ? nlohmann::json(*s.validation_loss) : nlohmann::json()},
          {"tokens", s.tokens},
          {"seconds", s.seconds},
          {"predicted_peak_bytes", s.predicted_peak_bytes},
          {"measured_peak_bytes", s.measured_peak_bytes},
          {"skipped", s.skipped},
          {"findings", std::move(findings)},
          {"notes", notes},
          {"policy", s.policy},
          {"weights_xxh64", s.weights_xxh64},
          {"model", s.model.string()},
          {"interrupted", s.interrupted}};
}

/// Returns the step of --resume=STEP, 0 for the newest state, or null without --resume.
std::optional<std::int64_t> resume_step(const Arguments& a) {
  if (!a.has("--resume")) return std::nullopt;
  const std::string text = a.text("--resume");
  if (text.empty() || text == "latest") return 0;
  const auto step = number_in<std::int64_t>(text);
  if (!step || *step < 1)
    throw ConfigError("--resume={}: must be the step of a state, such as --resume=100", text);
  return step;
}

/// Returns the values of --set, and of the options that stand for one.
std::vector<std::string> settings_of(const Arguments& a) {
  std::vector<std::string> all = a.texts("--set");
  for (const auto& [option, key] :
       {std::pair{"--on-nonfinite", "run.on_nonfinite"}, {"--skip-batches", "run.skip_batches"}}) {
    if (a.has(option)) all.push_back(fmt::format("{}={}", key, a.text(option)));
  }
  return all;
}

int dry_run(const Arguments& a, const api::Config& config) {
  const int size = ranks().size(), here = ranks().local_size();
  const int nodes = size % here == 0 ? size / here : 1;
  const api::Plan plan =
      api::explain(config, hardware_of(a), a.texts("--target"), {}, {size, nodes, {}, here});
  if (!plan.refusal.empty()) throw ConfigError(plan.refusal);
  fmt::print("{}\n", a.has("--json") ? plan.json : fit(plan.text, terminal_columns()));
  return 0;
}

/// Returns the text, followed by whole commands.
std::string with_cures(const Arguments& a, const Warning& warning) {
  std::string text = warning.text;
  for (std::size_t i = 0; i < warning.cures.size(); ++i) {
    const Cure& cure = warning.cures[i];
    text += fmt::format("; {}{}:\n        {}", i == 0 ? "fix" : "or",
                        cure.remark().empty() ? "" : fmt::format(" ({})", cure.remark()), a.with(cure));
  }
  return text;
}

/// Returns the measurements on held-out data.
std::string held_out_text(std::int64_t step, const api::Metrics& metrics) {
  constexpr std::size_t kColumns = 80;
  std::vector<std::string> items;
  for (const auto& [name, value] : metrics) items.push_back(fmt::format("{}={:.4g}", name, value));
  return wrapped(fmt::format("{:>6} held-out: {}", step, fmt::join(items, " ")), 17, kColumns);
}

/// Returns the events that `table` shows.
api::Events events_of(const Arguments& a, StepTable& table, Rewards& rewards, const SignalStop& signals) {
  api::Events events;
  events.on_plan = [&](const api::Plan& p) {
    table.say(fmt::format("plan    {}, about {:.2g} s a step, policy {}", bytes_text(p.predicted_peak_bytes),
                          p.seconds_per_step, p.policy));
  };
  events.on_step = [&](const api::Step& s) {
    rewards.see(s);
    table.show(s);
  };
  events.on_validation = [&](std::int64_t step, double loss) {
    table.say(fmt::format("{:>6} {:>8.4f} on held-out rows", step, loss));
  };
  events.on_measurements = [&](std::int64_t step, const api::Metrics& metrics) {
    rewards.see_held_out(metrics);
    table.say(held_out_text(step, metrics));
  };
  events.on_state = [&](std::int64_t step, const std::filesystem::path& path) {
    if (!signals.token().stop_requested()) return;
    table.say(fmt::format("{:<7} state of step {} saved in {}; to continue:\n        {}", signals.reason(),
                          step, path.string(), a.with({{"--resume"}})));
  };
  events.on_note = [&](const std::string& note) { table.say("note    " + note); };
  events.on_warning = [&](const Warning& warning) {
    table.say(as_warning("warn") + "    " + with_cures(a, warning));
  };
  return events;
}

/// Trains, and appends the printed notes to `notes`. If the run stops by itself, prints the command that
/// shows why.
api::Summary trained(const Arguments& a, const api::Config& config, const api::TrainOptions& options,
                     StepTable& table, Rewards& rewards, const SignalStop& signals,
                     std::vector<std::string>& notes) {
  const std::filesystem::path out = options.out.empty() ? config.out() : options.out;
  try {
    api::Events events = events_of(a, table, rewards, signals);
    events.on_note = [&, show = std::move(events.on_note)](const std::string& note) {
      notes.push_back(note);
      show(note);
    };
    return api::train(config, options, events, signals.token());
  } catch (const ProgramFailed&) {  // an audit observes the model, not the reward program
    throw;
  } catch (const RunStopped&) {
    const std::vector<std::string> audit = {a.program(), "audit", out.string(), "--from-step", "last-good"};
    table.say("note    to see why, with the values of every op: " + shell_words(audit));
    throw;
  }
}

/// Reads the config of a run. `train` has every objective but rl, and `rl` only that one, which it also gives
/// to a config without an objective.
api::Config load_run(const Arguments& a, bool online) {
  std::vector<std::string> settings = settings_of(a);
  const auto load = [&] {
    return allowed(a, api::Config::load(a.at(0), settings, precision_of(a), !online));
  };
  api::Config config = load();
  if (online && config.objective() == "pretrain") {
    settings.emplace_back("train.objective=rl");
    config = load();
  }
  if (online == (config.objective() == "rl")) return config;
  throw ConfigError(online ? fmt::format("{}: train.objective is \"{}\". Fix: mantissa train {}", a.at(0),
                                         config.objective(), a.at(0))
                           : fmt::format("{}: the objective is reinforcement learning. Fix: mantissa rl {}",
                                         a.at(0), a.at(0)));
}

int run(const Arguments& a, bool online) {
  if (a.has("--resume") && a.has("--overwrite"))
    throw ConfigError("--resume continues a run and --overwrite restarts it; give only one of them");
  if (a.has("--target") && !a.has("--dry-run"))
    throw ConfigError("--target: not available for runs; use explain, or train --dry-run");
  const api::Config config = load_run(a, online);
  if (a.has("--dry-run")) return dry_run(a, config);
  api::TrainOptions options;
  options.out = a.text("--out");
  options.overwrite = a.has("--overwrite");
  options.resume = resume_step(a);
  options.hardware = hardware_of(a);
  options.ranks = ranks();
  if (a.has("--json")) tell(a, config.notes(), config.warnings());  // otherwise the table prints them
  const PipeErrors pipes;
  const SignalStop signals;  // must be created before any other thread
  StepTable table(a.has("--quiet") || a.has("--json"));
  Rewards rewards;
  std::vector<std::string> notes;
  const api::Summary summary = trained(a, config, options, table, rewards, signals, notes);
  if (summary.interrupted && summary.steps == 0) {
    table.say(fmt::format("{:<7} stopped before the first step was completed; to continue:\n        {}",
                          signals.reason(), a.with({{"--resume"}})));
  }
  table.finish();
  if (a.has("--json")) {
    fmt::print("{}\n", summary_json(summary, notes).dump(2));
  } else if (!summary.interrupted) {
    print_summary(summary, rewards, a.has("--quiet"));
    for (const Warning& finding : summary.findings)
      fmt::print("{}        {}\n", as_warning("warn"), with_cures(a, finding));
  }
  return summary.interrupted ? kInterrupted : 0;
}

int train(const Arguments& a) {
  return run(a, false);
}

int rl(const Arguments& a) {
  return run(a, true);
}

constexpr Option kOptions[] = {
    {"--out", one, "DIR", "run directory; default: run.out of the config"},
    {"--resume", maybe, "STEP", "continue from the newest state, or that of a step"},
    {"--overwrite", "start over in a directory that contains a state"},
    {"--on-nonfinite", one, "stop|skip|continue", "as --set run.on_nonfinite=…"},
    {"--skip-batches", one, "STEPS", "as --set run.skip_batches=…: 7,9-12"},
    {"--dry-run", "print the plan without training"},
};

}  // namespace

Commands train_commands() {
  return {
      {.name = "train",
       .summary = "train by a config, and write a run directory",
       .positionals = {{"CONFIG", "the run's config, a TOML file"}},
       .details = "A run directory with a state or a model is overwritten only with --overwrite. Ctrl-C ends "
                  "the run after writing its state; the same command with --resume continues it and ends "
                  "with the same bytes.",
       .options = {kOptions},
       .groups = {kPrecision, kRules, kSet, kAllowPrograms, kTarget, kHardware, kResults},
       .run = train,
       .shared = true},
      {.name = "rl",
       .summary = "train by reinforcement learning: sample responses, reward them by a rule, and optimize "
                  "the policy",
       .positionals = {{"CONFIG", "the run's config, a TOML file with [rl]"}},
       .details = "Like train, with samples.jsonl in the run directory: the responses of every rollout and "
                  "their rewards.",
       .options = {kOptions},
       .groups = {kPrecision, kRules, kSet, kAllowPrograms, kTarget, kHardware, kResults},
       .run = rl,
       .shared = true}};
}

}  // namespace mantissa::cli
