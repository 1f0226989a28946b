// mantissa inspect, convert, loss-scale
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/api/error.h"
#include "mantissa/cli/options.h"
#include "mantissa/cli/signal_stop.h"

namespace mantissa::cli {
namespace {

/// These commands look at files and numbers; a policy or a config would do nothing.
void refuse_run_options(const CommonOptions& common, const char* command) {
  if (common.precision || !common.rules.empty() || !common.set.empty() || !common.deepspeed.empty() ||
      !common.targets.empty()) {
    throw ConfigError(
        fmt::format("{}: --precision, --rule, --set, --deepspeed and --target say nothing to this command; "
                    "leave them out",
                    command));
  }
}

/// "2^16", or the number where it is no power of two.
std::string scale_text(double scale) {
  int power = 0;
  return std::frexp(scale, &power) == 0.5 ? fmt::format("2^{}", power - 1) : fmt::format("{:g}", scale);
}

int run_loss_scale(const api::LossScaleOptions& options, const CommonOptions& common) {
  refuse_run_options(common, "loss-scale");
  const api::LossScaleReplay r = api::replay_loss_scale(options);
  if (common.json) {
    nlohmann::json out = {{"scales", r.scales}, {"hysteresis", r.hysteresis}};
    if (!r.error.empty()) out["error"] = r.error;
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("{:>6} {:>10} {:>11}\n", "step", "scale", "hysteresis");
  for (std::size_t i = 0; i < r.scales.size(); ++i)
    fmt::print("{:>6} {:>10} {:>11}\n", i + 1, scale_text(r.scales[i]), r.hysteresis[i]);
  if (!r.error.empty()) fmt::print("{}\n", r.error);
  return 0;
}

int run_convert(api::ConvertOptions options, const CommonOptions& common) {
  constexpr int kInterrupted = 130;
  if (options.data.empty()) {
    refuse_run_options(common, "convert without --data");
  } else if (!common.set.empty()) {
    throw ConfigError("convert: --set changes a config, and there is none here; leave it out");
  }
  options.precision = common.policy();
  options.hardware = common.hardware();
  if (!options.data.empty()) common.tell_policy();
  const SignalStop signals;
  const api::Conversion c = api::convert(options, signals.token());
  common.tell({}, c.warnings);
  if (c.interrupted) return kInterrupted;
  fmt::print("{}\n", common.json ? c.json : c.text);
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, CommonOptions& common, Run& run) {
  CLI::App* command =
      app.add_subcommand("inspect", "Tensors of a checkpoint: ranges, origin, what a cast would lose");
  auto path = std::make_shared<std::string>();
  command->add_option("PATH", *path, "A safetensors file, a model directory, or a run")->required();
  common.add_to(*command);
  command->callback([path, &common, &run] {
    run = [path, &common] {
      refuse_run_options(common, "inspect");
      const api::Inspection i = api::inspect(*path, common.hardware());
      fmt::print("{}\n", common.json ? i.json : i.text);
      return 0;
    };
  });
}

void add_convert(CLI::App& app, CommonOptions& common, Run& run) {
  CLI::App* command =
      app.add_subcommand("convert", "Rewrite a checkpoint in another format, and say what that did to it");
  auto o = std::make_shared<api::ConvertOptions>();
  command->add_option("IN", o->in, "A safetensors file, a model directory, a state or a run")->required();
  command->add_option("OUT", o->out, "The file or directory to write")->required();
  command
      ->add_option(
          "--dtype", o->dtype,
          "f64, f32, tf32, bf16, f16, e4m3, e5m2, mxfp8, mxfp8-e5m2, mxfp4 or nvfp4; left out: as it is")
      ->type_name("FORMAT");
  command->add_option("--format", o->format, "Layout: hf")->capture_default_str();
  command->add_option("--rounding", o->rounding, "nearest, stochastic or toward-zero")->capture_default_str();
  command->add_flag("--saturate", o->saturate, "Values beyond the range become the largest of the format");
  command->add_flag("--allow-overflow", o->allow_overflow, "No warning where values become inf or nan");
  command->add_flag("--overwrite", o->overwrite, "Replace the file or model that stands at OUT");
  command->add_option("--seed", o->seed, "Of stochastic rounding")
      ->capture_default_str()
      ->check(whole_seed());
  command->add_option("--data", o->data, "Files, globs or kk: loss before and after, KL divergence");
  command->add_option("--data-format", o->data_format, "auto, text, jsonl or tokens")->capture_default_str();
  command->add_option("--sequence-length", o->sequence_length, "Tokens of a row of the data")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  common.add_to(*command);
  command->callback([o, &common, &run] { run = [o, &common] { return run_convert(*o, common); }; });
}

void add_loss_scale(CLI::App& app, CommonOptions& common, Run& run) {
  CLI::App* command = app.add_subcommand("loss-scale", "Replay overflows: the loss scale after every step");
  auto o = std::make_shared<api::LossScaleOptions>();
  command->add_flag("--torch", o->torch, "PyTorch's GradScaler instead of DeepSpeed's rule");
  command->add_option("--initial-scale-power", o->initial_scale_power, "The first scale is 2 to this power")
      ->check(CLI::Range(0, 127));
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  command->add_option("--window", o->window, "Clean steps before the scale doubles")
      ->check(CLI::Range(std::int64_t{1}, kMany));
  CLI::Option* hysteresis = command->add_option("--hysteresis", o->hysteresis, "Overflows before it halves")
                                ->check(CLI::Range(std::int64_t{1}, kMany));
  CLI::Option* consecutive = command->add_flag("--consecutive-hysteresis", o->consecutive_hysteresis,
                                               "A clean step forgives earlier overflows");
  CLI::Option* minimum =
      command->add_option("--min-scale", o->min_scale, "The scale does not fall below this")
          ->check(CLI::PositiveNumber);
  command->add_flag("!--no-raise-error-at-min-scale", o->raise_at_min, "Stay at the minimum for ever");
  CLI::Option* overflows =
      command->add_option("--overflows", o->overflows, "A 1 for every step that overflows: 0110");
  command->add_option("--from", o->metrics, "A run's metrics.jsonl")->excludes(overflows);
  common.add_to(*command);
  command->callback([o, hysteresis, consecutive, minimum, &common, &run] {
    run = [o, hysteresis, consecutive, minimum, &common] {
      if (o->torch && hysteresis->count() + consecutive->count() + minimum->count() > 0) {
        throw ConfigError(
            "--torch: PyTorch's rule has no hysteresis and no minimum; leave --hysteresis, "
            "--consecutive-hysteresis and --min-scale out");
      }
      return run_loss_scale(*o, common);
    };
  });
}

}  // namespace mantissa::cli
