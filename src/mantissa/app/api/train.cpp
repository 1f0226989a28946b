#include "mantissa/app/api/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "mantissa/app/api/internal.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/comm/on_thread_ranks.h"
#include "mantissa/files/io/state.h"
#include "mantissa/precision/policy/supported.h"
#include "mantissa/setup/data/rows.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/setup/programs/narrow_layers.h"
#include "mantissa/train/rl/samples.h"
#include "mantissa/train/run/run.h"
#include "mantissa/train/run/work.h"

namespace mantissa::api {
namespace {

Step step_of(const train::StepReport& r, std::int64_t steps, double seconds_left) {
  const std::string overflow = r.batch_skipped ? "its batch is in run.skip_batches"
                               : r.overflow    ? fmt::format("{} ({})", r.overflow->what, r.overflow->rows)
                                               : "";
  const auto metric = [&](std::string_view name) -> std::optional<double> {
    const auto found = std::ranges::find(r.metrics, name, &objective::Metric::name);
    return found == r.metrics.end() ? std::nullopt : std::optional(found->value);
  };
  std::vector<std::pair<std::string, double>> metrics;
  for (const objective::Metric& m : r.metrics) metrics.emplace_back(m.name, m.value);
  return {r.step,
          steps,
          r.loss,
          r.tokens,
          r.grad_norm,
          r.lr,
          r.loss_scale,
          r.skipped,
          overflow,
          r.tokens_per_second,
          r.peak_share,
          r.seconds,
          seconds_left,
          metric("masked_share"),
          metric("padding_share"),
          std::move(metrics)};
}

run::Events events_of(const Events& events, std::int64_t steps) {
  run::Events out;
  if (events.on_plan) out.on_plan = [&events](const auto& plan) { events.on_plan(plan_of(plan)); };
  if (events.on_step) {
    out.on_step = [&events, steps](const train::StepReport& step, double left) {
      events.on_step(step_of(step, steps, left));
    };
  }
  out.on_validation = [&events](std::int64_t step, const train::Validation& v) {
    if (events.on_validation && v.loss) events.on_validation(step, *v.loss);
    if (!events.on_measurements || v.metrics.empty()) return;
    Metrics metrics;
    for (const objective::Metric& m : v.metrics) metrics.emplace_back(m.name, m.value);
    events.on_measurements(step, metrics);
  };
  out.on_state = events.on_state;
  out.on_note = events.on_note;
  out.on_warning = events.on_warning;
  return out;
}

std::shared_ptr<const Weights> weights_of(weights::SavedModel model) {
  auto weights = std::make_shared<Weights>();
  for (weights::SavedTensor& t : model.tensors) {
    weights->tensors.push_back({std::move(t.name), std::string(io::safetensors_name(t.dtype)),
                                std::move(t.shape), std::move(t.bytes)});
  }
  weights->metadata = std::move(model.metadata);
  return weights;
}

Summary summary_of(run::Result r) {
  Summary s;
  s.steps = r.steps;
  s.steps_here = r.steps_here;
  s.first_loss = r.first_loss;
  s.first_loss_step = r.first_loss_step;
  s.final_loss = r.final_loss;
  if (r.validation) s.validation_loss = r.validation->loss;
  s.tokens = r.tokens;
  s.tokens_here = r.tokens_here;
  s.seconds = r.seconds;
  s.predicted_peak_bytes = r.predicted_peak_bytes;
  s.measured_peak_bytes = r.measured_peak_bytes;
  s.findings = r.findings;
  s.skipped = r.skipped;
  s.fallback_share = r.fallback_share;
  s.policy = r.policy;
  s.policy_name = r.policy_name;
  s.weights_xxh64 = r.weights_xxh64;
  s.model = r.model;
  if (!r.model.empty()) s.model_format = name(r.model_format);
  s.interrupted = r.interrupted;
  s.model_config = std::move(r.weights.config_json);
  if (!r.weights.tensors.empty()) s.weights = weights_of(std::move(r.weights));
  return s;
}

/// Trains a run whose rows ranks share, in one process.
Summary train_on_threads(int parts, std::int64_t config_threads, const Config& config, TrainOptions options,
                         const Events& events, const std::stop_token& stop) {
  if (options.data.next) {
    throw ConfigError(
        "distributed.sequence_shards = {}: the rows of Data::next are for one rank. Fix: give Data::rows, or "
        "start as many processes with mpirun",
        parts);
  }
  const std::int64_t threads = options.hardware.threads != 0 ? options.hardware.threads : config_threads;
  if (threads != 0) options.hardware.threads = static_cast<int>(std::max<std::int64_t>(1, threads / parts));
  Summary summary;
  comm::on_thread_ranks(parts, [&](const std::shared_ptr<comm::Communicator>& ranks) {
    TrainOptions own = options;
    own.ranks = Ranks(ranks);
    if (ranks->leads()) {
      summary = train(config, own, events, stop);
      summary.predicted_peak_bytes *= static_cast<std::size_t>(parts);
    } else {
      train(config, own);
    }
  });
  return summary;
}

}  // namespace

Summary train(const Config& config, const TrainOptions& options, const Events& events, std::stop_token stop) {
  const config::RunConfig& run = config.impl().run;
  precision::check_supported(run.policy);
  if (const auto parts = static_cast<int>(run.distributed.sequence_shards);
      parts > 1 && options.ranks.size() == 1)
    return train_on_threads(parts, run.run.threads, config, options, events, stop);
  if (!options.reward) rl::check_allowed(run);
  const auto device = device_for(options.hardware, run.run.threads, options.ranks.local_size());
  const std::filesystem::path out = options.out.empty() ? std::filesystem::path(run.run.out) : options.out;
  weights::ModelSource source = weights::find_run_model(run);
  if (options.weights != nullptr) weights::use_memory(source, memory_of(options.weights));
  config::Told told = config.impl().told;
  if (!in_memory(options.data)) data::add_notes(run, source.config, told);
  std::ranges::move(programs::narrow_layers_notes(run, source.config), std::back_inserter(told.notes));
  const auto samples = std::make_shared<rl::SamplesFile>(out / "samples.jsonl");
  rl::OnRollout on_rollout;
  if (options.ranks.leads()) {
    on_rollout = [samples](std::int64_t step, std::span<const rl::Sampled> sampled) {
      samples->write(step, sampled);
    };
  }
  run::Work work = run::work_of(run, source, memory_of(options.data), *device, &told.notes,
                                std::move(on_rollout), rule_of(options.reward));
  run::Events listeners = events_of(events, run.run.steps);
  listeners.before_state = [samples] { samples->sync(); };
  run::DirectoryOptions directory{out, options.overwrite, options.resume};
  auto files = data::files_of_tokenizer(run, source.config, in_memory(options.data));
  return summary_of(
      run::train({work.config, std::move(told), std::move(source), std::move(work.task), std::move(directory),
                  options.return_weights, std::move(files), &options.ranks.communicator()},
                 listeners, *device, std::move(stop)));
}

std::vector<std::int64_t> state_steps(const std::filesystem::path& run) {
  std::vector<std::int64_t> steps;
  for (const io::FoundState& state : io::find_states(run)) steps.push_back(state.step);
  return steps;
}

}  // namespace mantissa::api
