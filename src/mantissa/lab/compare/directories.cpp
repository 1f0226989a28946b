#include "mantissa/lab/compare/directories.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/state.h"
#include "mantissa/lab/compare/curves.h"
#include "mantissa/lab/compare/held_out.h"
#include "mantissa/lab/diff/config_differences.h"
#include "mantissa/lab/masters.h"
#include "mantissa/lab/median.h"
#include "mantissa/lab/metrics_file.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::lab {
namespace {

namespace fs = std::filesystem;

/// A run directory: the measurements, and the shares of lost updates by tensor.
struct ReadRun {
  fs::path path;
  ComparedRun run;
  std::string config_text;  // "" without a config.toml
  precision::Policy policy;
  nlohmann::json health;  // the last measurement
};

void read_metrics(ReadRun& r) {
  MetricsFile file(r.path / "metrics.jsonl", Health::join);
  std::vector<double> speeds;
  for (std::optional<StepLine> line = file.next(); line; line = file.next()) {
    const nlohmann::json& m = line->metrics;
    if (const std::optional<double> loss = number_in(m, "validation_loss")) r.run.validation_loss = loss;
    for (const std::string& name : curve_names()) {
      if (const std::optional<double> value = number_in(m, name.c_str()))
        add_to_curves(r.run, line->step, name, *value);
    }
    if (!m.contains("loss")) continue;  // the validation of a step that was not logged
    const bool skipped = m.contains("skipped") && m["skipped"] == true;
    r.run.steps.push_back(
        {line->step, number_in(m, "loss").value_or(std::numeric_limits<double>::quiet_NaN()), skipped});
    r.run.skipped += skipped ? 1 : 0;
    const std::optional<double> speed = number_in(m, "tokens_per_second");
    if (speed && *speed > 0 && line->step > 1) speeds.push_back(*speed);
    if (m.contains("health") && m["health"].is_object()) r.health = m["health"];
  }
  if (r.run.steps.empty())
    throw FileError("{}: contains no steps. Fix: give a run that has trained",
                    (r.path / "metrics.jsonl").string());
  r.run.tokens_per_second = median(std::move(speeds));
}

void read_config(ReadRun& r) {
  const fs::path path = r.path / "config.toml";
  if (!disk::exists(path)) return;
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 20;
  r.config_text = disk::read_text_file(path, kLongest);
  const config::RunConfig config = config::parse_config(r.config_text, path);
  r.policy = config.policy;
  r.run.policy = config.policy.line();
  r.run.seed = config.run.seed;
  r.run.held_out = held_out_of(config);
  r.run.name += fmt::format(" ({})", config.policy.short_line());
  const std::int64_t last = r.run.steps.back().step;
  if (last >= config.run.steps || disk::exists(r.path / "summary.json")) return;
  r.run.stopped_at = last + 1;
  r.run.stopped =
      fmt::format("the run has {} steps and no summary.json; it stopped or still trains", config.run.steps);
}

void read_summary(ReadRun& r) {
  const fs::path path = r.path / "summary.json";
  if (!disk::exists(path)) return;
  const nlohmann::json summary = io::read_json_file(path);
  if (!summary.is_object()) throw FileError("{}: expected an object", path.string());
  r.run.peak_bytes = number_in(summary, "predicted_peak_bytes");
  if (const std::optional<double> loss = number_in(summary, "validation_loss")) r.run.validation_loss = loss;
  // metrics.jsonl lacks steps if log.interval is not 1.
  if (const std::optional<double> skipped = number_in(summary, "skipped"); skipped && *skipped >= 0)
    r.run.skipped = static_cast<std::int64_t>(std::min(*skipped, 0x1p53));
}

/// Returns the last weights of a run: those of its newest state, which are unrounded, else of its model.
Masters last_weights(const fs::path& run) {
  const std::vector<io::FoundState> states = io::find_states(run);
  if (!states.empty()) {
    const io::StateReader intact(states.back().path);  // which compares its checksums
    return map_masters(states.back().path / io::kStateTensors, io::kMasterPrefix);
  }
  return disk::exists(run / "model") ? map_masters(run / "model") : Masters{};
}

/// Returns the mean of a share over all weights whose health has it, by the sizes of the tensors, or null.
/// `counts` tells for which it is not zero.
template <class Counts>
std::optional<double> mean_share(const ReadRun& r, const Masters& weights, const char* name,
                                 const Counts& counts) {
  double sum = 0, all = 0;
  for (const MasterTensor& tensor : weights) {
    const auto found = r.health.find(tensor.name);
    const std::optional<double> share = found == r.health.end() ? std::nullopt : number_in(*found, name);
    if (!share) continue;
    const auto count = static_cast<double>(tensor.bytes.size() / bytes_of(tensor.type));
    if (counts(tensor.name)) sum += *share * count;
    all += count;
  }
  return all > 0 ? std::optional(sum / all) : std::nullopt;
}

/// Sets what roundings lost in the last measurement; a compensation keeps updates.
void read_lost(ReadRun& r, const Masters& weights) {
  if (!r.health.is_object()) return;
  const auto all = [](const std::string&) { return true; };
  r.run.updates_lost = mean_share(r, weights, "updates_lost",
                                  [&](const std::string& name) { return !r.policy.compensates(name); });
  r.run.reduce_flushed = mean_share(r, weights, "reduce_flushed", all);
  r.run.reduce_saturated = mean_share(r, weights, "reduce_saturated", all);
}

ReadRun read_run(const fs::path& path) {
  ReadRun r{.path = path, .run = {}, .config_text = {}, .policy = {}, .health = {}};
  r.run.name = path.string();
  read_metrics(r);
  read_config(r);
  read_summary(r);
  return r;
}

std::vector<ConfigDifference> differences_that_count(const ReadRun& r, const ReadRun& reference) {
  if (r.config_text.empty() || reference.config_text.empty()) return {};
  std::vector<ConfigDifference> all = compare_configs(r.config_text, r.path / "config.toml",
                                                      reference.config_text, reference.path / "config.toml");
  std::erase_if(all, [](const ConfigDifference& d) { return !d.counts(); });
  return all;
}

/// Returns true if the runs differ in their seed, and in nothing else that counts.
bool only_seed_differs(const ReadRun& r, const ReadRun& other) {
  const std::vector<ConfigDifference> all = differences_that_count(r, other);
  return all.size() == 1 && all.front().key == "run.seed";
}

/// Lists the settings of `r` that differ from the reference.
void list_settings(ReadRun& r, const ReadRun& reference) {
  for (const ConfigDifference& d : differences_that_count(r, reference)) {
    if (!d.key.starts_with("precision."))
      r.run.settings.push_back(fmt::format("{}={}", d.key, d.a.empty() ? "(default)" : d.a));
  }
}

}  // namespace

Comparison compare_directories(std::span<const fs::path> directories, const runtime::Device& device) {
  const auto begin = std::chrono::steady_clock::now();
  Comparison result;
  result.title = fmt::format("{} runs", directories.size());
  std::vector<ReadRun> runs;
  for (const fs::path& path : directories) runs.push_back(read_run(path));
  const fs::path first = directories.front() / "start.safetensors";
  const Masters start = disk::exists(first) ? map_masters(first) : Masters{};
  const Masters end = last_weights(directories.front());
  const double moved = start.empty() ? 0 : distance(end, start, device).value_or(0);
  if (moved <= 0) {
    result.no_distance =
        start.empty() ? fmt::format("{} is missing, which a run with log.health_interval = 0 does not write",
                                    first.string())
        : end.empty() ? fmt::format("{} has no final weights", directories.front().string())
                      : "the weights of the reference did not move";
  }
  std::vector<std::size_t> firsts;  // of each policy: its first directory, whose run is in result.runs
  for (std::size_t i = 0; i < runs.size(); ++i) {
    ReadRun& r = runs[i];
    const auto first =
        std::ranges::find_if(firsts, [&](std::size_t f) { return only_seed_differs(r, runs[f]); });
    const bool reseeded = first != firsts.end();
    r.run.of = static_cast<std::size_t>(first - firsts.begin());
    list_settings(r, runs.front());
    const Masters weights = last_weights(r.path);
    read_lost(r, weights);
    if (moved > 0 && (r.config_text.empty() || r.run.seed == runs.front().run.seed)) {
      const std::optional<double> apart = distance(weights, end, device);
      if (apart) r.run.weight_distance = *apart / moved;
    }
    if (!reseeded) firsts.push_back(i);
    (reseeded ? result.reseeded : result.runs).push_back(r.run);
  }
  judge(result);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace mantissa::lab
