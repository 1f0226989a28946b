// mantissa explain, trace, doctor
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/fit.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/app/cli/together.h"

namespace mantissa::cli {
namespace {

api::PlanRanks ranks_of(const Arguments& a) {
  constexpr int kMost = 1 << 20;
  api::PlanRanks ranks;
  if (a.has("--ranks")) ranks.ranks = static_cast<int>(a.integer("--ranks", 1, kMost));
  if (a.has("--nodes")) ranks.nodes = static_cast<int>(a.integer("--nodes", 1, kMost));
  ranks.network = a.text("--network");
  if (ranks.ranks % ranks.nodes != 0)
    throw ConfigError("--nodes {}: {} ranks do not divide equally. Fix: a divisor of --ranks", ranks.nodes,
                      ranks.ranks);
  return ranks;
}

/// Prints a policy as the settings of another system: only these on standard output.
int emit(const Arguments& a, const api::Emitted& emitted) {
  if (a.has("--json")) {
    fmt::print("{}\n", nlohmann::json{{"settings", emitted.settings}, {"missing", emitted.missing}}.dump());
    return 0;
  }
  fmt::print("{}", emitted.settings);
  std::fflush(stdout);
  for (const std::string& missing : emitted.missing)
    print_message(Message::note, fmt::format("mantissa: note: not expressed: {}\n", missing));
  return 0;
}

int explain(const Arguments& a) {
  const std::filesystem::path what = a.at(0);
  if (a.has("--emit")) {
    const std::string system = a.text("--emit");
    if (!is_config(what) && !a.has("--precision") && !a.has("--deepspeed"))
      throw ConfigError(
          "--emit {}: {} has no policy; give --precision, or the config of a run (RUN/config.toml)", system,
          what.string());
    if (!is_config(what)) {
      tell_policy(a, true);
      return emit(a, api::emitted(precision_of(a), system));
    }
    const api::Config config = api::Config::load(what, a.texts("--set"), precision_of(a));
    tell(a, config.notes(), config.warnings());
    return emit(a, config.emitted(system));
  }
  const std::vector<std::string> targets = a.texts("--target");
  api::Plan plan;
  if (is_config(what)) {
    plan = api::explain(api::Config::load(what, a.texts("--set"), precision_of(a)), hardware_of(a), targets,
                        {}, ranks_of(a));
  } else {
    for (const char* option : {"--ranks", "--nodes", "--network"}) {
      if (a.has(option))
        throw ConfigError("{}: ranks share the training of a config; give one, or remove it", option);
    }
    if (a.has("--set"))
      throw ConfigError("--set: explain of a model directory has no config; remove the option");
    plan = api::explain_model(what, precision_of(a), hardware_of(a), targets);
  }
  if (a.has("--json")) {
    fmt::print("{}\n", plan.json);
  } else {
    print_with_headings(fit(plan.text, terminal_columns()) + "\n");
  }
  return 0;
}

int trace(const Arguments& a) {
  api::TraceOptions t;
  t.model = model_of(a);
  t.tokens = a.text("--tokens");
  t.out = a.text("--out");
  if (t.tokens.empty() || t.out.empty()) throw ConfigError("trace: requires --tokens FILE and --out FILE");
  tell_model(a);
  t.overwrite = a.has("--overwrite");
  t.grads = a.has("--grads");
  t.values = a.text("--values");
  t.unconverted = a.texts("--unconverted");
  t.precision = precision_of(a);
  t.hardware = hardware_of(a);
  tell_policy(a, t.grads);
  const SignalStop signals;
  const api::Trace r = api::trace(t, signals.token());
  if (r.interrupted) return report_interrupt(signals, t.out.string() + " was not written");
  if (r.predicted == 0) {
    print_message(
        Message::warning,
        fmt::format(
            "mantissa: warning: {}: every label is masked (-100), so the loss and all gradients are 0; "
            "omit the labels to predict each next id\n",
            t.tokens.string()));
  }
  if (a.has("--json")) {
    fmt::print("{}\n",
               nlohmann::json{{"loss", r.loss}, {"predicted", r.predicted}, {"out", t.out.string()}}.dump());
  } else if (!a.has("--quiet")) {
    fmt::print("loss {:.9g}, written to {}\n", r.loss, t.out.string());
  }
  return 0;
}

int doctor(const Arguments& a) {
  const api::Doctor d = api::doctor(hardware_of(a), ranks());
  fmt::print("{}\n", a.has("--json") ? d.json : fit(d.text, terminal_columns()));
  return 0;
}

}  // namespace

Commands plan_commands() {
  return {
      {.name = "trace",
       .summary = "write the tensors of one forward (and backward) pass, for comparison",
       .positionals = {{"MODEL", "a Hugging Face directory, a GGUF file, or a run"}},
       .options = {kAdapter,
                   {"--tokens", one, "FILE", "safetensors file with input_ids [B, T] and optional labels"},
                   {"--out", one, "FILE", "safetensors file to write"},
                   {"--overwrite", "replace an existing file that is not a trace"},
                   {"--grads", "also write the gradients of all weights"},
                   {"--values", one, "GLOB", "also write these values of the plan"},
                   {"--unconverted", each, "NAME",
                    "keep these tensors in the format they were rounded to; repeatable"}},
       .groups = {kPrecision, kRules, kHardware, kResults},
       .run = trace},
      {.name = "explain",
       .summary = "print the precision plan, memory and time without running",
       .positionals = {{"CONFIG|MODEL", "a run's config (.toml), a model directory, a GGUF file, or a run"}},
       .details =
           "A config is explained as training; a model as generation or, with --deepspeed, as training.",
       .options =
           {{"--emit", one, "SYSTEM",
             "print the policy as settings of te, torchtitan, megatron or deepspeed, and nothing else"},
            {"--ranks", one, "N", "also forecast a run that N ranks of mpirun share", "1"},
            {"--nodes", one, "N", "machines of these ranks", "1"},
            {"--network", one, "FILE", "their network: the output of mpirun mantissa doctor --json"}},
       .groups = {kPrecision, kRules, kSet, kTarget, kHardware, kResults},
       .run = explain}};
}

Commands doctor_commands() {
  return {{.name = "doctor",
           .summary = "describe this machine, the cost of each format, and a suitable preset",
           .details = "Under mpirun or srun it also measures the network between the processes.",
           .groups = {kHardware, kResults},
           .run = doctor,
           .shared = true}};
}

}  // namespace mantissa::cli
