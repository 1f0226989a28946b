// mantissa inspect, diff, convert, merge, loss-scale, objective, reward, runs
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/fit.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/app/cli/terminal.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"

namespace mantissa::cli {
namespace {

/// Returns the scaler of --deepspeed, modified by the other options.
api::LossScaleOptions scaler_of(const Arguments& a) {
  api::LossScaleOptions o;
  const std::string deepspeed = a.text("--deepspeed");
  if (!deepspeed.empty()) {
    const api::LossScaleFile file = api::read_loss_scale(deepspeed);
    tell(a, {}, file.warnings);
    o = file.options;
  }
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  if (a.has("--torch")) o.torch = true;
  const bool moves = a.has("--initial-scale-power") || a.has("--window");
  if (moves) o.constant = 0;
  if (a.has("--initial-scale-power"))
    o.initial_scale_power = static_cast<int>(a.integer("--initial-scale-power", 0, 127));
  if (a.has("--window")) o.window = a.integer("--window", 1, kMany);
  if (a.has("--hysteresis")) o.hysteresis = a.integer("--hysteresis", 1, kMany);
  if (a.has("--consecutive-hysteresis")) o.consecutive_hysteresis = true;
  if (a.has("--min-scale")) o.min_scale = a.number("--min-scale");
  if (!(o.min_scale > 0)) throw ConfigError("--min-scale {}: must be above 0", o.min_scale);
  if (a.has("--no-raise-error-at-min-scale")) o.raise_at_min = false;
  o.overflows = a.text("--overflows");
  o.metrics = a.text("--from");
  return o;
}

int inspect(const Arguments& a) {
  const api::Inspection i = api::inspect(a.at(0), hardware_of(a));
  fmt::print("{}\n", a.has("--json") ? i.json : fit(i.text, terminal_columns()));
  return 0;
}

int diff(const Arguments& a) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const auto limit = static_cast<std::size_t>(a.integer("--limit", 1, kMost));
  try {
    const api::Diff d = api::diff({a.at(0), a.at(1), a.has("--bitwise"), limit, hardware_of(a)});
    if (a.has("--json")) {
      fmt::print("{}\n", d.json);
    } else if (a.has("--quiet")) {
      fmt::print("{}\n", d.verdict);
      for (const std::string& line : d.more) fmt::print("{}\n", line);
    } else {
      fmt::print("{}\n", fit(d.text, terminal_columns()));
    }
    flush_output();
    constexpr int kFault = 3;
    return d.equal ? 0 : d.beyond_rounding ? kFault : 1;
  } catch (const ResourceError& e) {  // exit code 1 means that A and B differ
    throw FileError(e.message());
  } catch (const std::system_error& e) {  // thrown by fmt::print
    if (std::ferror(stdout) == 0) throw;
    throw FileError(output_error(e.code().value()));
  }
}

/// Returns the value of --dtype, or "" without the option.
std::string dtype_of(const Arguments& a) {
  std::string dtype = a.text("--dtype");
  if (a.has("--dtype") && dtype.empty()) {
    throw ConfigError(
        "--dtype \"\": expected a number format, got an empty value. Fix: --dtype bf16, or remove --dtype");
  }
  return dtype;
}

int convert(const Arguments& a) {
  api::ConvertOptions o;
  o.in = a.at(0);
  o.out = a.at(1);
  o.dtype = dtype_of(a);
  o.format = a.text("--format");
  o.rounding = a.text("--rounding");
  o.saturate = a.has("--saturate");
  o.allow_overflow = a.has("--allow-overflow");
  o.overwrite = a.has("--overwrite");
  o.seed = a.seed();
  o.data = a.texts("--data");
  o.data_format = a.text("--data-format");
  o.sequence_length = a.integer("--sequence-length", 1, std::int64_t{1} << 24);
  o.precision = precision_of(a);
  o.hardware = hardware_of(a);
  if (o.data.empty() && (a.has("--precision") || a.has("--rule") || a.has("--deepspeed")))
    throw ConfigError("convert: --precision, --rule and --deepspeed require --data; remove them");
  if (!o.data.empty()) tell_policy(a);
  const SignalStop signals;
  const api::Conversion c = api::convert(o, signals.token());
  tell(a, {}, c.warnings);
  if (c.interrupted && c.tensors.empty())
    return report_interrupt(signals, fmt::format("{} was not written", o.out.string()));
  fmt::print("{}\n", a.has("--json") ? c.json : fit(c.text, terminal_columns()));
  if (c.interrupted)
    return report_interrupt(signals, fmt::format("{} is complete, but was not compared", o.out.string()));
  return 0;
}

int merge(const Arguments& a) {
  api::MergeOptions o;
  o.model = a.at(0);
  o.adapter = a.at(1);
  o.out = a.at(2);
  o.dtype = dtype_of(a);
  o.base = a.text("--base");
  o.overwrite = a.has("--overwrite");
  o.hardware = hardware_of(a);
  const SignalStop signals;
  const api::Merge m = api::merge(o, signals.token());
  tell(a, {}, m.warnings);
  if (m.interrupted) return report_interrupt(signals, fmt::format("{} was not written", o.out.string()));
  fmt::print("{}\n", a.has("--json") ? m.json : fit(m.text, terminal_columns()));
  return 0;
}

int objective(const Arguments& a) {
  for (const char* option : {"--in", "--out"}) {
    if (!a.has(option)) throw ConfigError("objective: requires {} FILE.safetensors", option);
  }
  const api::ObjectiveReplay r = api::replay_objective({.name = a.at(0),
                                                        .in = a.text("--in"),
                                                        .out = a.text("--out"),
                                                        .changes = a.texts("--set"),
                                                        .overwrite = a.has("--overwrite")});
  tell(a, r.notes, {});
  fmt::print("{}\n", a.has("--json") ? r.json : fit(r.text, terminal_columns()));
  return 0;
}

int loss_scale(const Arguments& a) {
  if (a.has("--torch") &&
      (a.has("--hysteresis") || a.has("--consecutive-hysteresis") || a.has("--min-scale"))) {
    throw ConfigError(
        "--torch: PyTorch's rule has no hysteresis and no minimum; remove --hysteresis, "
        "--consecutive-hysteresis and --min-scale");
  }
  const api::LossScaleReplay r = api::replay_loss_scale(scaler_of(a));
  if (a.has("--json")) {
    nlohmann::json out = {{"scales", r.scales}, {"hysteresis", r.hysteresis}};
    if (!r.error.empty()) out["error"] = r.error;
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("{:>6} {:>10} {:>11}\n", "step", "scale", "hysteresis");
  for (std::size_t i = 0; i < r.scales.size(); ++i)
    fmt::print("{:>6} {:>10} {:>11}\n", i + 1, power_text(r.scales[i]), r.hysteresis[i]);
  if (!r.error.empty()) fmt::print("{}\n", r.error);
  return 0;
}

int reward(const Arguments& a) {
  const std::string file = a.text("--responses");
  if (file.empty())
    throw ConfigError(
        "reward: requires --responses FILE, JSON or CSV with \"response\" and the row's fields");
  api::RewardOptions options;
  options.timeout = a.number("--timeout");
  if (!(options.timeout > 0)) throw ConfigError("--timeout {}: must be above 0", options.timeout);
  const SignalStop signals;
  const api::Rewards rewards = api::score_responses(a.at(0), file, options, signals.token());
  if (rewards.interrupted) return report_interrupt(signals, "no reward is printed");
  if (!a.has("--json")) {
    for (const api::Reward& r : rewards.all) fmt::print("{}\n", r.total);
    return 0;
  }
  auto totals = nlohmann::ordered_json::array(), parts = nlohmann::ordered_json::array();
  for (const api::Reward& r : rewards.all) {
    totals.push_back(r.total);
    auto& of = parts.emplace_back(nlohmann::ordered_json::object());
    for (const auto& [name, value] : r.parts) of[name] = value;
  }
  fmt::print("{}\n", nlohmann::ordered_json{{"rewards", totals}, {"parts", parts}}.dump());
  return 0;
}

int runs(const Arguments& a) {
  const std::string& folder = a.at(0);
  const api::RunList list = api::list_runs(folder.empty() ? "." : folder);
  fmt::print("{}\n", a.has("--json") ? list.json : fit(list.text, terminal_columns()));
  flush_output();
  // Also with --quiet: the list is not whole.
  for (const std::string& warning : list.warnings)
    print_message(Message::warning, fmt::format("mantissa: warning: {}\n", printable(warning)));
  return 0;
}

}  // namespace

Commands file_commands() {
  static const std::string rules = fmt::format("{}, as in rl.reward", api::reward_rules_text());
  return {
      {.name = "inspect",
       .summary = "describe a checkpoint: ranges, origin, outliers, and the loss of a cast to each format",
       .positionals = {{"PATH", "a safetensors, PyTorch or GGUF file, a model directory, a state, or a run"}},
       .groups = {kHardware, kResults},
       .run = inspect},
      {.name = "diff",
       .summary = "find the first step, op or tensor that differs between two runs, checkpoints or traces",
       .positionals = {{"A", "a run, a state, a model directory, a safetensors or PyTorch file, or a trace"},
                       {"B", "another one of the same kind as A"}},
       .details = "Exit code 0: equal; 1: different; 2: A or B cannot be read, or they cannot be compared.",
       .options = {{"--bitwise", "compare bytes instead of values, and print one line"},
                   {"--limit", one, "N", "largest number of tensors in the text", "6"}},
       .groups = {kHardware, kResults},
       .run = diff,
       .errors_are_2 = true},
      {.name = "convert",
       .summary = "rewrite a checkpoint in another format, and report the errors",
       .positionals =
           {{"IN",
             "a safetensors, PyTorch or GGUF file, a model directory, a state, a run, or an adapter for OUT.gguf"},
            {"OUT", "the file or directory to write"}},
       .options =
           {kData,
            {"--dtype", one, "FORMAT",
             "f64, f32, tf32, bf16, f16, e4m3, e5m2, mxfp8, mxfp8-e5m2, mxfp6-e2m3, mxfp6-e3m2, mxfp4 or "
             "nvfp4, or q8_0, q6_k, q5_k, q4_k, q4_0, q3_k or mxfp4 for a GGUF "
             "file; default: tensors keep their formats"},
            {"--format", one, "hf|pth|gguf",
             "layout of the output: safetensors, PyTorch, or one GGUF file; default: gguf or pth if OUT "
             "ends in .gguf, .pth, .pt or .bin, else hf"},
            {"--rounding", one, "nearest|stochastic|toward-zero", "rounding of the values", "nearest"},
            {"--saturate", "values beyond the range become the largest of the format"},
            {"--allow-overflow", "no warning for values that become inf or NaN"},
            {"--overwrite", "replace an existing file or model at OUT"},
            {"--seed", one, "S", "seed of stochastic rounding", "1"},
            data_format("--data-format", "format of the data files"),
            {"--sequence-length", one, "T", "tokens per row of the data", "256"}},
       .groups = {kPrecision, kRules, kHardware, kResults},
       .run = convert},
      {.name = "merge",
       .summary = "add an adapter into its base, and report what rounding lost",
       .positionals = {{"MODEL", "the base, a model directory"},
                       {"ADAPTER", "a directory of peft, or a run with an adapter"},
                       {"OUT", "the directory to write"}},
       .options = {kBase,
                   {"--dtype", one, "FORMAT",
                    "f64, f32, bf16, f16 or another plain format for all weights; default: those of MODEL"},
                   {"--overwrite", "replace an existing model at OUT"}},
       .groups = {kHardware, kResults},
       .run = merge},
      {.name = "loss-scale",
       .summary = "replay overflows, and print the loss scale after every step",
       .details = "Give exactly one of --overflows and --from.",
       .options = {{"--overflows", one, "BITS", "a 1 for every step that overflows, else 0"},
                   {"--from", one, "FILE", "read the overflows from a run's metrics.jsonl"},
                   {"--torch", "PyTorch's rule: no hysteresis, no minimum, window 2000"},
                   {"--initial-scale-power", one, "P", "the initial scale is 2 to this power", "16"},
                   {"--window", one, "W", "clean steps before the scale doubles", "1000"},
                   {"--hysteresis", one, "H", "overflows before the scale halves", "2"},
                   {"--consecutive-hysteresis", "a clean step resets the count of overflows"},
                   {"--min-scale", one, "M", "smallest scale", "1"},
                   {"--no-raise-error-at-min-scale", "stay at the minimum instead of stopping"},
                   {"--deepspeed", one, "FILE", "DeepSpeed JSON with the loss scaler to replay"}},
       .groups = {kResults},
       .run = loss_scale},
      {.name = "objective",
       .summary = "compute a post-training objective and its gradients from saved tensors, for comparison",
       .positionals = {{"OBJECTIVE",
                        "ppo, grpo, dr-grpo, reinforce++, reinforce++-baseline, rloo, dpo or reward"}},
       .details = "Requires --in and --out. Tensors of [N, T]: log_probs, old_log_probs, ref_log_probs, "
                  "mask, values, old_values, rewards (or [N]); groups [N]. dpo: rows 2i are chosen, rows "
                  "2i + 1 rejected. reward: scores [N] in such pairs, margin [N/2].",
       .options = {{"--in", one, "FILE", "safetensors file with the input tensors"},
                   {"--out", one, "FILE", "safetensors file to write"},
                   {"--overwrite", "replace an existing file that is not a result of objective"},
                   {"--set", list, "KEY=VALUE", "set a key of [rl], or of [dpo] for dpo; repeatable"}},
       .groups = {kResults},
       .run = objective},
      {.name = "reward",
       .summary = "score responses by a rule, and print one reward for each row",
       .positionals = {{"RULE", rules}},
       .details = "kk needs \"solution_text_format\", and the response contains \"Assistant:\" or the chat "
                  "marker. exact and a {answer} in a pattern need \"answer\", \"completion\" or "
                  "\"solution\". A program reads JSON lines and writes one with \"reward\" for each.",
       .options = {{"--responses", one, "FILE",
                    "JSON or CSV with \"response\" and the fields of the data row"},
                   {"--timeout", one, "SECONDS", "time that a program may take for 256 responses", "600"}},
       .groups = {kResults},
       .run = reward},
      {.name = "runs",
       .summary = "list the runs in a folder: state, steps, losses, policy, the newest first",
       .positionals = {{"[FOLDER]", "the folder to search, at any depth; default: this one"}},
       .details =
           "A stopped run continues with mantissa train CONFIG --resume; saved is the step of its newest state.",
       .groups = {kResults},
       .run = runs}};
}

}  // namespace mantissa::cli
