// The training loop: one optimizer step after the other, reported to callbacks, saved, resumed, stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/comm/shard_sum.h"
#include "mantissa/config/run_config.h"
#include "mantissa/cost/forecast.h"
#include "mantissa/objective/objective.h"
#include "mantissa/optim/schedule.h"
#include "mantissa/plan/program.h"
#include "mantissa/precision/loss_scaler.h"
#include "mantissa/runtime/batch.h"
#include "mantissa/runtime/device.h"
#include "mantissa/runtime/session.h"
#include "mantissa/text/dataset.h"
#include "mantissa/train/update.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::train {

/// Why a step was skipped or a run stopped, as far as it could be found out.
struct Overflow {
  std::string what;   // "model.layers.5.mlp.down_proj matmul backward 8.1e4 > 65504 (f16)"
  std::string scope;  // "model.layers.5.mlp.down_proj"
  std::string rows;   // "rows 3, 17 of kk"
  std::vector<std::string> cure =
      {};  // {"--set", "precision.reduce=f32"}, where it is not the scope's compute
};

/// One optimizer step as it was (docs/cli.md, "metrics.jsonl").
struct StepReport {
  std::int64_t step = 0;
  double loss = 0;
  std::int64_t tokens = 0;  // since the start
  double grad_norm = 0;
  double lr = 0;
  std::optional<double> loss_scale{};  // that was used in this step
  bool skipped = false;                // the gradients overflowed: nothing was changed but the scale
  std::optional<Overflow> overflow{};  // of a skipped step
  double tokens_per_second = 0;
  double peak_share = 0;
  double seconds = 0;
  std::vector<objective::Metric> metrics{};  // of the objective
};

/// Weights, moments and counters of a run in memory.
class Trainer {
 public:
  /// Builds model, plan and memory. `data` holds the training rows. Weights are read or initialised as the
  /// config says. `done`: the steps that were done before, by a state that is to be restored.
  Trainer(const config::RunConfig& config, weights::ModelSource source, text::Dataset data,
          const runtime::Device& device, std::int64_t done = 0);

  /// Runs attempt number step() + 1 and counts it. Where gradients are not finite, a loss scaler skips the
  /// step and lowers its scale. Throws RunStopped where there is none or its scale is at the minimum, naming
  /// the first value of the plan that is not finite, and the data rows; nothing is counted then. So it does
  /// where the update would take a weight beyond its format, loss scaler or not. Nothing is counted or
  /// changed either where `stop` is asked for in the middle: it returns no report.
  std::optional<StepReport> advance(const std::stop_token& stop = {});
  /// Mean loss over the held-out rows; nothing where there are none. Throws RunStopped where it is not
  /// finite, naming the first such value of the plan and the data rows.
  std::optional<double> validate(const std::stop_token& stop = {});

  std::int64_t step() const { return step_; }
  std::int64_t applied() const { return applied_; }
  std::int64_t skipped() const { return step_ - applied_; }
  std::int64_t tokens() const { return tokens_; }
  /// Nothing under a policy without a loss scale.
  const std::optional<precision::LossScaler>& scaler() const { return scaler_; }
  /// Counters of a state that is being resumed; a scaler that the state does not know begins anew.
  void restore(std::int64_t step, std::int64_t applied, std::int64_t tokens,
               const std::optional<precision::ScalerState>& scaler);

  const config::RunConfig& config() const { return config_; }
  const model::ModelConfig& model() const { return source_.config; }
  /// The plans of the run's parts, and the one of the step that comes next.
  const std::vector<cost::Part>& parts() const { return parts_; }
  const plan::Program& program() const { return *parts_[part_].program; }
  const cost::MemoryForecast& memory() const { return memory_; }
  const cost::Machine& machine() const { return machine_; }
  const text::Dataset& data() const { return data_; }
  runtime::WeightSet& weights() { return *weights_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const runtime::Device& device() const { return device_; }

  /// The memory that a resumable state holds: masters, moments and compensations by name. Valid while the
  /// trainer lives.
  struct NamedMemory {
    std::string name;
    Scalar type = Scalar::f32;
    std::vector<std::int64_t> shape;
    std::span<std::byte> bytes;  // where the host can write it; else of `device`
    const runtime::Device* device = nullptr;
    bool begins_at_zero = false;  // a state saved under another policy may lack it
    bool newest_first = false;    // or hold more or fewer: what fits is read

    /// Copies from and to byte `offset` on.
    void read(std::size_t offset, std::span<std::byte> out) const;
    void write(std::size_t offset, std::span<const std::byte> in) const;
  };
  std::vector<NamedMemory> state_memory();

 private:
  /// The gradients of shard `shard` of the batch are complete: sums the uses of parameters, and the shards.
  void finish_shard(std::int64_t shard);
  /// Runs `rows` under the objective, micro-batch by micro-batch.
  objective::Outcome run_rows(const text::StepData& rows, objective::Pass pass, const std::stop_token& stop);
  std::vector<comm::Gradient> gradients() const;
  /// Makes the session and the update of the current part.
  void bind();
  std::size_t part_of(std::int64_t done) const;
  /// Goes on with another part's plan: the masters, moments and histories stay, the copies are made anew.
  void enter(std::size_t part);
  /// Fills the batch with the rows from `first` on, as many as a micro-batch has.
  void fill_batch(const text::StepData& data, std::int64_t first, std::uint64_t sequence);
  double scale() const { return scaler_ ? scaler_->scale() : 1; }
  /// Where `rows` are not finite: in a step of training, or in a forward pass.
  Overflow find_overflow(const text::StepData& rows, bool train = true);
  /// Skips the step, or stops the run.
  void overflowed(StepReport& report, const text::StepData& rows);
  [[noreturn]] void stop_at_minimum(const Overflow& overflow) const;
  [[noreturn]] void stop_non_finite(const Overflow& overflow, double loss) const;
  /// Of the message that begins with `what`: the first value, the rows, and the cures.
  [[noreturn]] void stop_at_value(const std::string& what, const Overflow& overflow,
                                  bool changes_weights) const;
  /// The update would take a weight beyond what its format holds.
  [[noreturn]] void stop_beyond_format(const runtime::Executor::Broken& broken) const;

  config::RunConfig config_;
  weights::ModelSource source_;
  text::Dataset data_;
  const runtime::Device& device_;
  std::vector<cost::Part> parts_;
  std::size_t part_ = 0;
  cost::MemoryForecast memory_;
  cost::Machine machine_;
  std::shared_ptr<runtime::WeightSet> weights_;
  std::unique_ptr<runtime::Session> session_;
  std::unique_ptr<objective::Objective> objective_ = objective::pretraining();
  Storage kept_;  // what the optimizer keeps, in every part the same
  std::unique_ptr<Update> update_;
  optim::Schedule schedule_;
  runtime::Batch batch_;
  std::vector<std::string> notes_;
  std::optional<precision::LossScaler> scaler_;
  std::optional<comm::ShardSum> shard_sum_;
  std::int64_t first_row_ = 0;  // of the micro-batch at hand
  std::int64_t step_ = 0, applied_ = 0, tokens_ = 0;
};

}  // namespace mantissa::train
