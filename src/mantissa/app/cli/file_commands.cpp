// mantissa inspect, diff, convert, merge, loss-scale, objective
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/fit.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/app/cli/terminal.h"

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
  if (!(o.min_scale > 0)) throw ConfigError("--min-scale: must be above 0");
  if (a.has("--no-raise-error-at-min-scale")) o.raise_at_min = false;
  o.overflows = a.text("--overflows");
  o.metrics = a.text("--from");
  return o;
}

}  // namespace

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
    throw FileError(fmt::format("standard output: cannot be written: {}", e.code().message()));
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
    if (!a.has(option)) throw ConfigError(fmt::format("objective: requires {} FILE.safetensors", option));
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

}  // namespace mantissa::cli
