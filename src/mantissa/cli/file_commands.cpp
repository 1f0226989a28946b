// mantissa inspect, loss-scale
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/api/error.h"
#include "mantissa/cli/options.h"

namespace mantissa::cli {
namespace {

/// These commands look at files and numbers; a policy or a config would do nothing.
void refuse_run_options(const CommonOptions& common, const char* command) {
  if (!common.precision.empty() || !common.rules.empty() || !common.set.empty() ||
      !common.deepspeed.empty() || !common.targets.empty()) {
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
      const api::Inspection i = api::inspect(*path);
      fmt::print("{}\n", common.json ? i.json : i.text);
      return 0;
    };
  });
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
